//! Repository rules that neither the compiler nor clippy checks.
//!
//! Each rule is a pure function from texts to findings; only this file reads the repository.
//! All findings of all rules are listed, one line each, so that one run is enough to fix them.

mod layers;
mod links;
mod manifests;
mod methods;
mod sizes;
mod state;
mod unfinished;
mod walk;

use std::fmt;
use std::path::Path;

use crate::command::NamedCommand;
use crate::workspace::{self, Member};

/// The page that several rules compare with the sources.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// A violation of a rule: where, what was expected and what was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, expected: &str, found: &str) -> Finding {
        Finding { path: path.to_string(), line, message: format!("expected {expected}, found {found}") }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A file of the repository, tracked or about to be added.
#[derive(Debug, Clone)]
struct SourceFile {
    /// Relative to the repository root, with `/` on every system.
    path: String,
    text: String,
}

/// Checks the repository and prints every finding.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let files = source_files(root)?;
    let findings = findings(&files, &workspace::members(root)?);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("expected no tidy findings, found {count}")),
    }
}

fn findings(files: &[SourceFile], members: &[Member]) -> Vec<Finding> {
    let text_of = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.as_str())
    };
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut findings = layers::check(text_of(ARCHITECTURE), members, &text_of);
    if let Some(page) = text_of(ARCHITECTURE) {
        findings.extend(methods::check(page, files));
        findings.extend(state::check(page, files));
        findings.extend(walk::check(page, files));
    }
    if let Some(manifest) = text_of(manifests::ROOT_PATH) {
        findings.extend(manifests::check_root(manifest));
    }
    for member in members {
        let manifest = text_of(&member.manifest).unwrap_or_default();
        findings.extend(manifests::check_member(&member.manifest, manifest));
        if member.is_published {
            findings.extend(manifests::check_published(member, manifest, &paths));
        }
    }
    for file in files {
        findings.extend(sizes::check(&file.path, &file.text));
        findings.extend(unfinished::check(&file.path, &file.text));
        findings.extend(links::check(&file.path, &file.text, &paths));
    }
    // By file and line, whichever check found them.
    findings.sort();
    findings
}

/// Returns tracked files, and new ones that are not ignored, so that rules apply before `git add`.
fn source_files(root: &Path) -> Result<Vec<SourceFile>, String> {
    // New files count before they are added to git, so that the check finds their faults before the commit.
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listing = NamedCommand::new("files", "git", &args).output(root)?;
    let mut paths: Vec<&str> = listing.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        // git also lists tracked files that are deleted in the work tree, and links to directories or
        // to nothing, which have no text.
        let full = root.join(path);
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).map_err(|err| format!("{path}: expected a readable file, found: {err}"))?;
        files.push(SourceFile { path: path.to_string(), text: String::from_utf8_lossy(&bytes).into_owned() });
    }
    Ok(files)
}

/// Returns the part of a file name after its last dot, or an empty string.
fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Returns the line of a manifest that names a dependency; the first line if it is renamed there.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| {
        let rest = line.trim_start().strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    manifest.lines().position(names_it).map_or(1, |index| index + 1)
}

/// Returns whether a file is library or program code of a crate: not a test, a benchmark or an example.
fn is_library(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.contains("/tests/") && !path.ends_with("/tests.rs")
}

/// Returns the numbered lines below a heading of a Markdown page, up to the next heading of any level.
fn section<'a>(page: &'a str, heading: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let lines = (1..).zip(page.lines()).skip_while(move |(_, line)| *line != heading).skip(1);
    lines.take_while(|(_, line)| !line.starts_with('#'))
}

/// Returns the texts between backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_string(), text: text.to_string() }
    }

    const PAGE: &str = "\
| crate | owns |
| --- | --- |
| `a` | [a](crates/a/src/lib.rs); `DeviceApi` has 1 methods |

## Process-wide state
| `crates/a/src/lib.rs` | `ONE` | needed |

## One op, file by file
1. `crates/a/src/lib.rs` `DeviceApi`: all.
";

    fn clean_repository() -> (Vec<SourceFile>, Vec<Member>) {
        let manifest = "[package]\nedition.workspace = true\nlicense.workspace = true\n\
                        rust-version.workspace = true\n[lints]\nworkspace = true\n";
        let files = vec![
            file("ARCHITECTURE.md", PAGE),
            file("Cargo.toml", "[workspace.dependencies]\n# Reads JSON.\nserde_json = \"1\"\n"),
            file("crates/a/Cargo.toml", manifest),
            file("crates/a/src/lib.rs", "pub trait DeviceApi {\n    fn one(&self);\n}\nstatic ONE: Mutex<()> = X;\n"),
        ];
        let member = Member {
            name: "a".to_string(),
            manifest: "crates/a/Cargo.toml".to_string(),
            dependencies: vec![],
            has_default_features: false,
            joins_features: false,
            is_published: false,
        };
        (files, vec![member])
    }

    #[test]
    fn clean_repository_has_no_findings() {
        let (files, members) = clean_repository();
        assert_eq!(findings(&files, &members), []);
    }

    #[test]
    fn every_rule_is_applied_and_findings_are_in_order() {
        let (mut files, mut members) = clean_repository();
        files[0].text.push_str("[gone](gone.md)\n");
        files[1].text.push_str("tempfile = \"3\"\n");
        files[2].text = files[2].text.replace("license.workspace = true\n", "");
        files[3].text = format!("// {}\nstatic TWO: Once = X;\n{}", unfinished::WORDS[0], "\n".repeat(700));
        members[0].dependencies.push(Dependency { name: "a".to_string(), is_dev: false });
        let lines: Vec<String> = findings(&files, &members).iter().map(ToString::to_string).collect();
        let places = [
            "ARCHITECTURE.md:3: expected 1 methods of `DeviceApi`",
            "ARCHITECTURE.md:6: expected crates/a/src/lib.rs to have process-wide state `ONE`",
            "ARCHITECTURE.md:9: expected crates/a/src/lib.rs to define `DeviceApi`",
            "ARCHITECTURE.md:10: ",
            "Cargo.toml:4: ",
            "crates/a/Cargo.toml:1: expected `a` ",
            "crates/a/Cargo.toml:1: expected `license.workspace = true`",
            "crates/a/src/lib.rs:1: ",
            "crates/a/src/lib.rs:2: expected `TWO` in the table",
            "crates/a/src/lib.rs:601: ",
        ];
        assert_eq!(lines.len(), places.len(), "{lines:#?}");
        for (line, place) in lines.iter().zip(places) {
            assert!(line.starts_with(place), "{line}");
        }
    }

    #[test]
    fn extension_is_of_the_name_only() {
        assert_eq!(extension("a.b/test"), "");
        assert_eq!(extension("a/b.tar.gz"), "gz");
    }
}
