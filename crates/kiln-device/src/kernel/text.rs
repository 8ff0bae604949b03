//! Searches the text of a kernel for locations that naga does not record, and for directives that its parser rejects.

use naga::Span;
use std::borrow::Cow;
use std::ops::Range;

/// The name of the WGSL extension for subgroup operations.
const SUBGROUPS: &str = "subgroups";

/// Replaces the `enable` directives for subgroups by spaces, and returns the location of the first.
///
/// naga's parser supports subgroup operations but rejects the directive that WGSL requires for them. Spaces keep all
/// locations valid.
pub(super) fn without_subgroups(text: &str) -> (Cow<'_, str>, Option<Span>) {
    let (mut parsed, mut found) = (Cow::Borrowed(text), None);
    if !text.contains(SUBGROUPS) {
        return (parsed, found);
    }
    let clean = without_comments(text);
    for directive in directives(&clean) {
        let Some(list) = clean[directive.clone()].strip_prefix("enable").and_then(|list| list.strip_suffix(';')) else {
            continue;
        };
        let names: Vec<&str> = list.split(',').collect();
        let is_kept = |name: &&str| ![SUBGROUPS, ""].contains(&name.trim());
        if !names.iter().any(|name| name.trim() == SUBGROUPS) {
            continue;
        }
        let Some(last) = names.iter().rposition(is_kept) else {
            found = found.or_else(|| span_in(&clean, &directive, SUBGROUPS));
            blank(parsed.to_mut(), directive);
            continue;
        };
        let mut at = directive.start + "enable".len();
        for (place, name) in names.iter().enumerate() {
            let (here, comma) = (at..at + name.len(), at + name.len());
            // Blanks the comma after a removed name, and after the last name that stays.
            if (!is_kept(name) || place == last) && place + 1 < names.len() {
                blank(parsed.to_mut(), comma..comma + 1);
            }
            if name.trim() == SUBGROUPS {
                found = found.or_else(|| span_in(&clean, &here, SUBGROUPS));
                blank(parsed.to_mut(), here);
            }
            at = comma + 1;
        }
    }
    (parsed, found)
}

/// Returns the location of the declaration of a function.
pub(super) fn function(text: &str, name: &str) -> Option<Span> {
    declaration(&without_comments(text), "fn", name).map(Span::from)
}

/// Returns the location of the declaration of a struct.
pub(super) fn structure(text: &str, name: &str) -> Option<Span> {
    declaration(&without_comments(text), "struct", name).map(Span::from)
}

/// Returns the location of an entry point's `@workgroup_size`.
pub(super) fn workgroup_size(text: &str, entry: &str) -> Option<Span> {
    let clean = without_comments(text);
    let before = &clean[..declaration(&clean, "fn", entry)?.start];
    attributes(before, "workgroup_size").last().map(Span::from)
}

/// Returns the location of the first `@location` of a function or struct (`fn`, `struct`).
pub(super) fn location(text: &str, keyword: &str, name: &str) -> Option<Span> {
    let clean = without_comments(text);
    let begin = declaration(&clean, keyword, name)?.start;
    attributes(&clean[begin..], "location").next().map(|at| Span::from(begin + at.start..begin + at.end))
}

/// Returns the location of the first occurrence of a word.
pub(super) fn word(text: &str, word: &str) -> Option<Span> {
    words(&without_comments(text), word).next().map(Span::from)
}

fn span_in(clean: &str, range: &Range<usize>, word: &str) -> Option<Span> {
    let found = words(&clean[range.clone()], word).next()?;
    Some(Span::from(range.start + found.start..range.start + found.end))
}

/// Returns the directives at the beginning of a text.
fn directives(clean: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    loop {
        let end = found.last().map_or(0, |last| last.end);
        let rest = clean[end..].trim_start();
        let begin = clean.len() - rest.len();
        let is_directive = ["enable", "requires", "diagnostic"]
            .iter()
            .any(|word| rest.strip_prefix(word).is_some_and(|after| !after.starts_with(is_part_of_word)));
        match rest.find(';') {
            Some(length) if is_directive => found.push(begin..begin + length + 1),
            _ => return found,
        }
    }
}

/// Returns the range of a declaration, from the keyword to the name.
fn declaration(clean: &str, keyword: &str, name: &str) -> Option<Range<usize>> {
    words(clean, keyword).find_map(|found| {
        let after = clean[found.end..].trim_start();
        let after = after.strip_prefix(name)?;
        (!after.starts_with(is_part_of_word)).then(|| found.start..clean.len() - after.len())
    })
}

fn attributes<'a>(clean: &'a str, name: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    words(clean, name).filter_map(|found| {
        let begin = clean[..found.start].trim_end().strip_suffix('@')?.len();
        Some(begin..found.end)
    })
}

fn words<'a>(clean: &'a str, word: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let places = clean.match_indices(word).map(|(begin, _)| begin..begin + word.len());
    places.filter(|at| !clean[..at.start].ends_with(is_part_of_word) && !clean[at.end..].starts_with(is_part_of_word))
}

pub(super) fn is_part_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Replaces comments by spaces, keeping all offsets and lines. WGSL has no string literals.
pub(super) fn without_comments(text: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('/') {
        let (code, after) = rest.split_at(at);
        let length = match after.as_bytes().get(1) {
            Some(b'/') => line_length(after),
            Some(b'*') => block_length(after),
            _ => 0,
        };
        let (comment, after) = after.split_at(length);
        clean.push_str(code);
        clean.push_str(&spaces(comment));
        rest = after;
        if length == 0 {
            clean.push('/');
            rest = &rest[1..];
        }
    }
    clean + rest
}

fn line_length(comment: &str) -> usize {
    // The line breaks of WGSL, which ends a comment at any of them.
    let is_end = |character: char| matches!(character, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    comment.find(is_end).unwrap_or(comment.len())
}

/// Returns the length of a block comment. Block comments nest.
fn block_length(comment: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(pair) = comment.as_bytes().get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" if depth == 1 => return at + 2,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
    }
    comment.len()
}

fn blank(text: &mut String, range: Range<usize>) {
    let spaces = spaces(&text[range.clone()]);
    text.replace_range(range, &spaces);
}

fn spaces(text: &str) -> String {
    // By bytes and not by characters: a multi-byte character leaves as many spaces, so that all offsets stay valid.
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgroup_directives_are_blanked() {
        let table = [
            ("enable subgroups; fn f() {}", "                  fn f() {}", Some(7)),
            ("enable f16, subgroups;", "enable f16           ;", Some(12)),
            ("enable subgroups, f16;", "enable            f16;", Some(7)),
            ("enable f16 , subgroups , g ;", "enable f16 ,             g ;", Some(13)),
            ("enable subgroups,;\n", "                  \n", Some(7)),
            ("enable\nsubgroups\n;fn f() {}", "      \n         \n fn f() {}", Some(7)),
            ("/* é */ enable // x\n subgroups; f", "/* é */            \n            f", Some(22)),
            ("diagnostic(off, a); enable subgroups;", "diagnostic(off, a);                  ", Some(27)),
            ("// enable subgroups;\nenable f16;", "// enable subgroups;\nenable f16;", None),
            ("/* /* */ enable subgroups; */ enable f16;", "/* /* */ enable subgroups; */ enable f16;", None),
            ("const enable = 1; enable subgroups;", "const enable = 1; enable subgroups;", None),
            ("enable subgroups_of_mine;", "enable subgroups_of_mine;", None),
            ("enables subgroups;", "enables subgroups;", None),
            ("enable subgroups", "enable subgroups", None),
            ("/* subgroups", "/* subgroups", None),
        ];
        for (text, expected, place) in table {
            let (parsed, found) = without_subgroups(text);
            assert_eq!(parsed, expected, "{text:?}");
            assert_eq!(found.and_then(|span| Some(span.to_range()?.start)), place, "{text:?}");
        }
    }

    #[test]
    fn locations_ignore_comments() {
        let text = "// @workgroup_size fn main\nfn main_2() {}\n@compute @ workgroup_size(workgroup_size) /* fn main */\n\
                    fn /**/ main(@location(0) x: f32) {}\n@workgroup_size(1) fn other() { f64(); }";
        let at =
            |span: Option<Span>| span.map(|span| (span.location(text).line_number, span.location(text).line_position));
        assert_eq!(at(workgroup_size(text, "main")), Some((3, 10)));
        assert_eq!(at(workgroup_size(text, "other")), Some((5, 1)));
        assert_eq!(at(workgroup_size(text, "none")), None);
        assert_eq!(at(function(text, "main")), Some((4, 1)));
        assert_eq!(at(location(text, "fn", "main")), Some((4, 14)));
        assert_eq!(at(location(text, "fn", "other")), None);
        assert_eq!(at(word(text, "f64")), Some((5, 33)));
    }
}
