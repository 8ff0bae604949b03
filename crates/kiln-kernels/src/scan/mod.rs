//! Scans along an axis: cumulative sums and products, and the linear recurrence that is their gradient.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use crate::cat::Cat;
use crate::indices::{check_axis, inputs, invalid, mismatch, text};
use kiln_ir::gradient::{Expr, Gradients, each};
use kiln_ir::graph::TensorType;
use kiln_ir::host::HostCall;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{DType, KernelOp, Result, Shape};
use smallvec::{SmallVec, smallvec};

/// How a scan combines elements.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOp {
    /// `y[k] = y[k-1] + x[k]`.
    Sum,
    /// `y[k] = y[k-1] * x[k]`.
    Product,
    /// Inputs `a` and `b`: `y[k] = a[k] * y[k-1] + b[k]`; in reverse `y[k] = a[k+1] * y[k+1] + b[k]`, so that each direction is the
    /// gradient of the other with respect to `b`.
    Linear,
}

/// Computes the inclusive scan of an op along an axis.
///
/// Floats accumulate in `f64` on the CPU and in `f32` on a GPU; integers wrap.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// How elements are combined.
    pub op: ScanOp,
    /// The axis.
    pub axis: usize,
    /// Whether the scan starts at the last element.
    pub reverse: bool,
}

/// Lines along the axis of a contiguous tensor: `outer` blocks of `length` rows of `inner` elements.
#[derive(Clone, Copy, Debug)]
struct Lines {
    outer: usize,
    length: usize,
    inner: usize,
}

impl Lines {
    fn new(shape: &Shape, axis: usize) -> Self {
        let outer = shape[..axis].iter().product();
        Self { outer, length: shape[axis], inner: shape[axis + 1..].iter().product() }
    }
}

impl KernelOp for Scan {
    fn name(&self) -> &str {
        match self.op {
            ScanOp::Sum => "cumsum",
            ScanOp::Product => "cumprod",
            ScanOp::Linear => "linear_scan",
        }
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.op as u64, self.axis as u64, u64::from(self.reverse)]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let x = if self.op == ScanOp::Linear {
            let [a, b] = inputs(self.name(), types)?;
            if a != b {
                let message =
                    format!("{} expected two tensors of one type, found {} and {}", self.name(), text(a), text(b));
                return Err(mismatch(message));
            }
            a
        } else {
            let [x] = inputs(self.name(), types)?;
            x
        };
        check_axis(self.name(), self.axis, x)?;
        if x.dtype.bytes() == 1 {
            return Err(invalid(format!("{} expected floats, i32 or u32, found {}", self.name(), text(x))));
        }
        Ok(x.clone())
    }

    fn error_bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
        let ([x, ..], &[largest, ..]) = (inputs, largest) else { return 0.0 };
        let terms = x.shape.get(self.axis).copied().unwrap_or(0) as f64;
        let size = match self.op {
            ScanOp::Sum => terms * largest,
            ScanOp::Product | ScanOp::Linear => largest.max(1.0).powf(terms),
        };
        (8.0 + terms) * crate::UNIT_ROUNDOFF * size
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], output: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let reversed = Self { reverse: !self.reverse, ..*self };
        // In `f32`, because long sums of products lose too much in 16 bits.
        let wide = |x: Expr<'a>| x.cast(DType::F32);
        match (self.op, inputs) {
            (ScanOp::Sum, _) => Some(each([gradient.kernel(reversed, &[])])),
            // dy[k]/dx[j] is y[j-1] * x[j+1] * ... * x[k]. That needs no division, so it is correct for zeros.
            (ScanOp::Product, &[x]) if !self.reverse => {
                let linear = Self { op: ScanOp::Linear, reverse: true, ..*self };
                let below = wide(x).kernel(linear, &[wide(gradient)]);
                Some(each([(below * self.before(wide(output), 1.0)).cast(x.dtype())]))
            }
            (ScanOp::Linear, &[a, b]) => {
                // `below` is the gradient of b. Forward, a[k] multiplies y[k-1] to give y[k]. In reverse, it multiplies y[k] to give y[k-1], so
                // `below` is shifted instead of the output.
                let below = wide(a).kernel(reversed, &[wide(gradient)]);
                let of_a = if self.reverse {
                    self.before(below, 0.0) * wide(output)
                } else {
                    below * self.before(wide(output), 0.0)
                };
                Some(each([of_a.cast(a.dtype()), below.cast(b.dtype())]))
            }
            _ => None,
        }
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        let per_element = if self.op == ScanOp::Linear { 2 } else { 1 };
        per_element * inputs[0].shape.elem_count() as u64
    }

    fn has_host_code(&self) -> bool {
        true
    }

    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        cpu::run(self, call)
    }

    fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel> {
        gpu::wgsl(self, call)
    }
}

impl Scan {
    /// Shifts elements by one along the axis, with `first` in the first position.
    fn before<'a>(&self, x: Expr<'a>, first: f64) -> Expr<'a> {
        let length = x.shape()[self.axis];
        if length == 0 {
            return x;
        }
        let ty = TensorType { shape: x.shape().with(self.axis, 1), dtype: x.dtype() };
        x.filled(first, ty).kernel(Cat { axis: self.axis }, &[x.slice(self.axis, 0, length - 1)])
    }
}
