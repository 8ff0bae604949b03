//! Checks the help texts of all commands, without a list of commands.

use crate::Cli;
use clap::{Command, CommandFactory, Parser};

/// Returns every command of the tree, with its full name.
pub(crate) fn all() -> Vec<(String, Command)> {
    fn add(command: &Command, before: &str, all: &mut Vec<(String, Command)>) {
        let name = format!("{before}{}", command.get_name());
        command.get_subcommands().for_each(|sub| add(sub, &format!("{name} "), all));
        all.push((name, command.clone()));
    }
    let mut commands = Vec::new();
    add(&Cli::command(), "", &mut commands);
    commands
}

/// Returns the part of a long help below a heading.
fn part<'a>(help: &'a str, heading: &str) -> Option<&'a str> {
    let (_, rest) = help.split_once(&format!("{heading}:\n"))?;
    Some(rest.split_once("\n\n").map_or(rest, |(part, _)| part))
}

/// Splits a line like a shell, without its description after several spaces and without redirections.
pub(crate) fn words(line: &str) -> Vec<String> {
    let line = line.trim();
    let command = line.split_once("  ").map_or(line, |(command, _)| command);
    let command = command.split_once(" >").map_or(command, |(command, _)| command);
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for character in command.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(character),
        }
    }
    words.push(word);
    words
}

#[test]
fn every_command_has_examples_that_are_understood_and_exit_codes() {
    for (name, mut command) in all() {
        let help = command.render_long_help().to_string();
        let examples = part(&help, "Examples").unwrap_or_else(|| panic!("`{name}` has no examples:\n{help}"));
        for line in examples.lines() {
            let words = words(line);
            assert_eq!(words[0], "kiln", "`{name}`: {line}");
            // A command with subcommands shows their examples.
            assert!(words.join(" ").starts_with(&name) || words[1] == "help", "`{name}`: {line}");
            let parsed = Cli::try_parse_from(&words);
            let is_help = |error: &clap::Error| error.kind() == clap::error::ErrorKind::DisplayHelp;
            assert!(
                parsed.as_ref().is_ok_and(|_| true) || parsed.as_ref().is_err_and(is_help),
                "`{name}`: {line}\n{parsed:?}"
            );
        }
        let status = part(&help, "Exit status").unwrap_or_else(|| panic!("`{name}` has no exit codes:\n{help}"));
        let codes: Vec<char> = status.lines().filter_map(|line| line.trim().chars().next()).collect();
        assert_eq!(codes, ['0', '1', '2'], "`{name}`:\n{status}");
    }
}

#[test]
fn lines_of_examples_are_read_as_a_shell_reads_them() {
    let table: [(&str, &[&str]); 3] = [
        ("  kiln eval \"a + b\" --in a=a.npy   a description", &["kiln", "eval", "a + b", "--in", "a=a.npy"]),
        ("kiln man > kiln.1", &["kiln", "man"]),
        ("kiln completions elvish >> rc.elv", &["kiln", "completions", "elvish"]),
    ];
    for (line, expected) in table {
        assert_eq!(words(line), expected, "{line}");
    }
}
