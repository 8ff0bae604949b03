//! Pooling over images and sequences.

use super::Tensor;
use super::check::{self, Name, Within, invalid, mismatch};
use crate::{DType, Result};
use kiln_kernels::pool::{Pool, PoolOp};
use kiln_kernels::window::Window;
use std::sync::Arc;

/// A pooling window: size, stride and padding.
///
/// A number or a pair `(vertical, horizontal)` is a window of that size with a stride equal to its size, as in
/// PyTorch.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::PoolWindow;
/// use kiln::{DType, Tensor};
///
/// let x = Tensor::ones([1, 3, 8, 8], DType::F32, &device)?;
/// assert_eq!(x.max_pool2d(2)?.dims(), [1, 3, 4, 4]);
/// assert_eq!(x.max_pool2d(PoolWindow::new(3).stride(2).padding(1))?.dims(), [1, 3, 4, 4]);
/// assert_eq!(x.avg_pool2d((2, 4))?.dims(), [1, 3, 4, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct PoolWindow {
    size: [usize; 2],
    stride: Option<[usize; 2]>,
    padding: [usize; 2],
    counts_padding: bool,
}

/// A vertical and a horizontal length: one number for both, or a pair.
///
/// See [`PoolWindow`] for an example.
pub trait IntoPair {
    /// Returns the vertical and the horizontal length.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::arguments::IntoPair;
    ///
    /// assert_eq!((3usize.into_pair(), (3, 5).into_pair()), ([3, 3], [3, 5]));
    /// # Ok(())
    /// # }
    /// ```
    fn into_pair(self) -> [usize; 2];
}

impl IntoPair for usize {
    fn into_pair(self) -> [usize; 2] {
        [self, self]
    }
}

impl IntoPair for (usize, usize) {
    fn into_pair(self) -> [usize; 2] {
        self.into()
    }
}

impl IntoPair for [usize; 2] {
    fn into_pair(self) -> [usize; 2] {
        self
    }
}

impl PoolWindow {
    /// Creates a window of this size, with a stride equal to its size.
    ///
    /// See [`PoolWindow`] for an example.
    pub fn new(size: impl IntoPair) -> Self {
        Self { size: size.into_pair(), stride: None, padding: [0, 0], counts_padding: true }
    }

    /// Sets the stride.
    ///
    /// See [`PoolWindow`] for an example.
    pub fn stride(self, stride: impl IntoPair) -> Self {
        Self { stride: Some(stride.into_pair()), ..self }
    }

    /// Sets the padding on each side of the image, at most half the window size. Padding is never the maximum, and
    /// counts as 0 in a mean.
    ///
    /// See [`PoolWindow`] for an example.
    pub fn padding(self, padding: impl IntoPair) -> Self {
        Self { padding: padding.into_pair(), ..self }
    }

    /// Excludes padding from means (PyTorch's `count_include_pad=False`).
    ///
    /// See [`PoolWindow`] for an example.
    #[doc(alias = "count_include_pad")]
    pub fn without_counting_padding(self) -> Self {
        Self { counts_padding: false, ..self }
    }

    fn window(&self) -> Window {
        let stride = self.stride.unwrap_or(self.size);
        Window { size: self.size, stride, padding: self.padding, dilation: [1, 1] }
    }

    /// Returns the window over an image of one row, with the horizontal lengths. A pair of different lengths is an
    /// error, because one of them would be ignored.
    fn in_one_row(self, op: &str) -> Result<Self> {
        let Self { size, stride, padding, counts_padding } = self;
        for (what, lengths) in [("size", Some(size)), ("stride", stride), ("padding", Some(padding))] {
            if let Some([down, across]) = lengths.filter(|lengths| lengths[0] != lengths[1]) {
                return Err(invalid(format!("{op} expected one number as {what}, found the pair ({down}, {across})")));
            }
        }
        Ok(Self {
            size: [1, size[1]],
            stride: stride.map(|stride| [1, stride[1]]),
            padding: [0, padding[1]],
            counts_padding,
        })
    }
}

impl<T: IntoPair> From<T> for PoolWindow {
    fn from(size: T) -> Self {
        Self::new(size)
    }
}

/// Maximum number of parts of different lengths along an axis of [`Tensor::adaptive_avg_pool2d`]: each part is a
/// separate op.
const MAX_PARTS: usize = 1 << 12;

impl Tensor {
    /// Computes max pooling over `(batch, channels, height, width)`. NaN propagates.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::arange(0.0, 16.0, 1.0, kiln::DType::F32, &device)?.reshape([1, 1, 4, 4])?;
    /// assert_eq!(x.max_pool2d(2)?.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the rank is not 4, the image is empty, or the window is larger than the padded
    /// image, and `InvalidArgument` if the window is empty, the stride is 0, or the padding is more than half the
    /// window.
    #[doc(alias = "max_pool2d_with_stride")]
    pub fn max_pool2d(&self, options: impl Into<PoolWindow>) -> Result<Self> {
        let options = options.into();
        self.images("max_pool2d")?;
        Self::kernel(Arc::new(Pool { op: PoolOp::Max, window: options.window() }), &[self]).within("max_pool2d")
    }

    /// Computes average pooling over `(batch, channels, height, width)`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::arange(0.0, 16.0, 1.0, kiln::DType::F32, &device)?.reshape([1, 1, 4, 4])?;
    /// assert_eq!(x.avg_pool2d(2)?.to_vec::<f32>()?, [2.5, 4.5, 10.5, 12.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Unsupported` for integer dtypes. Otherwise same as [`max_pool2d`](Self::max_pool2d).
    #[doc(alias = "avg_pool2d_with_stride")]
    #[doc(alias = "mean_pool")]
    pub fn avg_pool2d(&self, options: impl Into<PoolWindow>) -> Result<Self> {
        let options = options.into();
        check::float("avg_pool2d", self)?;
        let [_, _, height, width] = self.images("avg_pool2d")?;
        let pool = Pool { op: PoolOp::Sum, window: options.window() };
        // Sums may overflow 16 bits although their means do not, so they are computed in `f32`.
        let sum = |x: &Self| -> Result<Self> {
            Self::kernel(Arc::new(pool), &[&x.to_dtype(DType::F32)?]).within("avg_pool2d")
        };
        let mean = if options.counts_padding || options.padding == [0, 0] {
            // Divide as PyTorch does: multiplying by the reciprocal rounds twice.
            sum(self)?.div_scalar((options.size[0] * options.size[1]) as f64)?
        } else {
            // A sum over ones counts the elements of each window that are not padding.
            sum(self)?.div(&sum(&Self::ones([1, 1, height, width], DType::F32, self.device())?)?)?
        };
        mean.to_dtype(self.dtype())
    }

    /// Computes max pooling over `(batch, channels, length)`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[[[1.0f32, 5.0, 2.0, 3.0]]], &device)?;
    /// assert_eq!(x.max_pool1d(2)?.to_vec::<f32>()?, [5.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the rank is not 3, and `InvalidArgument` if a window parameter is a pair of
    /// different numbers. Otherwise same as [`max_pool2d`](Self::max_pool2d).
    pub fn max_pool1d(&self, options: impl Into<PoolWindow>) -> Result<Self> {
        let window = options.into().in_one_row("max_pool1d")?;
        let result = self.sequences("max_pool1d")?.max_pool2d(window).within("max_pool1d");
        result?.squeeze(2)
    }

    /// Computes average pooling over `(batch, channels, length)`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[[[1.0f32, 5.0, 2.0, 3.0]]], &device)?;
    /// assert_eq!(x.avg_pool1d(2)?.to_vec::<f32>()?, [3.0, 2.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the rank is not 3, and `InvalidArgument` if a window parameter is a pair of
    /// different numbers. Otherwise same as [`avg_pool2d`](Self::avg_pool2d).
    pub fn avg_pool1d(&self, options: impl Into<PoolWindow>) -> Result<Self> {
        check::float("avg_pool1d", self)?;
        let window = options.into().in_one_row("avg_pool1d")?;
        let result = self.sequences("avg_pool1d")?.avg_pool2d(window).within("avg_pool1d");
        result?.squeeze(2)
    }

    /// Computes adaptive average pooling of `(batch, channels, height, width)` to images of `size`. Part `i` of `n`
    /// along an axis ranges from `floor(i * length / n)` to `ceil((i + 1) * length / n)`, exclusive, as in PyTorch.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::arange(0.0, 12.0, 1.0, kiln::DType::F32, &device)?.reshape([1, 1, 3, 4])?;
    /// assert_eq!(x.adaptive_avg_pool2d(1)?.to_vec::<f32>()?, [5.5]);
    /// assert_eq!(x.adaptive_avg_pool2d((2, 2))?.to_vec::<f32>()?, [2.5, 4.5, 6.5, 8.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the rank is not 4, `InvalidArgument` if a length of the result is 0 or the image is
    /// empty, and `Unsupported` for integer dtypes.
    #[doc(alias = "global_avg_pool")]
    pub fn adaptive_avg_pool2d(&self, size: impl IntoPair) -> Result<Self> {
        const NAME: &str = "adaptive_avg_pool2d";
        check::float(NAME, self)?;
        let ([down, across], [_, _, height, width]) = (size.into_pair(), self.images(NAME)?);
        if [down, across, height, width].contains(&0) {
            let found = Name(self);
            return Err(invalid(format!("{NAME} expected sizes of at least 1, found ({down}, {across}) for {found}")));
        }
        if [down, across] == [1, 1] {
            return self.mean_keepdim((2, 3));
        }
        if height % down == 0 && width % across == 0 {
            return self.avg_pool2d((height / down, width / across)).within(NAME);
        }
        if down.max(across) > MAX_PARTS {
            let found = Name(self);
            let message = format!("{NAME} expected at most {MAX_PARTS} parts, found ({down}, {across}) for {found}");
            return Err(check::unsupported(message));
        }
        let along = |x: &Self, axis: usize, length: usize, parts: usize| {
            let mean = |part: usize| {
                let range = part * length / parts..((part + 1) * length).div_ceil(parts);
                x.slice(axis, range)?.mean_keepdim(axis)
            };
            Self::cat(&(0..parts).map(mean).collect::<Result<Vec<_>>>()?, axis)
        };
        let x = self.to_dtype(DType::F32)?;
        // Separable: every column of a part has the same number of rows, so the mean of the column means is the mean.
        along(&along(&x, 2, height, down)?, 3, width, across)?.to_dtype(self.dtype())
    }

    /// Returns the lengths of a batch of images.
    fn images(&self, name: &str) -> Result<[usize; 4]> {
        self.dims()
            .try_into()
            .map_err(|_| mismatch(format!("{name} expected (batch, channels, height, width), found {}", Name(self))))
    }

    /// Returns sequences as images of one row.
    fn sequences(&self, name: &str) -> Result<Self> {
        if self.rank() != 3 {
            return Err(mismatch(format!("{name} expected (batch, channels, length), found {}", Name(self))));
        }
        self.unsqueeze(2)
    }
}
