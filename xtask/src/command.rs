//! External commands of tasks. Each is printed before it runs, such that it can be pasted into a shell, and is timed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A named command that runs in the repository root.
#[derive(Debug, Clone)]
pub(crate) struct NamedCommand {
    name: String,
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    env_removed: Vec<&'static str>,
}

impl NamedCommand {
    /// Creates a command of any program.
    pub(crate) fn new(name: &str, program: &str, args: &[&str]) -> Self {
        Self {
            name: name.to_string(),
            program: program.to_string(),
            args: args.iter().map(ToString::to_string).collect(),
            env: Vec::new(),
            env_removed: Vec::new(),
        }
    }

    /// Creates a command of the cargo that runs this program.
    pub(crate) fn cargo(name: &str, args: &[&str]) -> Self {
        Self::new(name, "cargo", args)
    }

    /// Appends arguments.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Adds an environment variable, which is printed as part of the command.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_string(), value.to_string()));
        self
    }

    /// Removes an inherited variable from the command's environment. This is not printed: use it only for variables that
    /// `cargo run` sets and a user's shell does not have.
    pub(crate) fn env_remove(mut self, name: &'static str) -> Self {
        self.env_removed.push(name);
        self
    }

    /// Returns the command as typed into a shell in the repository root.
    pub(crate) fn command_line(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = std::iter::once(&self.program).chain(&self.args);
        env.chain(words.map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
    }

    /// Prints the command, runs it to completion and reports its time.
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        timed(&self.name, &self.command_line(), || {
            let status = self.command(root).status();
            match status {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(format!("expected success, found {status}")),
                Err(err) => Err(format!("expected `{}` to start, found: {err}", self.program)),
            }
        })
    }

    /// Runs the command without printing it and returns its standard output.
    pub(crate) fn output(&self, root: &Path) -> Result<String, String> {
        let line = self.command_line();
        let output = self
            .command(root)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|err| format!("expected `{line}` to start, found: {err}"))?;
        if !output.status.success() {
            return Err(format!("`{line}`: expected success, found {}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|err| format!("`{line}`: expected UTF-8, found: {err}"))
    }

    /// Like [`output`](Self::output), but returns `None` on failure and prints nothing.
    pub(crate) fn quiet_output(&self, root: &Path) -> Option<String> {
        let output = self.command(root).output().ok()?;
        if !output.status.success() {
            return None;
        }
        String::from_utf8(output.stdout).ok()
    }

    fn command(&self, root: &Path) -> Command {
        // The real path of cargo, so that a toolchain override of the outer call applies here too.
        let mut command = match std::env::var_os("CARGO") {
            Some(cargo) if self.program == "cargo" => Command::new(cargo),
            _ => Command::new(&self.program),
        };
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(root)
            // A program that reads standard input gets its end, instead of waiting at a terminal.
            .stdin(Stdio::null());
        for name in &self.env_removed {
            command.env_remove(name);
        }
        command
    }
}

/// Prints what is about to run, runs it, and reports its time. Adds the command's name and the line to repeat it to an
/// error.
pub(crate) fn timed(name: &str, command_line: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("==> {name}: {command_line}");
    let start = Instant::now();
    let outcome = work();
    let seconds = start.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("    {name}: ok in {seconds:.1} s");
            Ok(())
        }
        Err(message) => {
            Err(format!("{name} failed after {seconds:.1} s: {message}\n       repeat it with: {command_line}"))
        }
    }
}

/// Quotes a word for a POSIX shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_can_be_pasted_into_a_shell() {
        let command = NamedCommand::cargo("docs", &["doc", "--no-deps", "it's"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command.command_line(), r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'");
    }

    #[test]
    fn failure_names_the_command_and_how_to_repeat_it() {
        let err = timed("docs", "cargo doc", || Err("expected success, found 7".to_string())).unwrap_err();
        assert!(err.starts_with("docs failed after "), "{err}");
        assert!(err.contains("found 7"), "{err}");
        assert!(err.ends_with("repeat it with: cargo doc"), "{err}");
    }

    #[test]
    fn program_that_does_not_exist_is_named() {
        let command = NamedCommand::new("nothing", "kiln-no-such-program", &[]);
        let err = command.run(Path::new(".")).unwrap_err();
        assert!(err.contains("expected `kiln-no-such-program` to start"), "{err}");
    }
}
