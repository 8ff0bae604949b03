//! Pooling layers.

use super::{Mode, Module, PoolWindow, Visitor};
use crate::arguments::IntoPair;
use crate::{Result, Tensor};

macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident($options:ty) => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name($options);

        impl Module for $name {
            fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
                input.$method(self.0)
            }

            fn visit(&self, _: &mut Visitor<'_>) {}
        }
    )*};
}

pools! {
    /// Max pooling: [`Tensor::max_pool2d`].
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::nn::{MaxPool2d, Mode, Module, PoolWindow};
    /// use kiln::{DType, Tensor};
    ///
    /// let layer = MaxPool2d::new(PoolWindow::new(3).stride(2).padding(1));
    /// let images = Tensor::ones([4, 8, 16, 16], DType::F32, &device)?;
    /// assert_eq!(layer.forward(&images, &Mode::inference())?.dims(), [4, 8, 8, 8]);
    /// # Ok(())
    /// # }
    /// ```
    MaxPool2d(PoolWindow) => max_pool2d;
    /// Average pooling: [`Tensor::avg_pool2d`].
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::nn::{AvgPool2d, Mode, Module};
    /// use kiln::{DType, Tensor};
    ///
    /// let images = Tensor::ones([4, 8, 16, 16], DType::F32, &device)?;
    /// assert_eq!(AvgPool2d::new(2).forward(&images, &Mode::inference())?.dims(), [4, 8, 8, 8]);
    /// # Ok(())
    /// # }
    /// ```
    AvgPool2d(PoolWindow) => avg_pool2d;
    /// Adaptive average pooling to a given output size: [`Tensor::adaptive_avg_pool2d`].
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::nn::{AdaptiveAvgPool2d, Mode, Module};
    /// use kiln::{DType, Tensor};
    ///
    /// let images = Tensor::ones([4, 8, 7, 9], DType::F32, &device)?;
    /// assert_eq!(AdaptiveAvgPool2d::new((2, 2)).forward(&images, &Mode::inference())?.dims(), [4, 8, 2, 2]);
    /// # Ok(())
    /// # }
    /// ```
    AdaptiveAvgPool2d([usize; 2]) => adaptive_avg_pool2d;
}

impl MaxPool2d {
    /// Creates a layer for a window; a number or a pair sets its size.
    ///
    /// See [`MaxPool2d`] for an example.
    pub fn new(options: impl Into<PoolWindow>) -> Self {
        Self(options.into())
    }
}

impl AvgPool2d {
    /// Creates a layer for a window; a number or a pair sets its size.
    ///
    /// See [`AvgPool2d`] for an example.
    pub fn new(options: impl Into<PoolWindow>) -> Self {
        Self(options.into())
    }
}

impl AdaptiveAvgPool2d {
    /// Creates a layer with this output height and width.
    ///
    /// See [`AdaptiveAvgPool2d`] for an example.
    pub fn new(size: impl IntoPair) -> Self {
        Self(size.into_pair())
    }
}
