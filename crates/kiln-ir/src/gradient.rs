//! Gradients of ops, declared as expressions. A [`Builder`] turns them into graph nodes, so gradients are fused,
//! planned and run like any other op.
//!
//! Elementwise ops, reductions, views and hand-written kernels each declare the gradients of their inputs.

use crate::graph::{Axes, Op, Reduce, TensorType, View};
use crate::op::{self, ElementOp};
use crate::{DType, Error, ErrorKind, KernelOp, Result, Shape};
use smallvec::SmallVec;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::Arc;

/// Creates graph nodes. A failed call is recorded by the builder and reported when the graph is complete; it returns
/// an arbitrary value.
///
/// See [`gradients`] for an example.
pub trait Builder {
    /// Returns the shape and dtype of a value.
    fn ty(&self, value: usize) -> TensorType;
    /// Creates a constant tensor.
    fn number(&self, number: f64, ty: TensorType) -> usize;
    /// Creates the row-major index of each element, from 0, as `U32`.
    fn iota(&self, shape: Shape) -> usize;
    /// Applies an elementwise op to values that broadcast to one shape.
    fn element(&self, op: &'static ElementOp, inputs: &[usize]) -> usize;
    /// Casts to another dtype.
    fn cast(&self, value: usize, dtype: DType) -> usize;
    /// Creates a view with the given shape.
    fn view(&self, view: View, value: usize, shape: Shape) -> usize;
    /// Reduces over axes, which are kept with length 1.
    fn reduce(&self, op: Reduce, value: usize, axes: &[usize]) -> usize;
    /// Applies a hand-written kernel.
    fn kernel(&self, op: Arc<dyn KernelOp>, inputs: &[usize]) -> usize;
    /// Scatters the value into zeros of a shape, at the positions of a slice: the gradient of [`View::Slice`].
    fn unslice(&self, value: usize, shape: Shape, axis: usize, start: usize, step: isize) -> usize;
}

/// A value of a [`Builder`] with operators, for writing formulas: `g * x.apply(&op::COS, &[])`.
///
/// See [`each`] and [`gradients`] for examples.
#[derive(Clone, Copy)]
#[must_use]
pub struct Expr<'a> {
    builder: &'a dyn Builder,
    value: usize,
}

/// The gradient of each input of an op; `None` if it is zero everywhere or the input has no gradient.
///
/// See [`each`] for an example.
pub type Gradients<'a> = SmallVec<[Option<Expr<'a>>; 3]>;

/// The gradient rule of an elementwise op: takes its inputs, its result and the gradient of the result, all of one
/// shape.
///
/// See [`each`] for an example.
pub type ElementGradient = for<'a> fn(x: &[Expr<'a>], y: Expr<'a>, g: Expr<'a>) -> Gradients<'a>;

/// Wraps one gradient per input.
///
/// ```
/// use kiln_ir::gradient::{ElementGradient, Expr, Gradients, each};
///
/// fn of_product<'a>(x: &[Expr<'a>], _y: Expr<'a>, g: Expr<'a>) -> Gradients<'a> {
///     each([g * x[1], g * x[0]])
/// }
/// let rule: ElementGradient = of_product;
/// ```
pub fn each<'a, const N: usize>(gradients: [Expr<'a>; N]) -> Gradients<'a> {
    gradients.into_iter().map(Some).collect()
}

/// Returns the gradient of each input of an op, given the gradient of its result.
///
/// ```
/// use kiln_ir::gradient::{Builder, Expr, gradients};
/// use kiln_ir::{graph::Op, op};
///
/// // Creates the gradient of `x`, given `y`, which is the sine of `x`, and the gradient `g` of `y`.
/// fn of_sine(builder: &dyn Builder, x: usize, y: usize, g: usize) -> kiln_ir::Result<Option<usize>> {
///     let [x, y, g] = [x, y, g].map(|value| Expr::new(builder, value));
///     let all = gradients(&Op::Element(&op::SIN), &[x], y, g)?;
///     Ok(all[0].map(|gradient| gradient.value()))
/// }
/// ```
///
/// # Errors
/// Returns `Unsupported` if the op declares no gradient.
pub fn gradients<'a>(op: &Op, inputs: &[Expr<'a>], output: Expr<'a>, gradient: Expr<'a>) -> Result<Gradients<'a>> {
    let missing = || {
        let message = format!("backward expected ops that have a gradient, found {}, which declares none", op.name());
        Error::new(ErrorKind::Unsupported, message)
    };
    match op {
        Op::Input(_) | Op::Scalar | Op::Iota => Ok(Gradients::new()),
        Op::Element(element) => Ok(element.gradient.ok_or_else(missing)?(inputs, output, gradient)),
        Op::Cast => Ok(each([gradient.cast(inputs[0].dtype())])),
        Op::View(view) => Ok(each([view.gradient(inputs[0], gradient)])),
        Op::Reduce(reduce, axes) => Ok(reduce.gradient(inputs[0], gradient, axes)),
        Op::Kernel(kernel) => kernel.gradient(inputs, output, gradient).ok_or_else(missing),
    }
}

impl View {
    /// Scatters the gradient to the positions that the view read, and sums where it read an element more than once.
    fn gradient<'a>(&self, input: Expr<'a>, gradient: Expr<'a>) -> Expr<'a> {
        let shape = input.shape();
        match self {
            Self::Permute(axes) => {
                let mut inverse: Axes = SmallVec::from_elem(0, axes.len());
                axes.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
                gradient.permute(&inverse)
            }
            Self::Broadcast => gradient.sum_to(&shape),
            Self::Reshape => gradient.reshape(shape),
            &Self::Slice { axis, start, step } => {
                gradient.with(gradient.builder.unslice(gradient.value, shape, axis, start, step))
            }
        }
    }
}

impl Reduce {
    fn gradient<'a>(self, input: Expr<'a>, gradient: Expr<'a>, axes: &[usize]) -> Gradients<'a> {
        let shape = input.shape();
        match self {
            Self::Sum => each([gradient.broadcast_to(&shape)]),
            Self::Mean => {
                let count: usize = axes.iter().map(|&axis| shape[axis]).product();
                // An empty mean has no elements to receive a gradient; 1 only keeps the factor finite.
                each([gradient.broadcast_to(&shape) * (1.0 / count.max(1) as f64)])
            }
            // The gradient goes to the first maximum. It is found by index, because a recomputed value may round
            // differently.
            Self::Max | Self::Min => {
                let place = input.reduce(if self == Self::Max { Self::ArgMax } else { Self::ArgMin }, axes);
                let along = |(axis, &length): (usize, &usize)| if axes.contains(&axis) { length } else { 1 };
                let number = input.iota(shape.iter().enumerate().map(along).collect());
                each([gradient.broadcast_to(&shape).only_where(number.apply(&op::EQ, &[place]).broadcast_to(&shape))])
            }
            Self::ArgMax | Self::ArgMin => SmallVec::from_elem(None, 1),
        }
    }
}

impl<'a> Expr<'a> {
    /// Wraps a value of the builder.
    pub fn new(builder: &'a dyn Builder, value: usize) -> Self {
        Self { builder, value }
    }

    /// Returns the builder's index of the value.
    pub fn value(self) -> usize {
        self.value
    }

    /// Returns the shape and dtype.
    pub fn ty(self) -> TensorType {
        self.builder.ty(self.value)
    }

    /// Returns the shape.
    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    /// Returns the element type.
    pub fn dtype(self) -> DType {
        self.ty().dtype
    }

    fn with(self, value: usize) -> Self {
        Self { value, ..self }
    }

    /// Creates a constant of the same shape and dtype.
    pub fn like(self, number: f64) -> Self {
        self.filled(number, self.ty())
    }

    /// Creates a constant of the given type.
    pub fn filled(self, number: f64, ty: TensorType) -> Self {
        self.with(self.builder.number(number, ty))
    }

    /// Creates the row-major index of each element, from 0, as `U32`.
    pub fn iota(self, shape: Shape) -> Self {
        self.with(self.builder.iota(shape))
    }

    /// Applies an elementwise op to `self` and `others`, which broadcast to one shape.
    pub fn apply(self, op: &'static ElementOp, others: &[Self]) -> Self {
        let inputs: SmallVec<[usize; 3]> = [self].iter().chain(others).map(|input| input.value).collect();
        self.with(self.builder.element(op, &inputs))
    }

    /// Returns `self` where a `U8` condition is nonzero, 0 elsewhere.
    pub fn only_where(self, condition: Self) -> Self {
        condition.apply(&op::WHERE, &[self, self.like(0.0)])
    }

    /// Casts to another dtype.
    pub fn cast(self, dtype: DType) -> Self {
        if self.dtype() == dtype { self } else { self.with(self.builder.cast(self.value, dtype)) }
    }

    /// Permutes the axes.
    pub fn permute(self, axes: &[usize]) -> Self {
        let shape = axes.iter().map(|&axis| self.shape()[axis]).collect();
        self.with(self.builder.view(View::Permute(axes.into()), self.value, shape))
    }

    /// Transposes the last two axes.
    pub fn transpose(self) -> Self {
        let rank = self.shape().rank();
        let mut axes: Axes = (0..rank).collect();
        axes.swap(rank - 2, rank - 1);
        self.permute(&axes)
    }

    /// Reshapes in row-major order.
    pub fn reshape(self, shape: Shape) -> Self {
        if self.shape() == shape { self } else { self.with(self.builder.view(View::Reshape, self.value, shape)) }
    }

    /// Broadcasts to a shape.
    pub fn broadcast_to(self, shape: &Shape) -> Self {
        if self.shape() == *shape {
            return self;
        }
        self.with(self.builder.view(View::Broadcast, self.value, shape.clone()))
    }

    /// Selects `length` elements along an axis, beginning at `start`.
    pub fn slice(self, axis: usize, start: usize, length: usize) -> Self {
        let shape = self.shape().with(axis, length);
        self.with(self.builder.view(View::Slice { axis, start, step: 1 }, self.value, shape))
    }

    /// Sums over axes, which are kept with length 1.
    pub fn sum(self, axes: &[usize]) -> Self {
        self.reduce(Reduce::Sum, axes)
    }

    /// Reduces over axes, which are kept with length 1.
    pub fn reduce(self, op: Reduce, axes: &[usize]) -> Self {
        if axes.is_empty() { self } else { self.with(self.builder.reduce(op, self.value, axes)) }
    }

    /// Sums over broadcast axes down to `shape`: the gradient of a broadcast.
    pub fn sum_to(self, shape: &Shape) -> Self {
        let from = self.shape();
        // A broadcast adds leading axes and repeats axes of length 1; the gradient is summed over both kinds.
        let new = from.rank() - shape.rank();
        let axes: Axes =
            (0..from.rank()).filter(|&axis| axis < new || (shape[axis - new] == 1 && from[axis] != 1)).collect();
        self.sum(&axes).reshape(shape.clone())
    }

    /// Applies a hand-written kernel to `self` and `others`.
    pub fn kernel(self, op: impl KernelOp, others: &[Self]) -> Self {
        let inputs: SmallVec<[usize; 4]> = [self].iter().chain(others).map(|input| input.value).collect();
        self.with(self.builder.kernel(Arc::new(op), &inputs))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(impl $trait for Expr<'_> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.apply(&op::$op, &[other])
            }
        }

        impl $trait<f64> for Expr<'_> {
            type Output = Self;

            fn $method(self, other: f64) -> Self {
                self.apply(&op::$op, &[self.like(other)])
            }
        })*
    };
}

operators! {
    Add add ADD;
    Sub sub SUB;
    Mul mul MUL;
    Div div DIV;
}

impl Neg for Expr<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.apply(&op::NEG, &[])
    }
}

impl fmt::Debug for Expr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TensorType { shape, dtype } = self.ty();
        write!(f, "value {} ({dtype} {shape})", self.value)
    }
}
