//! The lexer of expressions.

use super::fault::{Fault, Span};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TokenKind {
    Number(f64),
    /// A variable, a function, a dtype, `inf`; the text is in the expression.
    Name,
    /// A string in single or double quotes.
    Text,
    /// An operator or a bracket, from [`SYMBOLS`].
    Symbol(&'static str),
    /// After the last token, so that there is always a next one.
    End,
}

/// Ordered so that a symbol comes before its prefixes.
const SYMBOLS: [&str; 22] = [
    "...", "**", "<=", ">=", "==", "!=", "+", "-", "*", "/", "@", "<", ">", "=", "(", ")", "[", "]", ",", ".", ";", ":",
];

/// Splits an expression into tokens; the last one is [`TokenKind::End`].
pub(super) fn lex(source: &str) -> Result<Vec<Token>, Fault> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = source[at..].trim_start();
        at = source.len() - rest.len();
        let (kind, bytes) = word(rest).map_err(|(bytes, message)| Fault::new((at..at + bytes).into(), message))?;
        tokens.push(Token { kind, span: (at..at + bytes).into() });
        if kind == TokenKind::End {
            return Ok(tokens);
        }
        at += bytes;
    }
}

/// Lexes the first token of a text without leading space, and returns its length in bytes; or the length of an invalid one, and why.
fn word(rest: &str) -> Result<(TokenKind, usize), (usize, String)> {
    let Some(first) = rest.chars().next() else { return Ok((TokenKind::End, 0)) };
    if first.is_ascii_digit() {
        let bytes = number_bytes(rest);
        return match rest[..bytes].parse() {
            Ok(number) if f64::is_finite(number) => Ok((TokenKind::Number(number), bytes)),
            _ => Err((bytes, format!("expected a number below 1e308, found `{}`", &rest[..bytes]))),
        };
    }
    if is_name_start(first) {
        return Ok((TokenKind::Name, run(rest, |c| is_name_start(c) || c.is_ascii_digit())));
    }
    if first == '\'' || first == '"' {
        return match rest[1..].find(first) {
            Some(inside) => Ok((TokenKind::Text, inside + 2)),
            None => Err((rest.len(), format!("expected `{first}` at the end of the text, found none"))),
        };
    }
    match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
        Some(symbol) => Ok((TokenKind::Symbol(symbol), symbol.len())),
        None => {
            let found = first.escape_debug();
            Err((first.len_utf8(), format!("expected a name, a number or an operator, found `{found}`")))
        }
    }
}

/// Returns whether the whole text is a name.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(|c| is_name_start(c) || c.is_ascii_digit())
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// Returns the length of digits, fraction and exponent. The point of `1.exp()` is not a fraction, nor the `e` of `1em` an exponent.
fn number_bytes(rest: &str) -> usize {
    let digits = |from: usize| from + run(&rest[from..], |c| c.is_ascii_digit());
    let mut end = digits(0);
    if let Some(fraction) = rest[end..].strip_prefix('.')
        // In `2.exp()` the dot calls a method, and in `0...` it belongs to the ellipsis.
        && !fraction.starts_with(|c: char| is_name_start(c) || c == '.')
    {
        end = digits(end + 1);
    }
    if let Some(exponent) = rest[end..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        if exponent[sign..].starts_with(|c: char| c.is_ascii_digit()) {
            end = digits(end + 1 + sign);
        }
    }
    end
}

fn run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        lex(source).unwrap().iter().map(|token| &source[token.span.start..token.span.end]).collect()
    }

    #[test]
    fn expressions_fall_into_words() {
        let table: [(&str, &[&str]); 8] = [
            ("", &[""]),
            (" relu(a*b+1) ", &["relu", "(", "a", "*", "b", "+", "1", ")", ""]),
            ("a**-b<=c!=d==e", &["a", "**", "-", "b", "<=", "c", "!=", "d", "==", "e", ""]),
            ("x[...,1:]\n;y=2", &["x", "[", "...", ",", "1", ":", "]", ";", "y", "=", "2", ""]),
            ("1.5e-3 1. 1.exp 1.5.exp 1e5", &["1.5e-3", "1.", "1", ".", "exp", "1.5", ".", "exp", "1e5", ""]),
            ("1e 2E+ x_1 _T", &["1", "e", "2", "E", "+", "x_1", "_T", ""]),
            ("'ij,jk' \"it's\"", &["'ij,jk'", "\"it's\"", ""]),
            ("\u{a0}a\u{2003}", &["a", ""]),
        ];
        for (source, expected) in table {
            assert_eq!(words(source), expected, "{source}");
        }
        let kinds: Vec<TokenKind> = lex("0.25 x 'y' @").unwrap().into_iter().map(|token| token.kind).collect();
        use TokenKind::{End, Name, Number, Symbol, Text};
        assert_eq!(kinds, [Number(0.25), Name, Text, Symbol("@"), End]);
    }

    #[test]
    fn invalid_tokens_are_named() {
        let table = [
            ("a + é", 4..6, "expected a name, a number or an operator, found `é`"),
            ("a $", 2..3, "expected a name, a number or an operator, found `$`"),
            ("a\0", 1..2, "expected a name, a number or an operator, found `\\0`"),
            ("1e999", 0..5, "expected a number below 1e308, found `1e999`"),
            ("f('x)", 2..5, "expected `'` at the end of the text, found none"),
        ];
        for (source, span, message) in table {
            assert_eq!(lex(source), Err(Fault::new(span.into(), message)), "{source}");
        }
    }

    /// A symbol after one of its prefixes would never match.
    #[test]
    fn every_symbol_is_a_word() {
        for symbol in SYMBOLS {
            assert_eq!(words(symbol), [symbol, ""]);
        }
    }
}
