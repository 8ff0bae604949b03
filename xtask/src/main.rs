//! Repository automation: `cargo xtask <task>`.
//!
//! Owns what a compiler does not do for this repository: the order of the CI checks, the
//! rules of `tidy`, the golden files, the packages, the macOS type check. Holds no list of crates:
//! every task asks `cargo metadata` or the file system.
//!
//! Exit status: 0 done, 1 a check failed or could not run, 2 invalid command line.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program for developers; its output is its purpose"
)]

mod command;
mod events_cost;
mod goldens;
mod macos;
mod suite;
mod task;
mod tidy;
mod workspace;

use std::path::Path;
use std::process::ExitCode;

use command::NamedCommand;
use task::Task;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let task = match Task::parse(&args) {
        Ok(task) => task,
        Err(message) => {
            eprintln!("xtask: {message}\n\n{}", task::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("expected the xtask crate one level below the repository root")?;
    match task {
        Task::Help => {
            println!("{}", task::USAGE);
            Ok(())
        }
        Task::Check { with_tests } => check(root, *with_tests),
        Task::Test { all, packages } => suite::run(root, packages, *all),
        Task::Bless { packages } => goldens::bless(root, packages),
        Task::Tidy => tidy::run(root),
        Task::Package => package(root),
        Task::Validate => validate(root),
        Task::CheckMacos => macos::check(root),
        Task::EventsCost { with_build } => events_cost::run(root, *with_build),
    }
}

/// Runs the checks, cheapest first: a formatting error is reported in a second, not after the tests.
fn check(root: &Path, with_tests: bool) -> Result<(), String> {
    NamedCommand::cargo("fmt", &["fmt", "--all", "--check"]).run(root)?;
    command::timed("tidy", "cargo xtask tidy", || tidy::run(root))?;
    NamedCommand::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run(root)?;
    // Cargo unifies the features of all packages of one command: members that enable features of others would hide
    // that another member does not build without them.
    let (joining, alone): (Vec<_>, Vec<_>) =
        workspace::members(root)?.into_iter().partition(|member| member.joins_features);
    for (name, members) in [("bare clippy", alone), ("bare clippy of crates with shared features", joining)] {
        if let Some(command) = suite::bare(name, &["clippy"], &members) {
            command.args(&["--all-targets", "--", "-D", "warnings"]).run(root)?;
        }
    }
    // Separate, because tests of other members enable the feature.
    let without_wgsl = ["clippy", "-p", "kiln", "-p", "kiln-cpu", "--no-default-features", "--all-targets"];
    NamedCommand::cargo("clippy without wgsl", &without_wgsl).args(&["--", "-D", "warnings"]).run(root)?;
    NamedCommand::cargo("docs", &["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run(root)?;
    if with_tests {
        suite::run(root, &[], false)?;
    }
    Ok(())
}

/// Packages all published crates. Cargo orders them, and lets each resolve those before it as if they were published.
/// They are not built, because the tests have built the same sources.
fn package(root: &Path) -> Result<(), String> {
    let members = workspace::members(root)?;
    let published = members.iter().filter(|member| member.is_published).flat_map(|member| ["-p", &member.name]);
    let args: Vec<&str> = ["package", "--no-verify", "--allow-dirty"].into_iter().chain(published).collect();
    NamedCommand::cargo("package", &args).run(root)
}

/// Runs every claim on every device with the program that the tests have built. Ratios within one run are comparable between debug builds, so
/// the baseline is of a debug build. Targets are for release builds on quiet machines, and fail nothing here.
fn validate(root: &Path) -> Result<(), String> {
    // Reuses the test build: `cargo build` would unify other features and rebuild most of it.
    NamedCommand::cargo("build", &["test", "--workspace", "--no-run"]).run(root)?;
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let args = ["validate", "--quick", "--device", "all", "--fail-on", "regression"];
    let against = ["--baseline", ".ci/baseline.json", "--max-regression", "50%"];
    NamedCommand::new("validate", &format!("{target}/debug/kiln"), &args).args(&against).run(root)
}
