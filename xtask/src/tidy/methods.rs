//! Trait sizes: if `ARCHITECTURE.md` says "`Name` has 7 methods", the trait must have 7 methods.

use super::{ARCHITECTURE, Finding, SourceFile, is_library};

/// The trait whose number of methods the page must state: every backend implements it.
const COUNTED: &str = "DeviceApi";

/// Compares each sentence "`Name` has 7 methods" with the trait in the sources.
pub(super) fn check(architecture: &str, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stated: Vec<(usize, &str, &str)> = architecture
        .lines()
        .enumerate()
        .flat_map(|(index, line)| statements(line).map(move |(name, count)| (index + 1, name, count)))
        .collect();
    if !stated.iter().any(|(_, name, _)| *name == COUNTED) {
        let expected = format!("the words \"`{COUNTED}` has … methods\" in one line");
        findings.push(Finding::new(ARCHITECTURE, 1, &expected, "none"));
    }
    for (line, name, count) in stated {
        let sources = files.iter().filter(|file| is_library(&file.path));
        let found = match sources.filter_map(|file| methods(&file.text, name)).next() {
            Some(found) if found.to_string() == count => continue,
            Some(found) => found.to_string(),
            None => "no such trait".to_string(),
        };
        findings.push(Finding::new(ARCHITECTURE, line, &format!("{count} methods of `{name}`"), &found));
    }
    findings
}

/// Returns the name and the number of each "`name` has number methods".
fn statements(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let ends = line.match_indices("` has ");
    ends.filter_map(|(end, words)| {
        let name = line[..end].rsplit('`').next()?;
        let (count, _) = line[end + words.len()..].split_once(" methods")?;
        (!count.contains(' ')).then_some((name, count))
    })
}

/// Returns the number of methods of a trait, if the file declares it. Relies on rustfmt's layout.
fn methods(text: &str, name: &str) -> Option<usize> {
    let declares = |line: &&str| {
        let rest = line.strip_prefix("pub trait ").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with([' ', ':', '<']))
    };
    let mut lines = text.lines().skip_while(|line| !declares(line));
    lines.next()?;
    // rustfmt puts the closing brace of an item into the first column, and its methods four columns in.
    let body = lines.take_while(|line| *line != "}");
    Some(body.filter(|line| line.starts_with("    fn ") || line.starts_with("    unsafe fn ")).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIT: &str = "\
pub trait DeviceApiExt {
    fn other(&self);
}

pub trait DeviceApi: Send {
    /// fn in a comment
    fn one(&self);

    fn two(&self) {
        fn inner() {}
    }
}

fn outside() {}
";

    fn lines(architecture: &str) -> Vec<String> {
        let source = |path: &str| SourceFile { path: path.to_string(), text: TRAIT.to_string() };
        let files = [source("xtask/src/a.rs"), source("crates/a/src/a.rs")];
        check(architecture, &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn true_numbers_pass() {
        assert_eq!(lines("`X` has two good methods; `DeviceApi` has 2 methods."), Vec::<String>::new());
    }

    #[test]
    fn wrong_numbers_unknown_traits_and_silence_are_found() {
        assert_eq!(
            lines("one\n`DeviceApi` has 3 methods, and `Gone` has 1 methods."),
            [
                "ARCHITECTURE.md:2: expected 3 methods of `DeviceApi`, found 2",
                "ARCHITECTURE.md:2: expected 1 methods of `Gone`, found no such trait",
            ]
        );
        assert_eq!(
            lines("`DeviceApi` has few methods\nand `DeviceApiExt` has 1 methods"),
            ["ARCHITECTURE.md:1: expected few methods of `DeviceApi`, found 2"]
        );
        assert_eq!(
            lines("nothing"),
            ["ARCHITECTURE.md:1: expected the words \"`DeviceApi` has … methods\" in one line, found none"]
        );
    }
}
