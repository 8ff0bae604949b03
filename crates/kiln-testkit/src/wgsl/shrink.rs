//! Minimization of programs that show a difference.

/// Marks a line that stays as long as its block: without it, a loop might not end, or a result not be deterministic.
const KEPT: &str = "// keep";

/// Removes lines and blocks of a program while `is_bad` returns true for the rest. Programs have one statement per line;
/// blocks begin with a line that ends in `{` and end with one that begins with `}`.
pub fn shrink(text: &str, mut is_bad: impl FnMut(&str) -> bool) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let mut before = usize::MAX;
    while lines.join("\n").len() < before {
        before = lines.join("\n").len();
        let mut at = lines.len();
        // From the end, so that uses are removed before declarations.
        while at > 0 {
            at -= 1;
            while let Some(smaller) = candidates(&lines, at).into_iter().find(|smaller| is_bad(&smaller.join("\n"))) {
                lines = smaller;
                at = at.min(lines.len().saturating_sub(1));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Returns programs that are smaller at a line: without a statement, a block, or only the braces of a block, or with
/// an argument in place of a call.
fn candidates(lines: &[String], at: usize) -> Vec<Vec<String>> {
    let line = lines[at].trim();
    let without = |from: usize, to: usize| [&lines[..from], &lines[to..]].concat();
    let mut smaller = Vec::new();
    let is_kept = line.ends_with(KEPT) || line.starts_with("continuing");
    match (line.starts_with('}'), line.ends_with('{')) {
        _ if line.starts_with("//:") => return smaller,
        // An `else` branch. Its closing brace then ends the `if`.
        (true, true) => smaller.extend(block_end(lines, at).map(|end| without(at, end))),
        (true, false) => {}
        (false, true) if !is_kept => {
            if let Some(end) = block_end(lines, at) {
                smaller.push(without(at, end + 1));
                smaller.push([&lines[..at], &lines[at + 1..end], &lines[end + 1..]].concat());
            }
        }
        (false, _) if is_kept => {}
        (false, _) => smaller.push(without(at, at + 1)),
    }
    if is_kept {
        return smaller;
    }
    smaller.extend(simpler(&lines[at]).into_iter().map(|line| {
        let mut lines = lines.to_vec();
        lines[at] = line;
        lines
    }));
    smaller
}

/// Returns the line with each call replaced by each of its arguments. Calls that keep floats in range stay, and so do those that
/// replace lanes beyond the ends of a subgroup.
fn simpler(line: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (open, _) in line.match_indices('(') {
        let is_of_name = |letter: char| letter.is_alphanumeric() || "_<>".contains(letter);
        let begin = line[..open].trim_end_matches(is_of_name).len();
        let (name, mut depth, mut from) = (&line[begin..open], 0, open + 1);
        // The result of a function with barriers may be uniform where its arguments are not.
        if name.is_empty() || name.starts_with('q') || name == "clamp" || name.starts_with("together") {
            continue;
        }
        let mut arguments = Vec::new();
        for (at, letter) in line.char_indices().skip(open) {
            depth += i32::from(matches!(letter, '(' | '[')) - i32::from(matches!(letter, ')' | ']'));
            if depth == 0 || (depth == 1 && letter == ',') {
                arguments.push(line[from..at].trim());
                from = at + 1;
            }
            if depth == 0 {
                let rest = &line[at + 1..];
                if name == "select" && arguments.iter().any(|argument| argument.starts_with("subgroupShuffle")) {
                    break;
                }
                lines.extend(arguments.iter().map(|argument| format!("{}{argument}{rest}", &line[..begin])));
                break;
            }
        }
    }
    lines
}

/// Returns the line that ends the block that begins at a line, including the `else` branches of an `if`.
fn block_end(lines: &[String], begin: usize) -> Option<usize> {
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
    fn lines_that_are_not_needed_are_removed() {
        let text = "//: seed 1\nfn main() {\n  let a = 1;\n  if (a) {\n    bug();\n  } else {\n    b();\n  }\n  \
                    for (;;) {\n    i++; // keep\n    c();\n  }\n}\nfn other() {\n}\n";
        let seen = shrink(text, |text| text.contains("if (a) {\n    bug();\n") && text.contains("for (;;) {\n    i++"));
        let expected = "//: seed 1\n  if (a) {\n    bug();\n  }\n  for (;;) {\n    i++; // keep\n  }\n";
        assert_eq!(seen, expected);
    }

    #[test]
    fn arguments_take_the_place_of_calls() {
        assert_eq!(
            simpler("x = f(a[1, 2], vec2<f32>(b));"),
            ["x = a[1, 2];", "x = vec2<f32>(b);", "x = f(a[1, 2], b);"]
        );
        assert_eq!(simpler("x = (a + qf1(b));"), Vec::<String>::new());
        assert_eq!(simpler("x = together1(lid);"), Vec::<String>::new());
        assert_eq!(simpler("x = select(0u, subgroupShuffleUp(a), lane > 0u);"), ["x = select(0u, a, lane > 0u);"]);
        assert_eq!(shrink("x = min(max(bug, 1), 2);", |text| text.contains("bug")), "x = bug;\n");
    }
}
