//! Sliding windows over images: unfold (im2col), the input of a convolution as a matrix product, and its adjoint, fold (col2im).

mod cpu;
pub(crate) mod gpu;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::indices::{inputs, invalid, mismatch, text};
use crate::kernel_code;
use kiln_ir::gradient::{Expr, Gradients, each};
use kiln_ir::graph::TensorType;
use kiln_ir::{Error, ErrorKind, KernelOp, Result, Shape};
use smallvec::SmallVec;

/// A sliding window. Arrays are in the order vertical, horizontal.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The kernel size.
    pub size: [usize; 2],
    /// The distance between positions of the window.
    pub stride: [usize; 2],
    /// Zeros around the image.
    pub padding: [usize; 2],
    /// The distance between elements of the window.
    pub dilation: [usize; 2],
}

impl Window {
    /// Returns the number of window positions in an image of this size.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a size, stride or dilation is 0; `ShapeMismatch` if the window is larger than the padded image;
    /// `TooLarge` if it has more elements or positions than a tensor may have elements.
    pub fn positions(&self, image: [usize; 2]) -> Result<[usize; 2]> {
        let Self { size, stride, padding, dilation } = *self;
        if [size, stride, dilation].concat().contains(&0) {
            return Err(invalid(format!(
                "a window expected sizes, strides and dilations of at least 1, found {self:?}"
            )));
        }
        let along = |axis: usize| {
            let covered = dilation[axis].checked_mul(size[axis] - 1)?.checked_add(1)?;
            let whole = image[axis].checked_add(padding[axis].checked_mul(2)?)?;
            Some(whole.checked_sub(covered)? / stride[axis] + 1)
        };
        match (along(0), along(1)) {
            (Some(down), Some(across)) => {
                // No tensor has more elements, so products of these lengths do not overflow.
                let fits = |[a, b]: [usize; 2]| a.checked_mul(b).is_some_and(|count| count <= u32::MAX as usize);
                if fits([down, across]) && fits(size) {
                    return Ok([down, across]);
                }
                let message = format!(
                    "a window expected at most {} elements and positions, found {size:?} elements and {down} x {across} positions",
                    u32::MAX
                );
                Err(Error::new(ErrorKind::TooLarge, message))
            }
            _ => {
                Err(mismatch(format!("a window expected an image of at least its size, found {image:?} for {self:?}")))
            }
        }
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        let all = [self.size, self.stride, self.padding, self.dilation];
        all.iter().flatten().map(|&number| number as u64).collect()
    }
}

/// Extracts the patch at each window position (im2col): images `(batch, channels, height, width)` become `(batch, positions, elements)`, where the
/// elements of each channel are consecutive. Padding is 0.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfold {
    /// The window.
    pub window: Window,
}

/// Sums patches back into images (col2im), in `f32`: the gradient of [`Unfold`].
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The window.
    pub window: Window,
    /// Height and width of the images.
    pub image: [usize; 2],
}

/// The sizes of images and of their patches.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    channels: usize,
    image: [usize; 2],
    positions: [usize; 2],
    window: Window,
}

impl Sizes {
    fn of_images(window: &Window, images: &Shape) -> Result<Self> {
        let &[batch, channels, height, width] = &images[..] else {
            return Err(mismatch(format!("unfold expected (batch, channels, height, width), found {images}")));
        };
        let image = [height, width];
        Ok(Self { batch, channels, image, positions: window.positions(image)?, window: *window })
    }

    fn of_rows(window: &Window, image: [usize; 2], rows: &Shape) -> Result<Self> {
        let (positions, elements) = (window.positions(image)?, window.size[0] * window.size[1]);
        match rows[..] {
            [batch, found, length] if found == positions[0] * positions[1] && length.is_multiple_of(elements) => {
                Ok(Self { batch, channels: length / elements, image, positions, window: *window })
            }
            _ => Err(mismatch(format!(
                "fold expected rows of {elements} elements per channel at {} positions, found {rows}",
                positions[0] * positions[1]
            ))),
        }
    }

    /// Returns the number of elements of a patch.
    fn row(&self) -> usize {
        self.channels * self.window.size[0] * self.window.size[1]
    }

    /// Returns the image coordinate of a window element along an axis; `None` in the padding.
    fn image_coordinate(&self, axis: usize, position: usize, element: usize) -> Option<usize> {
        let Window { stride, padding, dilation, .. } = self.window;
        let at = (position * stride[axis] + element * dilation[axis]).checked_sub(padding[axis])?;
        (at < self.image[axis]).then_some(at)
    }
}

impl KernelOp for Unfold {
    fn name(&self) -> &str {
        "unfold"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        self.window.attributes()
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x] = inputs(self.name(), types)?;
        let sizes = Sizes::of_images(&self.window, &x.shape)?;
        let shape = Shape::from((sizes.batch, sizes.positions[0] * sizes.positions[1], sizes.row()));
        Ok(TensorType { shape, dtype: x.dtype })
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let images = inputs.first()?.shape();
        Some(each([gradient.kernel(Fold { window: self.window, image: [images[2], images[3]] }, &[])]))
    }

    kernel_code!(cpu::unfold, gpu::unfold);
}

impl KernelOp for Fold {
    fn name(&self) -> &str {
        "fold"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        let mut all = self.window.attributes();
        all.extend(self.image.map(|length| length as u64));
        all
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [rows] = inputs(self.name(), types)?;
        if !rows.dtype.is_float() {
            return Err(invalid(format!("fold expected floats, found {}", text(rows))));
        }
        let sizes = Sizes::of_rows(&self.window, self.image, &rows.shape)?;
        let shape = Shape::from([sizes.batch, sizes.channels, self.image[0], self.image[1]]);
        Ok(TensorType { shape, dtype: rows.dtype })
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn error_bound(&self, _: &[TensorType], largest: &[f64]) -> f64 {
        // An element is covered by at most as many windows as a window has elements. Each addition rounds a number of at most that many terms.
        let most = (self.window.size[0] * self.window.size[1]) as f64;
        most * most * crate::UNIT_ROUNDOFF * largest.first().copied().unwrap_or(0.0)
    }

    fn gradient<'a>(&self, _: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        Some(each([gradient.kernel(Unfold { window: self.window }, &[])]))
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        inputs[0].shape.elem_count() as u64
    }

    kernel_code!(cpu::fold, gpu::fold);
}
