//! Max pooling and sum pooling, and their gradients.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use crate::indices::{inputs, invalid, mismatch, text};
use crate::window::Window;
use kiln_ir::gradient::{Expr, Gradients, each};
use kiln_ir::graph::TensorType;
use kiln_ir::host::HostCall;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{KernelOp, Result, Shape};
use smallvec::{SmallVec, smallvec};

/// How a window combines its elements.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOp {
    /// The maximum, for every dtype; NaN if the window has one. Padding is below every element.
    Max,
    /// The sum, for floats, accumulated in `f32`. Padding counts as 0.
    Sum,
}

/// Reduces each window position in each channel of `(batch, channels, height, width)` to one number.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// How the window combines its elements.
    pub op: PoolOp,
    /// The window. Its padding is at most half of its size.
    pub window: Window,
}

/// The gradient of [`Pool`]: for each image element, the sum of the gradients of the windows that selected it (max) or cover it (sum).
///
/// Inputs: the gradient of the result, and for [`PoolOp::Max`] the images. Among several largest elements, the first one is selected.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolGradient {
    /// The pooling op.
    pub pool: Pool,
    /// Height and width of the images.
    pub image: [usize; 2],
}

/// The sizes of images and of the results. Arrays are in the order vertical, horizontal.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Batch times channels.
    planes: usize,
    image: [usize; 2],
    /// Window positions per image, the size of a result.
    positions: [usize; 2],
    window: Window,
}

impl Sizes {
    fn new(window: &Window, planes: usize, image: [usize; 2]) -> Result<Self> {
        Ok(Self { planes, image, positions: window.positions(image)?, window: *window })
    }

    /// Returns the image coordinate of a window element along an axis; `None` in the padding.
    fn image_coordinate(&self, axis: usize, position: usize, element: usize) -> Option<usize> {
        let Window { stride, padding, dilation, .. } = self.window;
        let at = (position * stride[axis] + element * dilation[axis]).checked_sub(padding[axis])?;
        (at < self.image[axis]).then_some(at)
    }
}

impl Pool {
    /// Checks images, and returns their sizes.
    fn sizes(&self, x: &TensorType) -> Result<Sizes> {
        let &[batch, channels, height, width] = &x.shape[..] else {
            let message = format!("{} expected (batch, channels, height, width), found {}", self.name(), text(x));
            return Err(mismatch(message));
        };
        if self.op == PoolOp::Sum && !x.dtype.is_float() {
            return Err(invalid(format!("{} expected floats, found {}", self.name(), text(x))));
        }
        if height == 0 || width == 0 {
            // A window would cover only padding, which has neither a maximum nor a mean.
            let message = format!("{} expected images of at least one row and column, found {}", self.name(), text(x));
            return Err(mismatch(message));
        }
        let sizes = Sizes::new(&self.window, batch * channels, [height, width])?;
        let Window { size, padding, .. } = self.window;
        if (0..2).any(|axis| padding[axis] > size[axis] / 2) {
            let message =
                format!("{} expected a padding of at most half of the window {size:?}, found {padding:?}", self.name());
            return Err(invalid(message));
        }
        Ok(sizes)
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        let Window { size, stride, padding, dilation } = self.window;
        let window = [size, stride, padding, dilation];
        [self.op as u64].into_iter().chain(window.iter().flatten().map(|&number| number as u64)).collect()
    }
}

impl KernelOp for Pool {
    fn name(&self) -> &str {
        match self.op {
            PoolOp::Max => "max_pool",
            PoolOp::Sum => "sum_pool",
        }
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        self.attributes()
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x] = inputs(self.name(), types)?;
        let [down, across] = self.sizes(x)?.positions;
        Ok(TensorType { shape: Shape::from([x.shape[0], x.shape[1], down, across]), dtype: x.dtype })
    }

    fn fuses_epilogue(&self) -> bool {
        // A maximum is stored as an element of its own dtype; an epilogue requires results in `f32`.
        self.op == PoolOp::Sum
    }

    fn error_bound(&self, _: &[TensorType], largest: &[f64]) -> f64 {
        let elements = (self.window.size[0] * self.window.size[1]) as f64;
        match self.op {
            PoolOp::Max => 0.0,
            // A sequential sum of n terms: each of n additions rounds a number of at most n times the largest.
            PoolOp::Sum => elements * elements * crate::UNIT_ROUNDOFF * largest.first().copied().unwrap_or(0.0),
        }
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let &[x] = inputs else { return None };
        let op = PoolGradient { pool: *self, image: [x.shape()[2], x.shape()[3]] };
        let images: &[Expr<'a>] = if self.op == PoolOp::Max { inputs } else { &[] };
        Some(each([gradient.kernel(op, images)]))
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        let positions = self.infer(inputs).map_or(0, |ty| ty.shape.elem_count());
        (positions * self.window.size[0] * self.window.size[1]) as u64
    }

    fn has_host_code(&self) -> bool {
        true
    }

    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        cpu::pool(self, call)
    }

    fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel> {
        gpu::pool(self, call)
    }
}

impl PoolGradient {
    fn sizes(&self, planes: &[usize]) -> Result<Sizes> {
        Sizes::new(&self.pool.window, planes[0] * planes[1], self.image)
    }
}

impl KernelOp for PoolGradient {
    fn name(&self) -> &str {
        match self.pool.op {
            PoolOp::Max => "max_pool_gradient",
            PoolOp::Sum => "sum_pool_gradient",
        }
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        let mut all = self.pool.attributes();
        all.extend(self.image.map(|length| length as u64));
        all
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let gradient = match self.pool.op {
            PoolOp::Sum => &inputs::<1>(self.name(), types)?[0],
            PoolOp::Max => &inputs::<2>(self.name(), types)?[0],
        };
        let &[batch, channels, ..] = &gradient.shape[..] else {
            return Err(mismatch(format!(
                "{} expected (batch, channels, height, width), found {}",
                self.name(),
                text(gradient)
            )));
        };
        let images =
            TensorType { shape: Shape::from([batch, channels, self.image[0], self.image[1]]), dtype: gradient.dtype };
        let fits = gradient.dtype.is_float() && self.pool.infer(std::slice::from_ref(&images))? == *gradient;
        if !fits || types.get(1).is_some_and(|given| *given != images) {
            let found: Vec<String> = types.iter().map(text).collect();
            return Err(mismatch(format!(
                "{} expected the gradient of {}, found {}",
                self.name(),
                text(&images),
                found.join(" and ")
            )));
        }
        Ok(images)
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn error_bound(&self, _: &[TensorType], largest: &[f64]) -> f64 {
        let elements = (self.pool.window.size[0] * self.pool.window.size[1]) as f64;
        elements * elements * crate::UNIT_ROUNDOFF * largest.first().copied().unwrap_or(0.0)
    }

    fn gradient<'a>(&self, _: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        match self.pool.op {
            PoolOp::Sum => Some(smallvec![Some(gradient.kernel(self.pool, &[]))]),
            PoolOp::Max => None,
        }
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        (inputs[0].shape.elem_count() * self.pool.window.size[0] * self.pool.window.size[1]) as u64
    }

    fn has_host_code(&self) -> bool {
        true
    }

    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        cpu::gradient(self, call)
    }

    fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel> {
        gpu::gradient(self, call)
    }
}
