//! Counter-based random numbers: a function of a key and the element index, so the bits are the same on every device.

use super::Tensor;
use super::check::{self, Name, invalid};
use crate::{DType, Device, Result, Shape};

impl Tensor {
    /// Creates uniformly distributed numbers from 0, inclusive, to 1, exclusive. Each call takes the next key of the
    /// device; see [`Device::set_seed`].
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::rand(1000, kiln::DType::F32, &device)?;
    /// assert!((x.mean_all()?.to_scalar::<f32>()? - 0.5).abs() < 0.1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, and `TooLarge` if the shape is too large.
    pub fn rand(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        let shape = random_shape("rand", shape, dtype)?;
        let uniform = Self::random_words(&shape, device.next_key(), device)?.uniform()?;
        // Clamp to the largest 16-bit number below 1: rounding must not reach 1.
        let largest = match dtype {
            DType::F16 => 1.0 - 2f64.powi(-11),
            DType::BF16 => 1.0 - 2f64.powi(-8),
            _ => 1.0,
        };
        uniform.minimum(largest)?.to_dtype(dtype)
    }

    /// Creates normally distributed numbers with mean 0 and variance 1. Each call takes the next key of the device;
    /// see [`Device::set_seed`].
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// device.set_seed(7);
    /// let x = kiln::Tensor::randn(1000, kiln::DType::F32, &device)?;
    /// assert!(x.mean_all()?.to_scalar::<f32>()?.abs() < 0.1);
    /// device.set_seed(7);
    /// assert_eq!(kiln::Tensor::randn(1000, kiln::DType::F32, &device)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, and `TooLarge` if the shape is too large.
    pub fn randn(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        let shape = random_shape("randn", shape, dtype)?;
        let one = Self::random_words(&shape, device.next_key(), device)?;
        let other = Self::random_words(&shape, device.next_key(), device)?;
        one.normal(&other)?.to_dtype(dtype)
    }

    /// Draws numbers as [`rand`](Self::rand) does, with the shape, dtype and device of this tensor.
    ///
    /// See [`rand`](Self::rand) for an example.
    ///
    /// # Errors
    /// Same as [`rand`](Self::rand).
    pub fn rand_like(&self) -> Result<Self> {
        Self::rand(self.shape(), self.dtype(), self.device())
    }

    /// Draws numbers as [`randn`](Self::randn) does, with the shape, dtype and device of this tensor.
    ///
    /// See [`randn`](Self::randn) for an example.
    ///
    /// # Errors
    /// Same as [`randn`](Self::randn).
    pub fn randn_like(&self) -> Result<Self> {
        Self::randn(self.shape(), self.dtype(), self.device())
    }

    /// Sets elements to 0 with this probability, and scales the others to preserve the mean. The same seed drops the
    /// same elements.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::ones(1000, kiln::DType::F32, &device)?;
    /// let y = x.dropout(0.5, 1)?.to_vec::<f32>()?;
    /// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
    /// assert!((400..600).contains(&y.iter().filter(|&&y| y == 0.0).count()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the probability is not from 0 up to 1, and `Unsupported` for integer dtypes.
    pub fn dropout(&self, probability: f32, seed: u64) -> Result<Self> {
        check::float("dropout", self)?;
        if !(0.0..1.0).contains(&probability) {
            let name = Name(self);
            return Err(invalid(format!(
                "dropout expected a probability of at least 0 and below 1, found {probability} for {name}"
            )));
        }
        let uniform = Self::random_words(self.shape(), crate::device::mix(seed), self.device())?.uniform()?;
        let keep = uniform.ge(&uniform.like(f64::from(probability))?)?;
        // Inverted dropout: the kept elements are scaled up, so that the expected value does not change.
        keep.where_(&self.mul_scalar(1.0 / (1.0 - f64::from(probability)))?, &self.like(0.0)?)
    }

    /// Returns 32 random bits per element for a key.
    fn random_words(shape: &Shape, key: u32, device: &Device) -> Result<Self> {
        // Counter-based (Threefry): the bits of element i depend on i and the key only, not on the device or on the
        // order of threads.
        let key = Self::splat("random", shape.clone(), f64::from(key), DType::U32, device)?;
        Self::iota(shape, device).random_bits(&key)
    }
}

fn random_shape(op: &str, shape: impl Into<Shape>, dtype: DType) -> Result<Shape> {
    let shape = shape.into().checked().map_err(|error| error.context(op.to_string()))?;
    if dtype.is_float() {
        return Ok(shape);
    }
    Err(invalid(format!("{op} expected f16, bf16 or f32, found {dtype} for {shape}; convert the result with to_dtype")))
}
