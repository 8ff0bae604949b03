//! The profiled program.

use crate::{Cli, Fallible, terminal};
use clap::CommandFactory;
use kiln::observe::EVENTS_SETTING;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

#[derive(Debug)]
pub(super) struct Child {
    program: OsString,
    arguments: Vec<OsString>,
    /// Name as the user typed it.
    pub(super) name: String,
}

impl Child {
    /// Parses the command: a subcommand of this program if the first word is one, otherwise a program.
    pub(super) fn of(words: &[OsString]) -> Fallible<Self> {
        let Some((first, rest)) = words.split_first() else {
            return Err("expected a command or a program after `--`, found nothing".into());
        };
        let is_own =
            first.to_str().is_some_and(|first| Cli::command().get_subcommands().any(|own| own.get_name() == first));
        let shown: Vec<_> = words.iter().map(|word| terminal::plain(&word.to_string_lossy())).collect();
        let name = format!("{}{}", if is_own { "kiln " } else { "" }, shown.join(" "));
        Ok(match is_own {
            true => Self { program: std::env::current_exe()?.into(), arguments: words.to_vec(), name },
            false => Self { program: first.clone(), arguments: rest.to_vec(), name },
        })
    }

    /// Runs it to completion. Its devices write their events to files at `events`; its output is inherited, or redirected to standard error.
    pub(super) fn run(&self, events: &Path, output_to_stderr: bool) -> Fallible<ExitStatus> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env(EVENTS_SETTING, events);
        if output_to_stderr {
            // Standard output then contains only the JSON of the profile.
            command.stdout(Stdio::from(io::stderr()));
        }
        Ok(command.status().map_err(|error| {
            let own: Vec<String> = Cli::command().get_subcommands().map(|own| own.get_name().to_string()).collect();
            format!("cannot start `{}`: {error}; expected a program, or one of {}", self.name, own.join(", "))
        })?)
    }
}

/// Returns a message for a program that failed; `None` if it succeeded.
pub(super) fn fault(status: ExitStatus) -> Option<String> {
    match status.code() {
        Some(0) => None,
        Some(code) => Some(format!("exited with status {code}")),
        None => Some(format!("was terminated: {status}")),
    }
}

/// Returns the exit status to pass on; 1 if there is none, or it is out of range.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
