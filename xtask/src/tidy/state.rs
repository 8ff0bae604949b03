//! Process-wide state: the table in `ARCHITECTURE.md` lists every mutable static and every thread-local of the crates with its
//! reason, and nothing else.
//!
//! A static is mutable if its type names a cell, a lock, an atomic or a lazy value. A user-defined type that wraps one is not detected.

use std::collections::BTreeMap;

use super::{ARCHITECTURE, Finding, SourceFile, code_spans, is_library, section, sizes};

const HEADING: &str = "## Process-wide state";

/// Types with interior mutability. Those that begin with `Atomic` count too.
const CELLS: [&str; 11] = [
    "Cell",
    "Condvar",
    "LazyCell",
    "LazyLock",
    "Mutex",
    "Once",
    "OnceCell",
    "OnceLock",
    "RefCell",
    "RwLock",
    "UnsafeCell",
];

/// The line of each static or table row, by path and name.
type Statics<'a> = BTreeMap<(&'a str, &'a str), usize>;

/// Compares the table with the sources. A row is `` | `path` | `NAME`, `OTHER` | reason | ``.
pub(super) fn check(architecture: &str, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = Statics::new();
    for (line, row) in section(architecture, HEADING).filter(|(_, line)| line.starts_with("| `")) {
        match row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>()[..] {
            [path, names, reason] if !reason.is_empty() => {
                listed.extend(code_spans(names).map(|name| ((path.trim_matches('`'), name), line)));
            }
            _ => findings.push(Finding::new(ARCHITECTURE, line, "a file, its statics and a reason", row)),
        }
    }
    let sources = files.iter().filter(|file| is_library(&file.path));
    let found: Statics<'_> = sources
        .flat_map(|file| statics(&file.text).into_iter().map(|(name, line)| ((file.path.as_str(), name), line)))
        .collect();
    for ((path, name), line) in found.iter().filter(|(key, _)| !listed.contains_key(*key)) {
        let expected = format!("`{name}` in the table \"{}\" of {ARCHITECTURE}", HEADING.trim_start_matches("## "));
        findings.push(Finding::new(path, *line, &expected, "no row"));
    }
    for ((path, name), line) in listed.iter().filter(|(key, _)| !found.contains_key(*key)) {
        let expected = format!("{path} to have process-wide state `{name}`");
        findings.push(Finding::new(ARCHITECTURE, *line, &expected, "none"));
    }
    findings
}

/// Returns the mutable statics of a file, without those of its tests.
fn statics(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    // The line that closes the current `thread_local!`: a brace with the same indentation, as rustfmt writes it.
    let mut thread_local_ends = None;
    for (index, line) in text.lines().take(sizes::body_lines(text)).enumerate() {
        let code = line.trim_start();
        if code.ends_with("thread_local! {") {
            thread_local_ends = Some(format!("{}}}", &line[..line.len() - code.len()]));
        } else if thread_local_ends.as_deref() == Some(line) {
            thread_local_ends = None;
        }
        let Some((name, ty)) = declaration(code) else { continue };
        let words = || ty.split(|c: char| !c.is_alphanumeric());
        let is_cell = |word: &str| word.starts_with("Atomic") || CELLS.contains(&word);
        if thread_local_ends.is_some() || code.contains("static mut ") || words().any(is_cell) {
            found.push((name, index + 1));
        }
    }
    found
}

/// Returns the name and type of a static that a line declares.
fn declaration(code: &str) -> Option<(&str, &str)> {
    let (before, rest) = code.split_once("static ")?;
    // Excludes `&'static` in types and `static` in comments and strings.
    let is_item = before.is_empty() || before.starts_with("pub");
    let rest = rest.trim_start_matches("ref ").trim_start_matches("mut ");
    let (name, rest) = rest.split_once(": ").filter(|_| is_item)?;
    Some((name, rest.split(" =").next().unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
pub(crate) static COUNT: AtomicU64 = AtomicU64::new(0);
static TABLE: &[Mutexes] = &[];
fn f(x: &'static Mutex<()>) {
    static KEPT: OnceLock<Vec<u8>> = OnceLock::new();
}
std::thread_local! {
    /// Why.
    static DEPTH: Plain = const { Plain };
}
static AFTER: Plain = Plain;
loom::lazy_static! {
    static ref WAITING: Mutex<Vec<u8>> = Mutex::new(Vec::new());
}
#[cfg(test)]
mod tests {
    static ALONE: Mutex<()> = Mutex::new(());
}
";
    const ROWS: &str = "\
| file | state | reason |
| --- | --- | --- |
| `crates/a/src/a.rs` | `COUNT`, `KEPT` | counts |
| `crates/a/src/a.rs` | `DEPTH`, `WAITING` | of a thread |
";

    fn lines(rows: &str) -> Vec<String> {
        let file = |path: &str| SourceFile { path: path.to_string(), text: SOURCE.to_string() };
        let paths = ["crates/a/src/a.rs", "crates/a/src/tests.rs", "crates/a/tests/b.rs", "xtask/src/a.rs"];
        let page = format!("# Page\n\n{HEADING}\n{rows}\n## Next\n| `crates/a/src/a.rs` | `TABLE` | no |\n");
        check(&page, &paths.map(file)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn table_with_all_state_passes() {
        assert_eq!(lines(ROWS), Vec::<String>::new());
    }

    #[test]
    fn state_without_a_row_row_without_state_and_row_without_a_reason_are_found() {
        assert_eq!(
            lines(&ROWS.replace("`COUNT`, `KEPT`", "`KEPT`, `TABLE`").replace("| of a thread |", "| |")),
            [
                "ARCHITECTURE.md:7: expected a file, its statics and a reason, found | `crates/a/src/a.rs` | `DEPTH`, `WAITING` | |",
                "crates/a/src/a.rs:1: expected `COUNT` in the table \"Process-wide state\" of ARCHITECTURE.md, found no row",
                "crates/a/src/a.rs:8: expected `DEPTH` in the table \"Process-wide state\" of ARCHITECTURE.md, found no row",
                "crates/a/src/a.rs:12: expected `WAITING` in the table \"Process-wide state\" of ARCHITECTURE.md, found no row",
                "ARCHITECTURE.md:6: expected crates/a/src/a.rs to have process-wide state `TABLE`, found none",
            ]
        );
        assert_eq!(lines("").len(), 4);
    }
}
