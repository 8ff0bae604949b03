//! The syntax tree of an expression, as a list in evaluation order.
//!
//! An expression refers to its operands by index, always to earlier ones, and each is used once. So a script is evaluated and dropped by a
//! loop, and a sum of ten thousand terms needs no more stack than one of two.

use super::fault::Span;

/// Statements, the last of which is the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Script {
    pub(super) exprs: Vec<Expr>,
    pub(super) statements: Vec<Statement>,
}

/// `y = a * b`, or `a * b` alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    /// The assigned variable.
    pub(super) target: Option<Word>,
    pub(super) value: ExprId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) span: Span,
}

/// The index of an expression in its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExprId(pub(super) usize);

/// A subexpression.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub(super) struct Expr {
    pub(super) kind: ExprKind,
    pub(super) span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExprKind {
    Number(f64),
    /// `'ij,jk->ik'`.
    Text(String),
    /// A variable, a dtype or a word such as `inf`.
    Name(String),
    /// `(2, 3)` or `[2, 3]`.
    List(Vec<ExprId>),
    Negate(ExprId),
    Binary(Operator, ExprId, ExprId),
    /// `f(x, y)` and `x.f(y)`, which are the same call.
    Call {
        function: Word,
        arguments: Vec<Argument>,
    },
    /// `x[1:3, 0]`.
    Index {
        of: ExprId,
        items: Vec<Item>,
    },
}

/// An argument of a call, with its name if given.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Argument {
    pub(super) name: Option<Word>,
    pub(super) value: ExprId,
}

/// An item of an index.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// An index, or `none` for a new axis.
    At(ExprId),
    /// `start:stop:step`, each of which is optional.
    Slice { bounds: [Option<ExprId>; 3], span: Span },
    /// `...`: all axes that no other item covers.
    Rest(Span),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operator {
    pub(super) symbol: &'static str,
    /// The function that implements it.
    pub(super) function: &'static str,
    pub(super) binding: Binding,
}

/// Precedence of an operator, lowest first, as in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    /// Not chainable.
    Comparison,
    Sum,
    Product,
    /// Unary minus.
    Sign,
    /// Right-associative: `a ** b ** c` is `a ** (b ** c)`.
    Power,
}

impl Operator {
    pub(super) const ALL: [Self; 12] = [
        Self::new("+", "add", Binding::Sum),
        Self::new("-", "sub", Binding::Sum),
        Self::new("*", "mul", Binding::Product),
        Self::new("/", "div", Binding::Product),
        Self::new("@", "matmul", Binding::Product),
        Self::new("**", "pow", Binding::Power),
        Self::new("<", "lt", Binding::Comparison),
        Self::new("<=", "le", Binding::Comparison),
        Self::new(">", "gt", Binding::Comparison),
        Self::new(">=", "ge", Binding::Comparison),
        Self::new("==", "eq", Binding::Comparison),
        Self::new("!=", "ne", Binding::Comparison),
    ];

    const fn new(symbol: &'static str, function: &'static str, binding: Binding) -> Self {
        Self { symbol, function, binding }
    }
}
