//! Builds gradient expressions as tensors.

use crate::tensor::Tensor;
use crate::{DType, Error, Result, Shape};
use kiln_ir::KernelOp;
use kiln_ir::gradient::{self, Expr, Gradients};
use kiln_ir::graph::{Op, Reduce, TensorType, View};
use kiln_ir::op::ElementOp;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Tensors by index, and the first error.
struct Builder {
    values: RefCell<SmallVec<[Tensor; 16]>>,
    fault: Cell<Option<Error>>,
}

/// Computes the gradient of each input of an op from the gradient of its result.
pub(super) fn gradients(
    op: &Op,
    inputs: &[Tensor],
    output: &Tensor,
    gradient: &Tensor,
) -> Result<SmallVec<[Option<Tensor>; 3]>> {
    let values = inputs.iter().chain([output, gradient]).cloned().collect();
    let builder = Builder { values: RefCell::new(values), fault: Cell::new(None) };
    let expr = |number| Expr::new(&builder, number);
    let exprs: SmallVec<[Expr<'_>; 4]> = (0..inputs.len()).map(expr).collect();
    // Values are numbered inputs first, then the output, then its gradient, as in `values` above.
    let found: Gradients<'_> = gradient::gradients(op, &exprs, expr(inputs.len()), expr(inputs.len() + 1))?;
    let numbers: SmallVec<[Option<usize>; 3]> = found.iter().map(|found| found.map(Expr::value)).collect();
    if let Some(fault) = builder.fault.take() {
        return Err(fault.context(format!("the gradient of {}", op.name())));
    }
    Ok(numbers.into_iter().map(|number| number.map(|number| builder.get(number))).collect())
}

impl Builder {
    fn get(&self, value: usize) -> Tensor {
        self.values.borrow()[value].clone()
    }

    /// Stores a result and returns its index. An error is saved for the end, and index 0 stands in for its result.
    fn keep(&self, result: Result<Tensor>) -> usize {
        match result {
            Ok(tensor) => {
                self.values.borrow_mut().push(tensor);
                self.values.borrow().len() - 1
            }
            Err(error) => {
                // Only the first error is kept: later ones may be consequences of the stand-in.
                let first = self.fault.take().unwrap_or(error);
                self.fault.set(Some(first));
                0
            }
        }
    }
}

impl gradient::Builder for Builder {
    fn ty(&self, value: usize) -> TensorType {
        self.values.borrow()[value].0.kind.ty.clone()
    }

    fn number(&self, number: f64, ty: TensorType) -> usize {
        let device = self.get(0).device().clone();
        self.keep(Tensor::splat("gradient", ty.shape, number, ty.dtype, &device))
    }

    fn iota(&self, shape: Shape) -> usize {
        let device = self.get(0).device().clone();
        self.keep(Ok(Tensor::iota(&shape, &device)))
    }

    fn element(&self, op: &'static ElementOp, inputs: &[usize]) -> usize {
        let inputs: SmallVec<[Tensor; 3]> = inputs.iter().map(|&input| self.get(input)).collect();
        self.keep(Tensor::apply(op, &inputs.iter().collect::<SmallVec<[&Tensor; 3]>>()))
    }

    fn cast(&self, value: usize, dtype: DType) -> usize {
        self.keep(self.get(value).to_dtype(dtype))
    }

    fn view(&self, view: View, value: usize, shape: Shape) -> usize {
        self.keep(self.get(value).viewed(view, shape))
    }

    fn reduce(&self, op: Reduce, value: usize, axes: &[usize]) -> usize {
        self.keep(self.get(value).reduced("gradient", op, &axes.into()))
    }

    fn kernel(&self, op: Arc<dyn KernelOp>, inputs: &[usize]) -> usize {
        let inputs: SmallVec<[Tensor; 4]> = inputs.iter().map(|&input| self.get(input)).collect();
        self.keep(Tensor::kernel(op, &inputs.iter().collect::<SmallVec<[&Tensor; 4]>>()))
    }

    fn unslice(&self, value: usize, shape: Shape, axis: usize, start: usize, step: isize) -> usize {
        self.keep(unslice(&self.get(value), &shape, axis, start, step))
    }
}

/// Scatters `x` into zeros of a shape: along an axis, at every `step`-th position from `start` on.
fn unslice(x: &Tensor, shape: &Shape, axis: usize, start: usize, step: isize) -> Result<Tensor> {
    let (count, whole) = (x.shape()[axis], shape[axis]);
    if count == 0 {
        return Tensor::splat("gradient", shape.clone(), 0.0, x.dtype(), x.device());
    }
    // A slice with a negative step is the flip of a forward slice that starts at its last element.
    if step < 0 && count > 1 {
        let first = start - (count - 1) * step.unsigned_abs();
        return unslice(&x.flip(axis)?, shape, axis, first, -step);
    }
    let zeros = |length: usize| Tensor::splat("gradient", shape.with(axis, length), 0.0, x.dtype(), x.device());
    let step = step.unsigned_abs().max(1);
    // Interleave each element with `step - 1` zeros, except after the last.
    let x = if step > 1 && count > 1 {
        let one = x.unsqueeze(axis + 1)?;
        let gap = Tensor::splat("gradient", one.shape().with(axis + 1, step - 1), 0.0, x.dtype(), x.device())?;
        let interleaved = Tensor::cat(&[one, gap], axis + 1)?.reshape(shape.with(axis, count * step))?;
        interleaved.slice(axis, ..(count - 1) * step + 1)?
    } else {
        x.clone()
    };
    let after = whole - start - x.shape()[axis];
    let mut parts: SmallVec<[Tensor; 3]> = SmallVec::new();
    if start > 0 {
        // Only non-empty parts: `cat` of one part is a plain handle and needs no kernel.
        parts.push(zeros(start)?);
    }
    parts.push(x);
    if after > 0 {
        parts.push(zeros(after)?);
    }
    Tensor::cat(&parts, axis)
}
