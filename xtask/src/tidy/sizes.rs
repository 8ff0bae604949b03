//! File sizes: a long file does more than one thing.

use super::{Finding, extension};

/// Maximum body lines of a Rust file; tests do not count.
const MAX_BODY_LINES: usize = 600;

/// The excuse must be within these first lines, so that a reader sees it before the table.
const EXCUSE_WITHIN_LINES: usize = 20;

const EXCUSE: &str = "// tidy: long table, ";

/// Checks the length of a Rust file's body.
pub(super) fn check(path: &str, text: &str) -> Option<Finding> {
    if extension(path) != "rs" || is_excused(text) {
        return None;
    }
    let body_lines = body_lines(text);
    (body_lines > MAX_BODY_LINES).then(|| {
        let expected = format!("at most {MAX_BODY_LINES} lines before the tests (or `{EXCUSE}<reason>` at the top)");
        Finding::new(path, MAX_BODY_LINES + 1, &expected, &body_lines.to_string())
    })
}

fn is_excused(text: &str) -> bool {
    text.lines()
        .take(EXCUSE_WITHIN_LINES)
        .filter_map(|line| line.strip_prefix(EXCUSE))
        .any(|reason| !reason.trim().is_empty())
}

/// Returns the number of lines before the last `#[cfg(test)]` whose item is `mod tests {`; all lines if there is none.
pub(super) fn body_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let starts_tests = |index: &usize| {
        let mut item = lines[*index..].iter().skip_while(|line| line.starts_with("#["));
        lines[*index] == "#[cfg(test)]" && item.next().is_some_and(|line| line.starts_with("mod tests {"))
    };
    (0..lines.len()).rev().find(starts_tests).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str = "#[cfg(test)]\nmod tests {\n    // one\n    // two\n}\n";

    fn body(lines: usize) -> String {
        "x();\n".repeat(lines)
    }

    #[test]
    fn body_at_the_limit_passes_whatever_its_tests_are() {
        assert_eq!(check("a.rs", &(body(600) + TESTS)), None);
        assert_eq!(check("a.rs", &(body(600) + &TESTS.replace("\nmod", "\n#[expect(x)]\nmod"))), None);
        assert_eq!(check("a.md", &body(700)), None);
    }

    #[test]
    fn body_above_the_limit_is_found() {
        let line = check("src/a.rs", &(body(601) + TESTS)).unwrap().to_string();
        assert_eq!(
            line,
            "src/a.rs:601: expected at most 600 lines before the tests (or `// tidy: long table, <reason>` at the \
             top), found 601"
        );
    }

    #[test]
    fn only_the_final_test_module_is_left_out() {
        assert!(check("a.rs", &(body(300) + TESTS + &body(300) + TESTS)).is_some());
        assert!(check("a.rs", &(body(598) + "#[cfg(test)]\nuse x;\n" + &body(1))).is_some());
        assert!(check("a.rs", &(body(601) + "    #[cfg(test)]\n    mod tests {\n")).is_some());
    }

    #[test]
    fn excuse_needs_a_reason_and_stands_at_the_top() {
        let with_excuse = |before: usize, excuse: &str| check("a.rs", &(body(before) + excuse + "\n" + &body(700)));
        assert_eq!(with_excuse(19, "// tidy: long table, one row per op"), None);
        assert!(with_excuse(20, "// tidy: long table, one row per op").is_some());
        assert!(with_excuse(0, "// tidy: long table, ").is_some());
        assert!(with_excuse(0, "// tidy: long table").is_some());
    }
}
