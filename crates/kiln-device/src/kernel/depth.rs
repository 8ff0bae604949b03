//! Limits the nesting depth of a WGSL text before it is parsed.
//!
//! naga and the compilers recurse over the nesting on the stack, and a stack overflow ends the process.

use super::text::{is_part_of_word, without_comments};
use naga::Span;

/// The maximum depth that is parsed. It fits a stack of 2 MiB, also in a debug build.
pub(super) const MAX_DEPTH: usize = 1000;
/// The maximum number of declarations, because each may depend on the next.
pub(super) const MAX_DECLARATIONS: usize = 2000;
/// The weight of a bracket, and of an `else` branch: a parser calls several functions for each.
const BRACKET: usize = 4;
const ELSE: usize = 8;

/// Returns the nesting depth of a text and the first location that has it.
///
/// Operators, members and indices count as well, because several in a row are nested in the syntax tree. A text with
/// too many declarations counts as too deep.
pub(super) fn deepest(text: &str) -> (usize, Span) {
    let clean = without_comments(text);
    let mut nesting = Nesting { open: vec![0], counted: 0, suffixes: 0 };
    let mut declarations = 0;
    let mut deepest = (0, Span::UNDEFINED);
    let (mut is_after_block, mut at) = (false, 0);
    while let Some(character) = clean[at..].chars().next() {
        let word = clean[at..].find(|character| !is_part_of_word(character)).unwrap_or(clean.len() - at);
        match character {
            _ if clean[at..at + word] == *"else" => nesting.count(ELSE),
            // A statement begins after a block, without a semicolon.
            _ if word > 0 && is_after_block => nesting.end_statement(),
            '(' | '[' | '{' => nesting.open.push(0),
            // Calls, indices and members in a row (`a.b[c].d`) nest to the left in the syntax tree. An operator ends
            // the row (`count`).
            ')' | ']' => {
                nesting.close();
                nesting.suffixes += 1;
            }
            '.' => nesting.suffixes += 1,
            '}' => nesting.close(),
            ',' | ';' => nesting.end_statement(),
            '+' | '-' | '*' | '/' | '%' | '&' | '|' | '^' | '!' | '~' | '<' | '>' | '=' => nesting.count(1),
            _ => {}
        }
        declarations += usize::from(matches!(character, ';' | '}') && nesting.open.len() == 1);
        if declarations > MAX_DECLARATIONS {
            return (MAX_DEPTH + 1, Span::from(at..at + 1));
        }
        let end = at + word.max(character.len_utf8());
        if nesting.depth() > deepest.0 {
            deepest = (nesting.depth(), Span::from(at..end));
        }
        is_after_block = character == '}' || is_after_block && character.is_whitespace();
        at = end;
    }
    deepest
}

/// The weight in each open bracket since the last comma or statement, their sum, and the members after the last
/// operand.
struct Nesting {
    open: Vec<usize>,
    counted: usize,
    suffixes: usize,
}

impl Nesting {
    fn count(&mut self, by: usize) {
        if let Some(top) = self.open.last_mut() {
            *top += by;
            self.counted += by;
            self.suffixes = 0;
        }
    }

    fn end_statement(&mut self) {
        self.counted -= self.open.last_mut().map_or(0, std::mem::take);
        self.suffixes = 0;
    }

    /// Unmatched brackets are left to the parser, which reports them.
    fn close(&mut self) {
        if self.open.len() > 1 {
            self.counted -= self.open.pop().unwrap_or(0);
        }
    }

    fn depth(&self) -> usize {
        self.counted + self.suffixes + BRACKET * (self.open.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_syntax_counts_and_adjacent_syntax_does_not() {
        let is_deep = |text: &str| deepest(text).0 > MAX_DEPTH;
        for (unit, fits) in [
            ("x + ", 1000),
            ("~", 1000),
            ("(", 250),
            ("{ ", 250),
            ("} else if (x) {", 124),
            (".x", 1000),
            ("[0]", 996),
            ("f(x * ", 200),
        ] {
            assert!(!is_deep(&unit.repeat(fits)), "{unit}");
            assert!(is_deep(&unit.repeat(fits + 2)), "{unit}");
        }
        for unit in
            ["x + y;", "x * x,", "f(x, y)[0].x; ", "{ x = y; } ", "if (x < y) { } else { } ", "/* + */", "// (\n", "é "]
        {
            assert!(!is_deep(&format!("{{{}", unit.repeat(5000))), "{unit}");
        }
        // At the top level these are declarations.
        for unit in ["const x = 1;", "struct S { x: u32 }"] {
            assert!(!is_deep(&unit.repeat(2000)) && is_deep(&unit.repeat(2001)), "{unit}");
        }
        let text = format!("fn f() {{\n  y = {}1;\n}}", "1 + ".repeat(2000));
        assert_eq!(deepest(&text).1.location(&text).line_number, 2);
    }
}
