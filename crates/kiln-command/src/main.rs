//! The `kiln` program.
//!
//! Owns the command line: parsing, the environment, the terminal and the exit status, which libraries do not touch.
//! Does not compute: reported results come from the `kiln` crate.
//!
//! Exit status: 0 success, 1 a failure or a problem found, 2 invalid command line; `validate` and `check` use 1 only for
//! findings, and return 2 if nothing could be run. The help of each command states the details.

#![deny(unsafe_code)]

mod bench;
mod cache;
mod cache_dir;
mod completions;
mod doctor;
mod eval;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod help;
mod kernel_dir;
mod man;
mod metrics;
mod names;
mod npy;
mod ops;
mod profile;
mod rotating_file;
mod run;
mod settings;
mod source_args;
mod terminal;
mod timed_stream;
mod top;
mod validate;

use clap::{Parser, Subcommand};
use kiln_resource_cache::new_file;
use std::error::Error;
use std::process::ExitCode;

/// The result of a command: a value, or an error message for the user.
type Fallible<T> = Result<T, Box<dyn Error>>;

const EXAMPLES: &str = "\
Examples:
  kiln doctor                                check devices, drivers and the kernel cache
  kiln validate --quick                      verify the performance claims on this machine
  kiln eval \"relu(a*b+1).sum(1)\" --in a=a.npy --in b=b.npy
  kiln ops                                   list the ops
  kiln bench matmul --quick                  benchmark matmul
  kiln help cache                            help for a command, with examples; same as `kiln cache --help`

Exit status:
  0  success
  1  failure, or a problem was found; standard error says which
  2  the command line is invalid";

/// GPU compute runtime and tensor library.
///
/// Output is coloured only on a terminal, and never if NO_COLOR is set. Most commands write JSON with `--json`.
#[derive(Debug, Parser)]
#[command(name = "kiln", version, arg_required_else_help = true, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Validate(Box<validate::Args>),
    Doctor(doctor::Args),
    Run(Box<run::Args>),
    Check(Box<run::check::Args>),
    Eval(Box<eval::Args>),
    Cache(Box<cache::Args>),
    Bench(bench::Args),
    Ops(ops::Args),
    Completions(completions::Args),
    Man(man::Args),
    Profile(profile::Args),
    Top(top::Args),
}

fn main() -> ExitCode {
    let outcome: Fallible<ExitCode> = match Cli::parse().command {
        Command::Validate(args) => validate::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => run::check::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Ops(args) => ops::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Top(args) => top::run(&args),
    };
    // After an error too: the last write contains the work that was done until then.
    metrics::finish();
    outcome.unwrap_or_else(|error| {
        terminal::print_message("error", &error.to_string());
        ExitCode::FAILURE
    })
}
