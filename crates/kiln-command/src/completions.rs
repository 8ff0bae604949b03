//! `kiln completions`: shell completion scripts, generated from the command declarations.

use crate::{Cli, Fallible, terminal};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use kiln::DType;
use kiln::function::Function;
use std::io;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  kiln completions bash > ~/.local/share/bash-completion/completions/kiln
  kiln completions zsh > ~/.zfunc/_kiln
  kiln completions fish > ~/.config/fish/completions/kiln.fish
  kiln completions elvish >> ~/.config/elvish/rc.elv
  kiln completions powershell >> $PROFILE

Exit status:
  0  success
  1  the script could not be written
  2  the command line is invalid";

/// Writes a shell completion script for `kiln`.
///
/// bash and zsh complete names of ops, workloads, claims, dtypes and devices; fish completes claims, dtypes and devices. File arguments
/// complete to files. With zsh, the directory of the script must be in `fpath` before `compinit` runs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    terminal::write(&mut io::stdout(), &script(args.shell)?)?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> Fallible<String> {
    let mut command = with_names(Cli::command());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "kiln", &mut script);
    Ok(String::from_utf8(script)?)
}

/// Adds the possible names of arguments to the command. The program itself accepts any text there, and suggests similar names for an
/// unknown one.
fn with_names(command: Command) -> Command {
    let name = command.get_name().to_string();
    let command = command.mut_args(|argument| match names(&name, &argument) {
        Some(names) => argument.value_parser(PossibleValuesParser::new(names)),
        None => argument,
    });
    command.mut_subcommands(with_names)
}

/// Returns the possible values of an argument; `None` if clap knows them, or they are open-ended.
fn names(command: &str, argument: &Arg) -> Option<Vec<&'static str>> {
    let ops = || Function::all().map(Function::name);
    let workloads = || kiln_bench::workloads().iter().map(|workload| workload.id);
    match (command, argument.get_id().as_str()) {
        ("ops", "names") => Some(ops().collect()),
        ("bench", "workloads") => Some(workloads().chain(ops()).collect()),
        ("validate", "only") => Some(kiln_validate::claims().iter().map(|claim| claim.id).collect()),
        ("validate", "device") => Some(vec!["cpu", "gpu", "all"]),
        (_, "device") => Some(vec!["cpu", "gpu"]),
        (_, "dtype") => Some(DType::ALL.map(DType::name).to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    /// Returns every command, parents before children.
    fn commands(command: &Command) -> Vec<String> {
        let mut all = vec![command.get_name().to_string()];
        all.extend(command.get_subcommands().flat_map(commands));
        all
    }

    #[test]
    fn every_shell_gets_every_command_and_the_names_of_things() {
        for shell in Shell::value_variants() {
            let script = script(*shell).unwrap();
            for name in commands(&Cli::command()) {
                assert!(script.contains(&name), "{shell}: {name}");
            }
            // The generators differ: some complete argument names, others only option values.
            let words: &[&str] = match shell {
                Shell::Bash | Shell::Zsh => &["log_softmax", "linear-gelu-128x384x1536", "bf16", "fusion-launches"],
                Shell::Fish => &["bf16", "fusion-launches"],
                _ => &[],
            };
            for word in words.iter().chain(&["max-regression", "unused-for"]) {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }

    /// Names are completed by the shell only: the program reports invalid ones itself.
    #[test]
    fn names_that_are_completed_are_arguments_that_exist() {
        let command = Cli::command();
        for (name, id) in [("ops", "names"), ("bench", "workloads"), ("validate", "only"), ("validate", "device")] {
            let sub = command.find_subcommand(name).unwrap();
            let argument = sub.get_arguments().find(|argument| argument.get_id() == id);
            assert!(argument.is_some_and(|argument| argument.get_possible_values().is_empty()), "{name} {id}");
        }
    }
}
