//! Links: a relative Markdown link points to a file in the repository.

use super::{Finding, extension};

/// Checks the relative links of a Markdown file against the repository's paths.
/// Files that git ignores do not count, because other clones lack them.
pub(super) fn check(path: &str, text: &str, paths: &[&str]) -> Vec<Finding> {
    if extension(path) != "md" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut fence = None;
    for (index, line) in text.lines().enumerate() {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            // The other mark inside a fence is text: a code block may show Markdown.
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => {
                for target in targets(&without_code(line)) {
                    if !is_reachable(path, &target, paths) {
                        let expected = format!("the link `{target}` to point to a file of this repository");
                        findings.push(Finding::new(path, index + 1, &expected, "no such file"));
                    }
                }
            }
        }
    }
    findings
}

/// Removes code spans: links in them are examples.
fn without_code(line: &str) -> String {
    let mut pieces = line.split('`');
    let mut kept = pieces.next().unwrap_or_default().to_string();
    while let Some(code) = pieces.next() {
        match pieces.next() {
            Some(text) => kept.push_str(text),
            // An unmatched backtick is a plain character.
            None => kept.push_str(code),
        }
    }
    kept
}

/// Returns the targets of `[text](target)` and of a `[label]: target` line.
fn targets(line: &str) -> Vec<String> {
    let mut found: Vec<&str> = Vec::new();
    for (start, _) in line.match_indices("](") {
        found.push(inside_parentheses(&line[start + 2..]));
    }
    if let Some((label, target)) = line.trim_start().split_once("]: ")
        && label.starts_with('[')
        && !label.starts_with("[^")
    {
        found.push(target);
    }
    found.into_iter().map(address).collect()
}

fn inside_parentheses(rest: &str) -> &str {
    let mut depth = 0;
    for (index, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return &rest[..index],
            ')' => depth -= 1,
            _ => {}
        }
    }
    rest
}

/// Returns the path of a link target: without a title and angle brackets, and with spaces for `%20`.
fn address(target: &str) -> String {
    let target = target.trim();
    let bare = match target.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((inside, _)) => inside,
        None => target.split_whitespace().next().unwrap_or_default(),
    };
    bare.replace("%20", " ")
}

fn is_reachable(from: &str, target: &str, paths: &[&str]) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    if file.is_empty() || has_scheme(file) {
        return true;
    }
    let base = from.rsplit_once('/').map_or("", |(dir, _)| dir);
    resolve(base, file).is_some_and(|full| {
        let dir = format!("{full}/");
        full.is_empty() || paths.iter().any(|path| *path == full || path.starts_with(&dir))
    })
}

fn has_scheme(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    })
}

/// Returns the path from the repository root, or `None` if the target lies outside the repository.
fn resolve(base: &str, target: &str) -> Option<String> {
    let (base, target) = match target.strip_prefix('/') {
        Some(from_root) => ("", from_root),
        None => (base, target),
    };
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 4] = ["README.md", "docs/a.md", "docs/b (1).md", "docs/pictures/one two.svg"];

    fn lines(text: &str) -> Vec<String> {
        check("docs/a.md", text, &PATHS).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        for text in [
            "[a](a.md) and [`code`](../README.md#part)",
            "[root](/README.md) [folder](pictures/) [up](..) [here](#part)",
            "[web](https://example.org/gone.md) [mail](mailto:a@example.org)",
            "![picture](pictures/one%20two.svg \"title\") [b](<b (1).md>)",
            "[b](b%20(1).md)",
            "[label]: ../README.md\n[^note]: gone.md is only a word here",
            "`[shown](gone.md)`",
            "```\n[shown](gone.md)\n~~~\n[shown](gone.md)\n```\n[a](a.md)",
        ] {
            assert_eq!(lines(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(check("a.rs", "[a](gone.md)", &PATHS), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for (text, line, target) in [
            ("[a](gone.md)", 1, "gone.md"),
            ("[a](a.md) [b](gone.md#part)", 1, "gone.md#part"),
            ("one\n[`b`](README.md)", 2, "README.md"),
            ("![b](pictures/on)", 1, "pictures/on"),
            ("[out](../../other/README.md)", 1, "../../other/README.md"),
            ("[label]: gone.md", 1, "gone.md"),
            ("```\n```\n[a](gone.md)", 3, "gone.md"),
            ("an odd ` and [a](gone.md)", 1, "gone.md"),
        ] {
            assert_eq!(
                lines(text),
                [format!(
                    "docs/a.md:{line}: expected the link `{target}` to point to a file of this repository, \
                     found no such file"
                )],
                "{text}"
            );
        }
    }
}
