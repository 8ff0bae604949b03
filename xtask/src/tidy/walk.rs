//! The walk of one op through the sources: each file that the architecture page names exists and defines the named items.
//!
//! A line of the walk is `` 1. `path` `item`, `Type::item`: what happens there ``.

use super::{ARCHITECTURE, Finding, SourceFile, section};

const HEADING: &str = "## One op, file by file";

/// Checks every numbered line of the walk.
pub(super) fn check(architecture: &str, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut steps = 0;
    for (line, text) in section(architecture, HEADING) {
        let Some((_, text)) = text.split_once(". ").filter(|(number, _)| number.parse::<usize>().is_ok()) else {
            continue;
        };
        steps += 1;
        let mut find = |expected: &str, found: &str| findings.push(Finding::new(ARCHITECTURE, line, expected, found));
        let (path, items) = head(text);
        if items.is_empty() {
            find("a path, names that it defines and a colon, as in `` `path` `name`: ``", "none");
        }
        let Some(file) = files.iter().find(|file| file.path == path) else {
            find(&format!("`{path}` to be a file of this repository"), "no such file");
            continue;
        };
        for item in items.iter().filter(|item| !defines(&file.text, item)) {
            find(&format!("{path} to define `{item}`"), "no such item");
        }
    }
    if steps == 0 {
        findings.push(Finding::new(ARCHITECTURE, 1, &format!("a numbered list below `{HEADING}`"), "none"));
    }
    findings
}

/// Returns the code spans before the first colon outside code: a path, then names.
fn head(text: &str) -> (&str, Vec<&str>) {
    let mut spans = Vec::new();
    for (index, piece) in text.split('`').enumerate() {
        match index % 2 {
            1 => spans.push(piece),
            // The text after the colon is prose, whose code spans are not checked.
            _ if piece.contains(':') => break,
            _ => {}
        }
    }
    let path = if spans.is_empty() { "" } else { spans.remove(0) };
    (path, spans)
}

/// Returns whether a file defines an item, or a method (`Type::method`) in one of its `impl` blocks.
fn defines(text: &str, item: &str) -> bool {
    let (owner, name) = item.rsplit_once("::").unwrap_or_default();
    let name = if name.is_empty() { item } else { name };
    text.lines().any(|line| declared(line) == Some(name))
        && (owner.is_empty() || text.lines().any(|line| declared(line) == Some(owner) || implements(line, owner)))
}

/// Returns the name that a line declares, regardless of visibility.
fn declared(line: &str) -> Option<&str> {
    const KINDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    let mut words = line.split([' ', '(', '<', ':', '{', ';', '=', ')']).filter(|word| !word.is_empty());
    let is_modifier = |word: &&str| ["pub", "crate", "super", "in", "unsafe", "async", "extern"].contains(word);
    let kind = words.by_ref().find(|word| !is_modifier(word))?;
    let name = words.next().filter(|_| KINDS.contains(&kind))?;
    // `const fn name`
    if name == "fn" || name == "unsafe" { words.find(|word| *word != "fn") } else { Some(name) }
}

fn implements(line: &str, owner: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.trim_start().starts_with("impl") && line.split(|c| !is_part(c)).any(|word| word == owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
pub(crate) struct Tensor<T>(T);
impl<T> Tensor<T> {
    pub const fn mul(&self) {}
    // fn gone
}
impl Run for Other {
    unsafe fn relu() {}
}
macro_rules! reductions {
";

    fn lines(walk: &str) -> Vec<String> {
        let files = [SourceFile { path: "a/b.rs".to_string(), text: SOURCE.to_string() }];
        let page = format!("# Page\n1. not here\n## One op, file by file\nWords.\n{walk}\n## Next\n1. not here\n");
        check(&page, &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_define_what_is_named_pass() {
        let walk = "1. `a/b.rs` `Tensor`, `Tensor::mul` and `Other::relu`: calls `gone`.\n   goes on\n\
                    2. `a/b.rs` `reductions`: `gone.rs` is not looked at.";
        assert_eq!(lines(walk), Vec::<String>::new());
    }

    #[test]
    fn missing_files_and_items_are_found() {
        let table = [
            ("1. `a/c.rs` `mul`: x", "`a/c.rs` to be a file of this repository, found no such file"),
            ("1. `a/b.rs` `mul`, `gone`: x", "a/b.rs to define `gone`, found no such item"),
            ("1. `a/b.rs` `Run::gone`: x", "a/b.rs to define `Run::gone`, found no such item"),
            ("1. `a/b.rs` `Missing::mul`: x", "a/b.rs to define `Missing::mul`, found no such item"),
            ("1. `a/b.rs`: x", "a path, names that it defines and a colon, as in `` `path` `name`: ``, found none"),
        ];
        for (walk, message) in table {
            assert_eq!(lines(walk), [format!("ARCHITECTURE.md:5: expected {message}")]);
        }
    }

    #[test]
    fn missing_list_is_found() {
        let message = "ARCHITECTURE.md:1: expected a numbered list below `## One op, file by file`, found none";
        assert_eq!(lines("Words."), [message]);
        assert_eq!(check("", &[])[0].to_string(), message);
    }
}
