//! Checks the `kiln` commands shown in the README and in the user guide. `tests/kernels/guide.rs` runs the cheap ones.

use crate::Cli;
use crate::help::{all, words};
use clap::Parser;
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns every `kiln` command in the shell blocks of a page, as words.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut is_shell = false;
    let mut commands = Vec::new();
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_shell = language == "sh";
        } else if is_shell {
            commands.extend(command(line));
        }
    }
    commands
}

/// Returns the words of a line that runs `kiln`, without variables that it sets and without its comment.
fn command(line: &str) -> Option<Vec<String>> {
    let mut words = words(line.split_once(" #").map_or(line, |(command, _)| command));
    while words.first().is_some_and(|word| word.starts_with("KILN_") && word.contains('=')) {
        words.remove(0);
    }
    match words.first()?.as_str() {
        "kiln" => Some(words),
        // `cargo run -p kiln-command -- doctor`
        "cargo" if words.iter().any(|word| word == "kiln-command") => {
            let start = words.iter().position(|word| word == "--")?;
            words[start] = "kiln".to_string();
            Some(words.split_off(start))
        }
        _ => None,
    }
}

#[test]
fn commands_of_the_readme_and_the_guide_are_understood() {
    let chapters = fs::read_dir(Path::new(ROOT).join("docs/guide")).unwrap().map(|file| file.unwrap().path());
    let pages: Vec<_> = chapters.chain([Path::new(ROOT).join("README.md")]).collect();
    assert!(pages.len() >= 10, "{pages:?}");
    let mut checked = 0;
    for page in pages {
        for words in commands(&fs::read_to_string(&page).unwrap()) {
            let parsed = Cli::try_parse_from(&words);
            let is_help = |error: &clap::Error| error.kind() == clap::error::ErrorKind::DisplayHelp;
            assert!(
                parsed.is_ok() || parsed.as_ref().is_err_and(is_help),
                "{}: {}\n{parsed:?}",
                page.display(),
                words.join(" ")
            );
            checked += 1;
        }
    }
    assert!(checked >= 60, "{checked}");
}

#[test]
fn the_guide_shows_every_command() {
    let chapter = fs::read_to_string(Path::new(ROOT).join("docs/guide/08-command-line.md")).unwrap();
    let shown: Vec<String> = commands(&chapter).iter().map(|words| words.join(" ") + " ").collect();
    for (name, _) in all().iter().filter(|(_, command)| !command.has_subcommands()) {
        assert!(shown.iter().any(|line| line.starts_with(&format!("{name} "))), "`{name}` is not in chapter 8");
    }
}

#[test]
fn commands_are_found_in_lines_of_shell_blocks() {
    let page = "kiln is no command\n```sh\nKILN_EVENTS=e.jsonl kiln bench gelu  # events\nls kiln\n\
                cargo run --release -p kiln-command -- validate --quick\ncargo install --path crates/kiln-command\n```\n\
                ```text\nkiln 0.1.0\n```\n";
    assert_eq!(commands(page), [vec!["kiln", "bench", "gelu"], vec!["kiln", "validate", "--quick"]]);
}
