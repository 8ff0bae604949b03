//! Parses tokens into expressions, by precedence climbing.

use super::ast::{Argument, Binding, Expr, ExprId, ExprKind, Item, Operator, Script, Statement, Word};
use super::fault::{Fault, Span};
use super::lex::{Token, TokenKind, lex};

const MAX_BYTES: usize = 64 << 10;
/// Maximum nesting of brackets, signs and powers, each of which uses stack.
const MAX_NESTING: usize = 100;

/// Parses statements separated by `;`.
pub(super) fn parse(source: &str) -> Result<Script, Fault> {
    if source.len() > MAX_BYTES {
        let message = format!("expected an expression of at most {MAX_BYTES} bytes, found {}", source.len());
        return Err(Fault::new((MAX_BYTES..MAX_BYTES).into(), message));
    }
    let tokens = lex(source)?;
    let mut parser = Parser { source, tokens: &tokens, next: 0, nesting: 0, exprs: Vec::new() };
    let statements = parser.statements()?;
    Ok(Script { exprs: parser.exprs, statements })
}

struct Parser<'a> {
    source: &'a str,
    /// The last token is the end.
    tokens: &'a [Token],
    next: usize,
    nesting: usize,
    exprs: Vec<Expr>,
}

impl Parser<'_> {
    fn statements(&mut self) -> Result<Vec<Statement>, Fault> {
        let mut statements = Vec::new();
        loop {
            let target = self.name_before("=");
            statements.push(Statement { target, value: self.expression(Binding::Comparison)? });
            let more = self.eat(";").is_some();
            if self.kind() == TokenKind::End {
                return Ok(statements);
            }
            if !more {
                return Err(self.unexpected("an operator, `;` or the end"));
            }
        }
    }

    /// Parses a value and the following operators that bind at least as tightly.
    fn expression(&mut self, loosest: Binding) -> Result<ExprId, Fault> {
        self.nested(|parser| {
            let mut left = match parser.eat("-") {
                Some(sign) => {
                    let operand = parser.expression(Binding::Sign)?;
                    parser.expr(ExprKind::Negate(operand), sign.to(parser.span(operand)))
                }
                None => parser.postfix()?,
            };
            while let Some(operator) = parser.operator().filter(|operator| operator.binding >= loosest) {
                parser.next += 1;
                let right = parser.expression(right_binding_power(operator.binding))?;
                let span = parser.span(left).to(parser.span(right));
                left = parser.expr(ExprKind::Binary(operator, left, right), span);
                // `a < b < c` would compare the 0 or 1 of the first comparison with `c`, unlike in Python.
                if operator.binding == Binding::Comparison
                    && let Some(second) = parser.operator().filter(|next| next.binding == Binding::Comparison)
                {
                    let message =
                        format!("expected one comparison, or parentheses around it, found `{}`", second.symbol);
                    return Err(Fault::new(parser.token().span, message));
                }
            }
            Ok(left)
        })
    }

    /// Parses a value with its methods and indices.
    fn postfix(&mut self) -> Result<ExprId, Fault> {
        let mut value = self.primary()?;
        loop {
            let begin = self.span(value);
            if self.eat(".").is_some() {
                let function = self.name("the name of a method")?;
                let receiver = Argument { name: None, value };
                // The only property; every other method takes arguments.
                let (arguments, end) = if function.text == "T" && !self.is_at("(") {
                    (vec![receiver], function.span)
                } else {
                    let open = self.expect("(", || format!("`(` after `{}`", function.text))?;
                    self.arguments(open, vec![receiver])?
                };
                value = self.expr(ExprKind::Call { function, arguments }, begin.to(end));
            } else if let Some(open) = self.eat("[") {
                let (items, close) = self.separated(open, "]", Self::item)?;
                if items.is_empty() {
                    return Err(Fault::new(close, "expected an index or a slice, found `]`"));
                }
                value = self.expr(ExprKind::Index { of: value, items }, begin.to(close));
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<ExprId, Fault> {
        let Token { kind, span } = *self.token();
        let text = &self.source[span.start..span.end];
        match kind {
            TokenKind::Number(number) => {
                self.next += 1;
                Ok(self.expr(ExprKind::Number(number), span))
            }
            TokenKind::Text => {
                self.next += 1;
                // The span of a string includes its quotes, which are one byte each.
                Ok(self.expr(ExprKind::Text(text[1..text.len() - 1].to_string()), span))
            }
            TokenKind::Name => {
                self.next += 1;
                let name = text.to_string();
                let Some(open) = self.eat("(") else { return Ok(self.expr(ExprKind::Name(name), span)) };
                let (arguments, close) = self.arguments(open, Vec::new())?;
                let function = Word { text: name, span };
                Ok(self.expr(ExprKind::Call { function, arguments }, span.to(close)))
            }
            TokenKind::Symbol("(") => self.group(),
            TokenKind::Symbol("[") => {
                self.next += 1;
                let (items, close) = self.separated(span, "]", Self::value)?;
                Ok(self.expr(ExprKind::List(items), span.to(close)))
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Parses parentheses: a value, or a list if there is a comma or nothing inside.
    fn group(&mut self) -> Result<ExprId, Fault> {
        let open = self.token().span;
        self.next += 1;
        let (items, close) = self.separated(open, ")", Self::value)?;
        let span = open.to(close);
        // The token before the closing bracket.
        let has_comma = self.tokens[self.next - 2].kind == TokenKind::Symbol(",");
        match items[..] {
            // The span includes the brackets, so that a fault marks them too.
            [only] if !has_comma => {
                self.exprs[only.0].span = span;
                Ok(only)
            }
            _ => Ok(self.expr(ExprKind::List(items), span)),
        }
    }

    /// Parses the arguments of a call and appends them to `arguments`.
    fn arguments(&mut self, open: Span, mut arguments: Vec<Argument>) -> Result<(Vec<Argument>, Span), Fault> {
        let (given, close) = self.separated(open, ")", |parser| {
            let name = parser.name_before("=");
            Ok(Argument { name, value: parser.expression(Binding::Comparison)? })
        })?;
        arguments.extend(given);
        Ok((arguments, close))
    }

    fn item(&mut self) -> Result<Item, Fault> {
        if let Some(span) = self.eat("...") {
            return Ok(Item::Rest(span));
        }
        let begin = self.token().span;
        let mut bounds = [None; 3];
        let mut colons = 0;
        let mut end = begin;
        loop {
            if !self.is_at(":") && !self.is_at(",") && !self.is_at("]") {
                let value = self.value()?;
                end = self.span(value);
                bounds[colons] = Some(value);
            }
            match self.eat(":") {
                Some(colon) if colons < 2 => (colons, end) = (colons + 1, colon),
                Some(colon) => return Err(Fault::new(colon, "expected `,` or `]` after a step, found `:`")),
                None => break,
            }
        }
        match (colons, bounds[0]) {
            (0, Some(at)) => Ok(Item::At(at)),
            (0, None) => Err(self.unexpected("an index or a slice")),
            _ => Ok(Item::Slice { bounds, span: begin.to(end) }),
        }
    }

    fn value(&mut self) -> Result<ExprId, Fault> {
        self.expression(Binding::Comparison)
    }

    /// Parses comma-separated items, with an optional trailing comma, up to the closing bracket, whose span is returned too.
    fn separated<T>(
        &mut self,
        open: Span,
        close: &'static str,
        mut one: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<(Vec<T>, Span), Fault> {
        let mut all = Vec::new();
        loop {
            if let Some(end) = self.eat(close) {
                return Ok((all, end));
            }
            all.push(one(self)?);
            if self.eat(",").is_none() {
                let opened = &self.source[open.start..open.end];
                let before = &self.source[..open.start];
                let column = before[before.rfind('\n').map_or(0, |newline| newline + 1)..].chars().count() + 1;
                let wanted = || format!("`,` or the `{close}` of the `{opened}` in column {column}");
                return Ok((all, self.expect(close, wanted)?));
            }
        }
    }

    /// Parses one nesting level deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.nesting == MAX_NESTING {
            let message = format!("expected at most {MAX_NESTING} nested brackets, signs and powers, found more");
            return Err(Fault::new(self.token().span, message));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    fn expr(&mut self, kind: ExprKind, span: Span) -> ExprId {
        // Operands are pushed before the expressions that use them; `evaluate` relies on that order.
        self.exprs.push(Expr { kind, span });
        ExprId(self.exprs.len() - 1)
    }

    fn span(&self, id: ExprId) -> Span {
        self.exprs[id.0].span
    }

    fn token(&self) -> &Token {
        // In bounds: the list ends with an `End` token, and nothing consumes that one.
        &self.tokens[self.next]
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn is_at(&self, symbol: &'static str) -> bool {
        self.kind() == TokenKind::Symbol(symbol)
    }

    fn eat(&mut self, symbol: &'static str) -> Option<Span> {
        let span = self.is_at(symbol).then(|| self.token().span)?;
        self.next += 1;
        Some(span)
    }

    fn expect(&mut self, symbol: &'static str, wanted: impl FnOnce() -> String) -> Result<Span, Fault> {
        self.eat(symbol).ok_or_else(|| self.unexpected(&wanted()))
    }

    fn name(&mut self, wanted: &str) -> Result<Word, Fault> {
        if self.kind() != TokenKind::Name {
            return Err(self.unexpected(wanted));
        }
        let span = self.token().span;
        self.next += 1;
        Ok(Word { text: self.source[span.start..span.end].to_string(), span })
    }

    /// Consumes a name that is followed by the symbol, if there is one.
    fn name_before(&mut self, symbol: &'static str) -> Option<Word> {
        let is_there = self.kind() == TokenKind::Name
            && self.tokens.get(self.next + 1).is_some_and(|token| token.kind == TokenKind::Symbol(symbol));
        let name = is_there.then(|| self.name("a name").ok())?;
        self.next += 1;
        name
    }

    fn operator(&self) -> Option<Operator> {
        let TokenKind::Symbol(symbol) = self.kind() else { return None };
        Operator::ALL.into_iter().find(|operator| operator.symbol == symbol)
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        let span = self.token().span;
        let found = match self.kind() {
            TokenKind::End => "the end".to_string(),
            _ => format!("`{}`", &self.source[span.start..span.end]),
        };
        Fault::new(span, format!("expected {wanted}, found {found}"))
    }
}

/// Returns the lowest precedence of a right operand without brackets.
fn right_binding_power(binding: Binding) -> Binding {
    match binding {
        Binding::Comparison => Binding::Sum,
        Binding::Sum => Binding::Product,
        Binding::Product => Binding::Sign,
        Binding::Sign | Binding::Power => Binding::Power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Formats a script with all its brackets.
    fn text(script: &Script) -> String {
        let statement = |statement: &Statement| match &statement.target {
            Some(target) => format!("{} = {}", target.text, expr(script, statement.value)),
            None => expr(script, statement.value),
        };
        script.statements.iter().map(statement).collect::<Vec<_>>().join("; ")
    }

    fn expr(script: &Script, id: ExprId) -> String {
        let of = |id: &ExprId| expr(script, *id);
        let join = |parts: Vec<String>| parts.join(", ");
        match &script.exprs[id.0].kind {
            ExprKind::Number(number) => number.to_string(),
            ExprKind::Text(text) => format!("'{text}'"),
            ExprKind::Name(name) => name.clone(),
            ExprKind::List(items) => format!("[{}]", join(items.iter().map(of).collect())),
            ExprKind::Negate(operand) => format!("(-{})", of(operand)),
            ExprKind::Binary(operator, a, b) => format!("({} {} {})", of(a), operator.symbol, of(b)),
            ExprKind::Call { function, arguments } => {
                let argument = |argument: &Argument| match &argument.name {
                    Some(name) => format!("{}={}", name.text, of(&argument.value)),
                    None => of(&argument.value),
                };
                format!("{}({})", function.text, join(arguments.iter().map(argument).collect()))
            }
            ExprKind::Index { of: value, items } => {
                let item = |item: &Item| match item {
                    Item::At(id) => of(id),
                    Item::Slice { bounds, .. } => {
                        bounds.map(|bound| bound.map_or(String::new(), |id| of(&id))).join(":")
                    }
                    Item::Rest(_) => "...".to_string(),
                };
                format!("{}[{}]", of(value), join(items.iter().map(item).collect()))
            }
        }
    }

    /// Operators have Python's precedence, and methods are functions.
    #[test]
    fn precedence_and_forms() {
        let table = [
            ("a+b*c", "(a + (b * c))"),
            ("a*b+c", "((a * b) + c)"),
            ("a-b-c", "((a - b) - c)"),
            ("a/b*c@d", "(((a / b) * c) @ d)"),
            ("a**b**c", "(a ** (b ** c))"),
            ("-a**2", "(-(a ** 2))"),
            ("a**-b*c", "((a ** (-b)) * c)"),
            ("a**-b**c", "(a ** (-(b ** c)))"),
            ("-a*b", "((-a) * b)"),
            ("a*-b+c", "((a * (-b)) + c)"),
            ("--a", "(-(-a))"),
            ("-a.sum()", "(-sum(a))"),
            ("a+b<c*d", "((a + b) < (c * d))"),
            ("(a<b)==(c!=d)", "((a < b) == (c != d))"),
            ("(a+b)*c", "((a + b) * c)"),
            ("relu(a*b+1).sum(1)", "sum(relu(((a * b) + 1)), 1)"),
            ("x.T@y.T.exp()", "(T(x) @ exp(T(y)))"),
            ("x.T()", "T(x)"),
            ("softmax(x, axis=-1,)", "softmax(x, axis=(-1))"),
            ("x.sum(axis=(0,1), keepdim=true)", "sum(x, axis=[0, 1], keepdim=true)"),
            ("f(a==b, c=d==e)", "f((a == b), c=(d == e))"),
            ("reshape(x, (2, -1)).reshape(3,)", "reshape(reshape(x, [2, (-1)]), 3)"),
            ("[1, 2,] ", "[1, 2]"),
            ("()", "[]"),
            ("(2,)", "[2]"),
            ("((2))", "2"),
            ("((2,))", "[2]"),
            ("x[0]", "x[0]"),
            ("x[1:3, ::2][:, None]", "x[1:3:, ::2][::, None]"),
            ("x[..., -1:, ]", "x[..., (-1)::]"),
            ("x[a+1:b**2:-1]", "x[(a + 1):(b ** 2):(-1)]"),
            ("1.5e-3*x.to(f16)", "(0.0015 * to(x, f16))"),
            ("1.exp()", "exp(1)"),
            ("einsum('ij,jk->ik', a, b)", "einsum('ij,jk->ik', a, b)"),
            ("y = a*b; y.sum();", "y = (a * b); sum(y)"),
            ("y = a\n; z = y", "y = a; z = y"),
        ];
        for (source, expected) in table {
            assert_eq!(text(&parse(source).unwrap()), expected, "{source}");
        }
    }

    #[test]
    fn nodes_know_their_part_and_come_after_what_they_name() {
        let source = "y = -a*(b+1); relu( y ).sum(1)[0, 1:].T";
        let script = parse(source).unwrap();
        let parts: Vec<&str> = script.exprs.iter().map(|expr| &source[expr.span.start..expr.span.end]).collect();
        let expected = [
            "a",
            "-a",
            "b",
            "1",
            "(b+1)",
            "-a*(b+1)",
            "y",
            "relu( y )",
            "1",
            "relu( y ).sum(1)",
            "0",
            "1",
            "relu( y ).sum(1)[0, 1:]",
            "relu( y ).sum(1)[0, 1:].T",
        ];
        assert_eq!(parts, expected);
        let ExprKind::Index { items, .. } = &script.exprs[12].kind else { panic!("expected an index") };
        let Item::Slice { span, .. } = &items[1] else { panic!("expected a slice") };
        assert_eq!(&source[span.start..span.end], "1:");
    }

    /// A syntax error is marked, with what was expected and what was found.
    #[test]
    fn faults_are_marked() {
        let sources = [
            "",
            "relu(a*)",
            "a b",
            "a +",
            "(a + b",
            "f(a, b]",
            "a + b)",
            "x.",
            "x.sum",
            "x.1",
            "x.(a)",
            "a < b < c",
            "a == b != c",
            "x[]",
            "x[1:2:3:4]",
            "x[,]",
            "x[1",
            "f(,)",
            "f(a b)",
            "y =",
            "= 3",
            "y = z = 3",
            "a; ; b",
            "1.5.5",
            "3x",
            "a ** ** b",
            "a $ b",
            "f('x)",
            "*a",
            "f(a=)",
            "2 = a",
            "a\n+\n)",
            ".5",
            "x[a=1]",
            "1e400",
        ];
        let mut shown = String::new();
        for source in sources {
            let fault = parse(source).expect_err(source);
            writeln!(shown, "{}\n", fault.render(source)).unwrap();
        }
        insta::assert_snapshot!("faults", shown);
    }

    /// Neither depth nor length overflows the stack; both are refused with a span.
    #[test]
    fn depth_and_length_are_bounded() {
        for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("f(", ")"), ("a**", ""), ("x[", "]")] {
            let nested = |times: usize| format!("{}a{}", open.repeat(times), close.repeat(times));
            assert!(parse(&nested(MAX_NESTING / 2 - 1)).is_ok(), "{open}");
            let fault = parse(&nested(10_000)).err().unwrap();
            assert!(fault.message.starts_with("expected at most 100 nested brackets"), "{open}: {}", fault.message);
            let fault = parse(&nested(100_000)).err().unwrap();
            assert!(fault.message.starts_with("expected an expression of at most 65536 bytes"), "{}", fault.message);
        }
        let chain = "a+".repeat(MAX_BYTES / 2 - 1) + "a";
        assert_eq!(parse(&chain).unwrap().exprs.len(), MAX_BYTES - 1);
        let methods = format!("a{}", ".T[0]".repeat(10_000));
        assert_eq!(parse(&methods).unwrap().exprs.len(), 30_001);
    }
}
