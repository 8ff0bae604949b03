//! Unfinished work does not land: it is done, or it is an issue with an owner.

use super::{Finding, extension};

/// Words that mark unfinished work. They are concatenated here so that this file does not
/// contain them.
pub(super) const WORDS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
];

/// A test that is disabled without a reason, unconditionally or conditionally.
const SILENT_IGNORES: [&str; 2] = [concat!("#[ig", "nore]"), concat!(", ig", "nore)]")];

const EXTENSIONS: [&str; 5] = ["rs", "wgsl", "toml", "sh", "py"];

/// Checks a source file or a script.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    // Programs such as git hooks have no extension; their first line identifies them.
    let is_script = extension(path).is_empty() && text.starts_with("#!");
    if !is_script && !EXTENSIONS.contains(&extension(path)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in WORDS.iter().filter(|word| has_word(line, word)) {
            findings.push(Finding::new(path, index + 1, "finished work", &format!("`{word}`")));
        }
        if SILENT_IGNORES.iter().any(|ignore| line.contains(ignore)) {
            let expected = "an ignored test to say why (`ignore = \"reason\"`)";
            findings.push(Finding::new(path, index + 1, expected, "no reason"));
        }
    }
    findings
}

/// Returns whether a line contains the word, not as part of a longer one: `mktemp` templates are fine.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        // A macro's name ends with its `!`; the following characters belong to the call.
        !before.is_some_and(is_part) && (word.ends_with('!') || !after.is_some_and(is_part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_in_every_kind_of_source() {
        for word in WORDS {
            for path in ["a.rs", "a.wgsl", "a.toml", "a.sh", "a.py", ".ci/run"] {
                let findings = check(path, &format!("#!\nx; {word}(later)\n"));
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                assert_eq!(lines, [format!("{path}:2: expected finished work, found `{word}`")]);
            }
        }
    }

    #[test]
    fn test_ignored_without_a_reason_is_found() {
        for ignore in SILENT_IGNORES {
            let lines = check("a.rs", &format!("#[test]\n{ignore}\n"));
            assert_eq!(
                lines[0].to_string(),
                "a.rs:2: expected an ignored test to say why (`ignore = \"reason\"`), found no reason"
            );
        }
    }

    #[test]
    fn longer_words_reasons_and_other_files_pass() {
        let [first, .., last] = WORDS;
        let table = [
            ("a.rs", "#[ignore = \"needs a Mac\"]".to_string()),
            ("a.rs", "#[cfg_attr(miri, ignore = \"slow\")]".to_string()),
            ("a.sh", format!("mktemp /tmp/{}", "X".repeat(6))),
            ("a.rs", format!("{first}S and MY_{first} and my_{last}()")),
            ("a.md", first.to_string()),
            ("LICENSE", first.to_string()),
        ];
        for (path, text) in table {
            assert_eq!(check(path, &text), [], "{path}: {text}");
        }
    }
}
