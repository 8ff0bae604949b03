//! Smaller programs that still show a difference.

/// A line that stays while what is around it does: without it, a loop might not end, or a result not be determined.
const KEPT: &str = "// keep";

/// Drops lines and blocks of a program while `is_bad` says that what is left still is what is searched for. Programs
/// have a statement on each line, blocks begin with a line that ends in `{` and end with one that begins with `}`.
pub fn shrink(text: &str, mut is_bad: impl FnMut(&str) -> bool) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    loop {
        let before = lines.len();
        let mut at = lines.len();
        // From the end: what is used comes before what uses it.
        while at > 0 {
            at -= 1;
            for smaller in candidates(&lines, at) {
                if is_bad(&smaller.join("\n")) {
                    lines = smaller;
                    at = at.min(lines.len());
                    break;
                }
            }
        }
        if lines.len() == before {
            return lines.join("\n") + "\n";
        }
    }
}

/// The program without what begins at a line: a statement, a block, or only the braces of a block.
fn candidates<'a>(lines: &[&'a str], at: usize) -> Vec<Vec<&'a str>> {
    let line = lines[at].trim();
    let without = |from: usize, to: usize| [&lines[..from], &lines[to..]].concat();
    if line.starts_with('}') && line.ends_with('{') {
        // What else happens; the brace that ends it ends the rest.
        return block_end(lines, at).map(|end| without(at, end)).into_iter().collect();
    }
    let ends_a_loop = line.starts_with("continuing");
    if line.starts_with('}') || line.starts_with("//:") || line.ends_with(KEPT) || ends_a_loop {
        return Vec::new();
    }
    if !line.ends_with('{') {
        return vec![without(at, at + 1)];
    }
    let Some(end) = block_end(lines, at) else { return Vec::new() };
    vec![without(at, end + 1), [&lines[..at], &lines[at + 1..end], &lines[end + 1..]].concat()]
}

/// The line that ends the block which begins at a line: with all that follows an `if`.
fn block_end(lines: &[&str], begin: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, line) in lines.iter().enumerate().skip(begin) {
        let line = line.trim();
        depth -= usize::from(line.starts_with('}') && depth > 0);
        depth += usize::from(line.ends_with('{'));
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes() {
        let text = "//: seed 1\nfn main() {\n  let a = 1;\n  if (a) {\n    bug();\n  } else {\n    b();\n  }\n  \
                    for (;;) {\n    i++; // keep\n    c();\n  }\n}\nfn other() {\n}\n";
        let seen = shrink(text, |text| text.contains("if (a) {\n    bug();\n") && text.contains("for (;;) {\n    i++"));
        let expected = "//: seed 1\n  if (a) {\n    bug();\n  }\n  for (;;) {\n    i++; // keep\n  }\n";
        assert_eq!(seen, expected);
    }
}
