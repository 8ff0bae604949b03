//! Gradient rules of table ops that are too long for the table. Each takes the inputs `x`, the output `y` and the
//! gradient `g` of the output.

use super::table::{ERF, EXP, GE, GT, LE, LOG, LT, MAXIMUM, NE, POW, SIGMOID, TANH, WHERE};
use crate::gradient::{Expr, Gradients, each};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// The gradient goes to the selected operand; to the first if they are equal.
pub(super) fn minimum<'a>(x: &[Expr<'a>], _: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    one_of_two(x[0].apply(&LE, &[x[1]]), g)
}

pub(super) fn maximum<'a>(x: &[Expr<'a>], _: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    one_of_two(x[0].apply(&GE, &[x[1]]), g)
}

/// Passes the gradient to one of two operands, and 0 to the other. Unlike a multiplication by 0, a select keeps a NaN
/// or infinity of `g` from the other.
fn one_of_two<'a>(is_first: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    // Selects instead of multiplying by the mask: 0 times an infinite gradient would be NaN.
    each([g.only_where(is_first), is_first.apply(&WHERE, &[g.like(0.0), g])])
}

/// The condition has no gradient.
pub(super) fn select<'a>(x: &[Expr<'a>], _: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    [None].into_iter().chain(one_of_two(x[0], g)).collect()
}

/// Follows the forward computation `min(max(x, low), high)`. At a bound the gradient goes to `x`.
pub(super) fn clamp<'a>(x: &[Expr<'a>], _: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    let &[x, low, high] = x else { return Gradients::new() };
    let raised = x.apply(&MAXIMUM, &[low]);
    let below = g.only_where(raised.apply(&LE, &[high]));
    let above = g.only_where(raised.apply(&GT, &[high]));
    each([below.only_where(x.apply(&GE, &[low])), below.only_where(x.apply(&LT, &[low])), above])
}

/// `b a^(b-1)`, 0 where `b` is 0, and `a^b log a`, 0 where `a` is not positive: the formulas may give NaN there.
pub(super) fn pow<'a>(x: &[Expr<'a>], y: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    let &[a, b] = x else { return Gradients::new() };
    // Where `b` is 0 and `a` is 0, the product is 0 times infinity; the exponent's gradient likewise takes log 0.
    let base = (g * b * a.apply(&POW, &[b - 1.0])).only_where(b.apply(&NE, &[b.like(0.0)]));
    let exponent = (g * y * a.apply(&LOG, &[])).only_where(a.apply(&GT, &[a.like(0.0)]));
    each([base, exponent])
}

/// `2 / sqrt(pi) e^(-x^2)`.
pub(super) fn erf<'a>(x: &[Expr<'a>], _: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    each([g * (-(x[0] * x[0])).apply(&EXP, &[]) * FRAC_2_SQRT_PI])
}

/// `s (1 + x (1 - s))` with `s = sigmoid(x)`, where `x s` is the output.
pub(super) fn silu<'a>(x: &[Expr<'a>], y: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    let sigmoid = x[0].apply(&SIGMOID, &[]);
    each([g * (sigmoid + y * (sigmoid.like(1.0) - sigmoid))])
}

/// With `t = tanh(u)`, `u = k (x + c x^3)`: `(1 + t) / 2 + x (1 - t^2) k (1 + 3 c x^2) / 2`.
pub(super) fn gelu<'a>(x: &[Expr<'a>], _: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    let (k, c) = (FRAC_2_SQRT_PI * FRAC_1_SQRT_2, 0.044_715);
    let x = x[0];
    let square = x * x;
    let t = (x * (square * c + 1.0) * k).apply(&TANH, &[]);
    let slope = x * (t.like(1.0) - t * t) * (square * (3.0 * c) + 1.0) * (0.5 * k);
    each([g * (t * 0.5 + 0.5 + slope)])
}

/// `(1 + erf(x / sqrt 2)) / 2 + x e^(-x^2/2) / sqrt(2 pi)`.
pub(super) fn gelu_erf<'a>(x: &[Expr<'a>], _: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
    let x = x[0];
    let cdf = (x * FRAC_1_SQRT_2).apply(&ERF, &[]) * 0.5 + 0.5;
    let density = (x * x * -0.5).apply(&EXP, &[]) * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    each([g * (cdf + x * density)])
}
