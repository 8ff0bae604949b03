//! How deep a text is nested, before a parser goes down into it: naga and compilers do so on the stack, whose end is the end of the process.

use super::text::{is_part_of_word, without_comments};
use naga::Span;

/// The most that is parsed. A thread of 2 MiB has room for it, also in a debug build.
pub(super) const MAX_DEPTH: usize = 1000;
/// The most declarations of a text: each may need the next one.
pub(super) const MAX_DECLARATIONS: usize = 2000;
/// What a bracket counts, and a branch behind `else`: several functions of a parser call each other for it.
const BRACKET: usize = 4;
const ELSE: usize = 8;

/// How deep a text is nested, and where it is so first. Operators, members and indices count: of several behind each other, one is inside of
/// the other. A text of too many declarations is too deep.
pub(super) fn deepest(text: &str) -> (usize, Span) {
    let clean = without_comments(text);
    let mut nesting = Nesting { open: vec![0], counted: 0, behind: 0 };
    let mut declarations = 0;
    let mut deepest = (0, Span::UNDEFINED);
    let (mut is_behind_block, mut at) = (false, 0);
    while let Some(character) = clean[at..].chars().next() {
        let word = clean[at..].find(|character| !is_part_of_word(character)).unwrap_or(clean.len() - at);
        match character {
            _ if clean[at..at + word] == *"else" => nesting.count(ELSE),
            // A statement begins, without a semicolon before it.
            _ if word > 0 && is_behind_block => nesting.forget(),
            '(' | '[' | '{' => nesting.open.push(0),
            ')' | ']' => {
                nesting.close();
                nesting.behind += 1;
            }
            '.' => nesting.behind += 1,
            '}' => nesting.close(),
            ',' | ';' => nesting.forget(),
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
        is_behind_block = character == '}' || is_behind_block && character.is_whitespace();
        at = end;
    }
    deepest
}

/// What counts in each open bracket since the last comma or statement, their sum, and the members behind the last operand.
struct Nesting {
    open: Vec<usize>,
    counted: usize,
    behind: usize,
}

impl Nesting {
    fn count(&mut self, by: usize) {
        if let Some(top) = self.open.last_mut() {
            *top += by;
            self.counted += by;
            self.behind = 0;
        }
    }

    fn forget(&mut self) {
        self.counted -= self.open.last_mut().map_or(0, std::mem::take);
        self.behind = 0;
    }

    /// A bracket that was never opened is the parser's to tell.
    fn close(&mut self) {
        if self.open.len() > 1 {
            self.counted -= self.open.pop().unwrap_or(0);
        }
    }

    fn depth(&self) -> usize {
        self.counted + self.behind + BRACKET * (self.open.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_of_each_other_counts_and_what_is_beside_does_not() {
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
        // At the outside they are declarations.
        for unit in ["const x = 1;", "struct S { x: u32 }"] {
            assert!(!is_deep(&unit.repeat(2000)) && is_deep(&unit.repeat(2001)), "{unit}");
        }
        let text = format!("fn f() {{\n  y = {}1;\n}}", "1 + ".repeat(2000));
        assert_eq!(deepest(&text).1.location(&text).line_number, 2);
    }
}
