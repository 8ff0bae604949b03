//! Errors of an expression with their spans.

use kiln::function::Dynamic;
use std::fmt::Write;
use std::ops::Range;

/// A byte range of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Span {
    /// Returns the span from the start of this one to the end of another.
    pub(super) fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end }
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// An error of an expression: what was expected, what was found, and the span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) span: Span,
    pub(super) message: String,
}

/// Maximum characters of a printed line; longer lines are cut around the fault.
const MAX_SHOWN: usize = 100;

impl Fault {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// Creates a fault for an unexpected value.
    pub(super) fn instead_of(expected: &str, found: &Dynamic, span: Span) -> Self {
        Self::new(span, format!("expected {expected}, found {found}"))
    }

    /// Formats the message, the line, and a mark under the span.
    pub(super) fn render(&self, source: &str) -> String {
        // A span may point beyond the end, or into a character after a limit in bytes; slicing there would panic.
        let at = |byte: usize| source.floor_char_boundary(byte.min(source.len()));
        let (start, end) = (at(self.span.start), at(self.span.end));
        let line_start = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |newline| start + newline);
        let count = |range: Range<usize>| source[range].chars().count();
        let (column, marked) = (count(line_start..start), count(start..end.clamp(start, line_end)).max(1));

        let mut place = format!("column {}", column + 1);
        if source.trim_end().contains('\n') {
            let line = source[..start].matches('\n').count() + 1;
            place = format!("line {line}, {place}");
        }
        // Replaced, so that a control character takes one column and cannot control the terminal.
        let line = source[line_start..line_end].chars().map(|c| if c.is_control() { '?' } else { c });
        let skipped = if count(line_start..line_end) > MAX_SHOWN { column.saturating_sub(MAX_SHOWN / 2) } else { 0 };
        let mut shown: String = line.clone().skip(skipped).take(MAX_SHOWN).collect();
        if skipped > 0 {
            shown.replace_range(..shown.chars().next().map_or(0, char::len_utf8), "…");
        }
        if line.count() > skipped + MAX_SHOWN {
            shown.push('…');
        }
        let mut text = format!("{place}: {}\n  {shown}\n  ", self.message);
        let (before, tail) = (column - skipped, (marked - 1).min(MAX_SHOWN + skipped - column));
        // Writing to a string does not fail.
        let _ = write!(text, "{}^{}", " ".repeat(before), "~".repeat(tail));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_under_the_part() {
        let table = [
            ("a + b", 4..5, "column 5: no\n  a + b\n      ^"),
            ("a + b", 0..5, "column 1: no\n  a + b\n  ^~~~~"),
            ("a +", 3..3, "column 4: no\n  a +\n     ^"),
            ("", 0..0, "column 1: no\n  \n  ^"),
            ("µ + é", 5..7, "column 5: no\n  µ + é\n      ^"),
            ("a\t+ b", 2..3, "column 3: no\n  a?+ b\n    ^"),
            ("a;\nb + c", 3..8, "line 2, column 1: no\n  b + c\n  ^~~~~"),
            ("a +\nb", 0..5, "line 1, column 1: no\n  a +\n  ^~~"),
            ("a\n", 0..1, "column 1: no\n  a\n  ^"),
            // Out of range, or within a character: printed nevertheless.
            ("a", 7..9, "column 2: no\n  a\n   ^"),
            ("µ", 1..2, "column 1: no\n  µ\n  ^"),
        ];
        for (source, span, expected) in table {
            assert_eq!(Fault::new(span.into(), "no").render(source), expected, "{source:?}");
        }
    }

    #[test]
    fn long_lines_are_shown_around_the_fault() {
        let source = "x+".repeat(500) + "y" + &"+z".repeat(500);
        let shown = Fault::new((1000..1001).into(), "no").render(&source);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "column 1001: no");
        assert_eq!((lines[1].chars().count(), lines[1].chars().nth(lines[2].len() - 1)), (MAX_SHOWN + 3, Some('y')));
        assert!(lines[1].starts_with("  …+x") && lines[1].ends_with("+…"), "{shown}");
        let whole = Fault::new((0..source.len()).into(), "no").render(&source);
        assert!(whole.lines().all(|line| line.chars().count() <= MAX_SHOWN + 3), "{whole}");
    }
}
