//! Finds the shapes of programs with barriers in their text. A test requires each of them.

use std::collections::BTreeSet;

/// A statement or the head of a block.
struct Line<'a> {
    text: &'a str,
    /// The enclosing blocks, as the indices of their first lines; the function is the first.
    around: Vec<usize>,
}

/// The shapes that tests require.
pub(super) const SHAPES: [&str; 21] = [
    "a result controls an if",
    "a result controls a switch",
    "a result ends a loop",
    "a result sets the iterations of a loop",
    "a result is an argument",
    "a stored result controls a branch",
    "all return between barriers",
    "all return in a loop between barriers",
    "all leave a loop between barriers",
    "all return right after a barrier",
    "some return after the last barrier",
    "an index is written before a return of all",
    "a pointer into a variable of the function outlives a barrier",
    "a pointer into a private variable outlives a barrier",
    "a pointer into an argument outlives a barrier",
    "a pointer into the workgroup outlives a barrier",
    "a pointer into a buffer outlives a barrier",
    "a function with barriers calls another",
    "a call in a loop",
    "a call in a loop with other barriers",
    "two calls of one function",
];

/// Returns the shapes of a program.
pub(super) fn shapes_of(program: &str) -> BTreeSet<&'static str> {
    let (mut shapes, mut body) = (BTreeSet::new(), Vec::new());
    for line in program.lines() {
        body.push(line.trim());
        if line == "}" {
            let begin = body.iter().position(|line| line.starts_with("fn ") || line.starts_with("@compute"));
            if let Some(begin) = begin {
                of_function(&read(&body[begin..]), &mut shapes);
            }
            body.clear();
        }
    }
    shapes
}

fn read<'a>(texts: &[&'a str]) -> Vec<Line<'a>> {
    let mut around = Vec::new();
    let mut lines = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        if text.starts_with('}') {
            around.pop();
        }
        lines.push(Line { text, around: around.clone() });
        if text.ends_with('{') {
            around.push(at);
        }
    }
    lines
}

/// Returns whether the line has a barrier.
fn waits(line: &Line<'_>) -> bool {
    line.text.contains("Barrier();") || line.text.contains("workgroupUniformLoad") || calls(line)
}

/// Returns whether the line calls a function with barriers.
fn calls(line: &Line<'_>) -> bool {
    line.text.contains("together") && !line.text.starts_with("fn ")
}

fn is_loop(line: &Line<'_>) -> bool {
    ["for ", "while ", "loop "].iter().any(|head| line.text.starts_with(head))
}

/// Iterates over the names in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

fn of_function(lines: &[Line<'_>], shapes: &mut BTreeSet<&'static str>) {
    let Some(last) = lines.iter().rposition(waits) else { return };
    let waits_after = |at: usize| at < last;
    let (mut results, mut called) = (BTreeSet::new(), BTreeSet::new());
    for (at, line) in lines.iter().enumerate() {
        let text = line.text;
        let in_loop = line.around.iter().find(|begin| is_loop(&lines[**begin]));
        let head = line.around.last().map_or("", |begin| lines[*begin].text);
        of_control(text, calls(line), names(text).any(|name| results.contains(name)), shapes);
        if calls(line) {
            for name in names(text).filter(|name| name.starts_with("together")) {
                if !called.insert(name) {
                    shapes.insert("two calls of one function");
                }
            }
            if lines[0].text.starts_with("fn together") {
                shapes.insert("a function with barriers calls another");
            }
            if let Some(begin) = in_loop {
                shapes.insert("a call in a loop");
                if lines.iter().any(|other| other.around.contains(begin) && waits(other) && !calls(other)) {
                    shapes.insert("a call in a loop with other barriers");
                }
            }
            results.extend(text.strip_prefix("let ").and_then(|rest| names(rest).next()));
        }
        let is_function = lines[0].text.starts_with("fn together");
        if text.starts_with("return") && line.around.len() > 1 && is_function {
            if waits_after(at) {
                shapes.insert("all return between barriers");
                if lines[at - 1].text.contains("Barrier();") {
                    shapes.insert("all return right after a barrier");
                }
                if in_loop.is_some_and(|begin| lines.iter().any(|other| other.around.contains(begin) && waits(other))) {
                    shapes.insert("all return in a loop between barriers");
                }
                if names(lines[at - 1].text).next().is_some_and(|name| name.starts_with("gat")) {
                    shapes.insert("an index is written before a return of all");
                }
            } else if names(head).any(|name| name == "lid" || name == "me") {
                shapes.insert("some return after the last barrier");
            }
        }
        let leaves = text == "break;" || text == "continue;";
        // Jumps of single invocations are in loops without barriers.
        let inner = line.around.iter().rev().find(|begin| is_loop(&lines[**begin]));
        if leaves && inner.is_some_and(|begin| lines.iter().any(|other| other.around.contains(begin) && waits(other))) {
            shapes.insert("all leave a loop between barriers");
        }
        of_pointer(lines, at, shapes);
    }
}

/// Finds what a branch or loop depends on.
fn of_control(text: &str, is_call: bool, is_kept: bool, shapes: &mut BTreeSet<&'static str>) {
    let heads = [
        ("if ", "a result controls an if"),
        ("switch ", "a result controls a switch"),
        ("break if ", "a result ends a loop"),
        ("for ", "a result sets the iterations of a loop"),
        ("while ", "a result sets the iterations of a loop"),
    ];
    for (head, shape) in heads {
        if text.starts_with(head) && is_call {
            shapes.insert(shape);
        }
        if text.starts_with(head) && is_kept {
            shapes.insert("a stored result controls a branch");
        }
    }
    if is_call && text.match_indices("together").count() > 1 && text.contains(", together") {
        shapes.insert("a result is an argument");
    }
}

/// Finds a pointer that is created before a barrier and used after it.
fn of_pointer(lines: &[Line<'_>], at: usize, shapes: &mut BTreeSet<&'static str>) {
    let Some((name, target)) = lines[at].text.strip_prefix("let ").and_then(|rest| rest.split_once(" = &")) else {
        return;
    };
    let Some(barrier) = lines.iter().skip(at).position(waits) else { return };
    if !target.contains('[') || !lines[at + barrier..].iter().any(|line| names(line.text).any(|used| used == name)) {
        return;
    }
    shapes.insert(match target.as_bytes()[0] {
        b'v' => "a pointer into a variable of the function outlives a barrier",
        b'g' => "a pointer into a private variable outlives a barrier",
        b'(' => "a pointer into an argument outlives a barrier",
        b'w' => "a pointer into the workgroup outlives a barrier",
        _ => "a pointer into a buffer outlives a barrier",
    });
}
