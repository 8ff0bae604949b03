//! Golden files: rewritten by one command, reviewed by a person.

use std::path::Path;

use crate::command::NamedCommand;
use crate::suite;

/// Runs the tests so that they rewrite their golden files, then prints the files that differ from the last commit.
pub(crate) fn bless(root: &Path, packages: &[String]) -> Result<(), String> {
    // Without INSTA_FORCE_PASS a test stops at its first differing golden file and leaves the following ones stale.
    let tests =
        suite::workspace_tests("bless", packages).env("INSTA_UPDATE", "always").env("INSTA_FORCE_PASS", "1").run(root);
    let args = ["status", "--porcelain", "--untracked-files=all", "--", "*.snap"];
    // Reported also if tests failed: files may have been rewritten before that.
    let status = NamedCommand::new("status", "git", &args).output(root)?;
    println!("{}", report(&status));
    tests
}

fn report(porcelain: &str) -> String {
    let files: Vec<String> = porcelain
        .lines()
        .filter_map(|line| Some((line.get(..2)?, line.get(3..)?)))
        .map(|(code, path)| format!("  {}: {path}", state(code)))
        .collect();
    if files.is_empty() {
        return "no golden file differs from the last commit".to_string();
    }
    format!("golden files that differ from the last commit; review each of them in the diff:\n{}", files.join("\n"))
}

fn state(code: &str) -> &'static str {
    match code {
        code if code.contains('D') => "deleted",
        code if code.contains('R') => "renamed",
        code if code.contains('?') || code.contains('A') => "new",
        _ => "changed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_lists_each_golden_file_with_its_state() {
        let text = report(" M a.snap\n?? b/c.snap\nA  d.snap\n D e.snap\n");
        assert!(text.contains("review each of them in the diff"), "{text}");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["  changed: a.snap", "  new: b/c.snap", "  new: d.snap", "  deleted: e.snap"]);
    }

    #[test]
    fn report_says_when_nothing_changed() {
        assert_eq!(report(""), "no golden file differs from the last commit");
    }
}
