//! The command line: one task per call.

/// Printed by `--help`, and after an invalid command line.
pub(crate) const USAGE: &str = "\
usage: cargo xtask <task> [flags]

tasks:
  check [--no-tests]         cheapest first: fmt, tidy, clippy, docs, tests
  test [--all] [-p CRATE]... the tests of the workspace, or of the named crates; --all adds tests without
                             default features, without SIMD, and under loom
  bless [-p CRATE]...        run the tests and rewrite the golden files; review the diff
  tidy                       rules that the compiler does not check: layers, file sizes, manifests, links, ARCHITECTURE.md
  package                    package all published crates in dependency order, without building them
  validate                   quick run of every claim; fails on a wrong output or a ratio below half of the baseline
  check-macos                type-check the workspace for macOS, from Linux or on a Mac
  events-cost [--no-build]   cost of events on small ops: compiled out, off, on; makes release builds first
  help                       this text";

/// A task of `cargo xtask`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    Check { with_tests: bool },
    Test { all: bool, packages: Vec<String> },
    Bless { packages: Vec<String> },
    Tidy,
    Package,
    Validate,
    CheckMacos,
    EventsCost { with_build: bool },
}

impl Task {
    /// Parses the arguments after `cargo xtask`.
    pub(crate) fn parse(args: &[String]) -> Result<Task, String> {
        if args.iter().any(|arg| arg == "--help" || arg == "-h") {
            return Ok(Task::Help);
        }
        let (name, flags) = args.split_first().ok_or("expected a task, found none")?;
        match name.as_str() {
            "help" => no_flags(name, flags, Task::Help),
            "check" => match flags {
                [] => Ok(Task::Check { with_tests: true }),
                [flag] if flag == "--no-tests" => Ok(Task::Check { with_tests: false }),
                _ => Err(unexpected(name, "at most `--no-tests`", flags)),
            },
            "test" => {
                let (all, others): (Vec<_>, Vec<_>) = flags.iter().cloned().partition(|flag| flag == "--all");
                Ok(Task::Test { all: !all.is_empty(), packages: packages(name, &others)? })
            }
            "bless" => Ok(Task::Bless { packages: packages(name, flags)? }),
            "tidy" => no_flags(name, flags, Task::Tidy),
            "package" => no_flags(name, flags, Task::Package),
            "validate" => no_flags(name, flags, Task::Validate),
            "check-macos" => no_flags(name, flags, Task::CheckMacos),
            "events-cost" => match flags {
                [] => Ok(Task::EventsCost { with_build: true }),
                [flag] if flag == "--no-build" => Ok(Task::EventsCost { with_build: false }),
                _ => Err(unexpected(name, "at most `--no-build`", flags)),
            },
            other => Err(format!("expected a task, found `{other}`")),
        }
    }
}

fn no_flags(name: &str, flags: &[String], task: Task) -> Result<Task, String> {
    if flags.is_empty() { Ok(task) } else { Err(unexpected(name, "no flags", flags)) }
}

fn packages(name: &str, flags: &[String]) -> Result<Vec<String>, String> {
    flags
        .chunks(2)
        .map(|pair| match pair {
            [flag, package] if (flag == "-p" || flag == "--package") && !package.starts_with('-') => {
                Ok(package.clone())
            }
            _ => Err(unexpected(name, "`-p CRATE`", pair)),
        })
        .collect()
}

fn unexpected(name: &str, expected: &str, found: &[String]) -> String {
    format!("{name}: expected {expected}, found `{}`", found.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Task, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Task::parse(&args)
    }

    #[test]
    fn every_task_is_parsed() {
        let packages = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let table = [
            ("help", Task::Help),
            ("--help", Task::Help),
            ("check --help", Task::Help),
            ("check", Task::Check { with_tests: true }),
            ("check --no-tests", Task::Check { with_tests: false }),
            ("test", Task::Test { all: false, packages: vec![] }),
            ("test --all", Task::Test { all: true, packages: vec![] }),
            ("test -p a --package b", Task::Test { all: false, packages: packages(&["a", "b"]) }),
            ("test -p a --all", Task::Test { all: true, packages: packages(&["a"]) }),
            ("bless -p a", Task::Bless { packages: packages(&["a"]) }),
            ("tidy", Task::Tidy),
            ("package", Task::Package),
            ("validate", Task::Validate),
            ("check-macos", Task::CheckMacos),
            ("events-cost", Task::EventsCost { with_build: true }),
            ("events-cost --no-build", Task::EventsCost { with_build: false }),
        ];
        for (line, task) in table {
            assert_eq!(parse(line), Ok(task), "{line}");
        }
    }

    #[test]
    fn invalid_arguments_are_named() {
        let table = [
            ("", "expected a task, found none"),
            ("chekc", "expected a task, found `chekc`"),
            ("check --fast", "check: expected at most `--no-tests`, found `--fast`"),
            ("tidy --no-tests", "tidy: expected no flags, found `--no-tests`"),
            ("test name", "test: expected `-p CRATE`, found `name`"),
            ("test -p", "test: expected `-p CRATE`, found `-p`"),
            ("test -p -p", "test: expected `-p CRATE`, found `-p -p`"),
        ];
        for (line, message) in table {
            assert_eq!(parse(line), Err(message.to_string()), "{line}");
        }
    }

    #[test]
    fn usage_names_every_task() {
        for name in ["check", "test", "bless", "tidy", "package", "validate", "check-macos", "events-cost", "help"] {
            assert!(USAGE.contains(&format!("\n  {name} ")), "{name}");
        }
    }
}
