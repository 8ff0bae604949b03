//! Parameter initialization, with PyTorch's names.
//!
//! Layers start with PyTorch's defaults. Set another distribution afterwards:
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! # let device = kiln::Device::cpu()?;
//! use kiln::nn::init::{self, Fan, Nonlinearity};
//! use kiln::nn::Linear;
//!
//! let layer = Linear::new(256, 128, &device)?;
//! layer.weight.set(&init::kaiming_normal((128, 256), Fan::In, Nonlinearity::Relu, &device)?)?;
//! # Ok(())
//! # }
//! ```
//!
//! Numbers come from the random number generator of the device ([`Device::set_seed`]).

use crate::{DType, Device, Error, ErrorKind, Result, Shape, Tensor};

/// The dtype and device of new tensors. `&device` means `f32` on that device, `(dtype, &device)` another dtype.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{DType, nn::Linear};
///
/// assert_eq!(Linear::new(3, 2, &device)?.weight.get().dtype(), DType::F32);
/// assert_eq!(Linear::new(3, 2, (DType::F16, &device))?.weight.get().dtype(), DType::F16);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TensorOptions {
    /// The dtype.
    pub dtype: DType,
    /// The device.
    pub device: Device,
}

impl From<&Device> for TensorOptions {
    fn from(device: &Device) -> Self {
        Self { dtype: DType::F32, device: device.clone() }
    }
}

impl From<(DType, &Device)> for TensorOptions {
    fn from((dtype, device): (DType, &Device)) -> Self {
        Self { dtype, device: device.clone() }
    }
}

/// Which variance to preserve: of activations in the forward pass (fan-in), or of gradients in the backward pass
/// (fan-out).
///
/// See [`init`](self) for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// Fan-in: the number of inputs per output.
    #[default]
    In,
    /// Fan-out: the number of outputs per input.
    Out,
}

/// The activation after a layer, which determines the gain of the weights.
///
/// See [`init`](self) for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Nonlinearity {
    /// No activation, or sigmoid: a gain of 1.
    #[default]
    Linear,
    /// ReLU: a gain of √2.
    Relu,
    /// Leaky ReLU with this negative slope: a gain of √(2 / (1 + slope²)).
    LeakyRelu(f64),
    /// Tanh: a gain of 5/3.
    Tanh,
    /// SELU: a gain of 3/4.
    Selu,
}

impl Nonlinearity {
    /// Returns the gain: the factor that preserves the variance through the activation.
    ///
    /// ```
    /// use kiln::nn::init::Nonlinearity;
    ///
    /// assert_eq!(Nonlinearity::LeakyRelu(0.0).gain(), Nonlinearity::Relu.gain());
    /// ```
    #[doc(alias = "calculate_gain")]
    pub fn gain(self) -> f64 {
        match self {
            Self::Linear => 1.0,
            Self::Relu => 2f64.sqrt(),
            Self::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            // The values of PyTorch's `calculate_gain`.
            Self::Tanh => 5.0 / 3.0,
            Self::Selu => 0.75,
        }
    }
}

/// Draws numbers uniformly from `low` up to `high`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// let x = kiln::nn::init::uniform((4, 4), -0.5, 0.5, &device)?.to_vec::<f32>()?;
/// assert!(x.iter().all(|x| x.abs() <= 0.5));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `InvalidArgument` for integer dtypes, and `TooLarge` if the shape is too large.
#[doc(alias = "uniform_")]
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
    let TensorOptions { dtype, device } = options.into();
    float("uniform", dtype)?;
    // Computed in `f32` and rounded once: `f16` has too few values between 0 and 1.
    Tensor::rand(shape, DType::F32, &device)?.mul_scalar(high - low)?.add_scalar(low)?.to_dtype(dtype)
}

/// Draws normally distributed numbers with this mean and standard deviation.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// let x = kiln::nn::init::normal(1000, 5.0, 0.1, &device)?;
/// assert!((x.mean_all()?.to_scalar::<f32>()? - 5.0).abs() < 0.1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `InvalidArgument` for integer dtypes, and `TooLarge` if the shape is too large.
#[doc(alias = "normal_")]
pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
    let TensorOptions { dtype, device } = options.into();
    float("normal", dtype)?;
    Tensor::randn(shape, DType::F32, &device)?.mul_scalar(std)?.add_scalar(mean)?.to_dtype(dtype)
}

/// Draws Kaiming (He) weights, uniform in ±gain·√(3 / fan).
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::init::{Fan, Nonlinearity, kaiming_uniform};
///
/// let weight = kaiming_uniform((8, 6), Fan::In, Nonlinearity::Relu, &device)?.to_vec::<f32>()?;
/// assert!(weight.iter().all(|x| x.abs() <= 1.0)); // √2 · √(3 / 6)
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `InvalidArgument` if the shape has fewer than two axes, and for integer dtypes, and `TooLarge` if the
/// shape is too large.
#[doc(alias = "kaiming_uniform_")]
#[doc(alias = "he_uniform")]
pub fn kaiming_uniform(
    shape: impl Into<Shape>,
    fan: Fan,
    nonlinearity: Nonlinearity,
    options: impl Into<TensorOptions>,
) -> Result<Tensor> {
    let shape = shape.into();
    // The variance of a uniform number within ±b is b² / 3, hence √3 times the standard deviation.
    let bound = 3f64.sqrt() * nonlinearity.gain() / chosen("kaiming_uniform", &shape, fan)?.sqrt();
    uniform(shape, -bound, bound, options)
}

/// Draws Kaiming (He) weights, normal with a standard deviation of gain / √fan.
///
/// See [`init`](self) for an example.
///
/// # Errors
/// Same as [`kaiming_uniform`].
#[doc(alias = "kaiming_normal_")]
#[doc(alias = "he_normal")]
pub fn kaiming_normal(
    shape: impl Into<Shape>,
    fan: Fan,
    nonlinearity: Nonlinearity,
    options: impl Into<TensorOptions>,
) -> Result<Tensor> {
    let shape = shape.into();
    let std = nonlinearity.gain() / chosen("kaiming_normal", &shape, fan)?.sqrt();
    normal(shape, 0.0, std, options)
}

/// Draws Xavier (Glorot) weights, uniform in ±gain·√(6 / (fan-in + fan-out)).
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::init::{Nonlinearity, xavier_uniform};
///
/// let weight = xavier_uniform((2, 4), Nonlinearity::Linear.gain(), &device)?.to_vec::<f32>()?;
/// assert!(weight.iter().all(|x| x.abs() <= 1.0)); // √(6 / (4 + 2))
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`kaiming_uniform`].
#[doc(alias = "xavier_uniform_")]
#[doc(alias = "glorot_uniform")]
pub fn xavier_uniform(shape: impl Into<Shape>, gain: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
    let shape = shape.into();
    let (fan_in, fan_out) = fans("xavier_uniform", &shape)?;
    let bound = gain * (6.0 / (fan_in + fan_out).max(1.0)).sqrt();
    uniform(shape, -bound, bound, options)
}

/// Draws Xavier (Glorot) weights, normal with a standard deviation of gain·√(2 / (fan-in + fan-out)).
///
/// See [`xavier_uniform`] for an example.
///
/// # Errors
/// Same as [`kaiming_uniform`].
#[doc(alias = "xavier_normal_")]
#[doc(alias = "glorot_normal")]
pub fn xavier_normal(shape: impl Into<Shape>, gain: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
    let shape = shape.into();
    let (fan_in, fan_out) = fans("xavier_normal", &shape)?;
    normal(shape, 0.0, gain * (2.0 / (fan_in + fan_out).max(1.0)).sqrt(), options)
}

/// Draws uniformly from ±1/√fan_in: PyTorch's default for linear layers and convolutions.
pub(super) fn fan_in_uniform(shape: &[usize], fan_in: usize, options: &TensorOptions) -> Result<Tensor> {
    let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
    uniform(shape, -bound, bound, options.clone())
}

fn chosen(name: &str, shape: &Shape, fan: Fan) -> Result<f64> {
    let (fan_in, fan_out) = fans(name, shape)?;
    // Avoids a division by zero; a layer without inputs has no weights.
    Ok(if fan == Fan::In { fan_in } else { fan_out }.max(1.0))
}

/// Returns fan-in and fan-out of a weight `(outputs, inputs, window...)`.
fn fans(name: &str, shape: &Shape) -> Result<(f64, f64)> {
    let [outputs, inputs, window @ ..] = &shape[..] else {
        let message = format!("{name} expected a shape of at least two axes, (outputs, inputs, …), found {shape}");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    };
    let places: f64 = window.iter().map(|&length| length as f64).product();
    Ok((*inputs as f64 * places, *outputs as f64 * places))
}

fn float(name: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("{name} expected a floating-point dtype, found {dtype}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares bounds and standard deviations of large samples with the published formulas.
    #[test]
    fn distributions_have_the_spread_of_their_formula() {
        let device = &Device::cpu().unwrap();
        let shape = [40, 30, 3, 2];
        let (fan_in, fan_out): (f64, f64) = (180.0, 240.0);
        let table: [(&str, Result<Tensor>, f64, bool); 6] = [
            ("uniform", uniform(shape, -3.0, 3.0, device), 3f64.sqrt(), true),
            ("normal", normal(shape, 0.0, 0.5, device), 0.5, false),
            (
                "kaiming_uniform",
                kaiming_uniform(shape, Fan::In, Nonlinearity::LeakyRelu(5f64.sqrt()), device),
                (1.0 / (3.0 * fan_in)).sqrt(),
                true,
            ),
            (
                "kaiming_normal",
                kaiming_normal(shape, Fan::Out, Nonlinearity::Relu, device),
                (2.0 / fan_out).sqrt(),
                false,
            ),
            ("xavier_uniform", xavier_uniform(shape, 2.0, device), 2.0 * (2.0 / (fan_in + fan_out)).sqrt(), true),
            ("xavier_normal", xavier_normal(shape, 1.0, device), (2.0 / (fan_in + fan_out)).sqrt(), false),
        ];
        for (name, tensor, std, is_uniform) in table {
            let x = tensor.unwrap().to_vec::<f32>().unwrap();
            let square = x.iter().map(|x| f64::from(x * x)).sum::<f64>() / x.len() as f64;
            assert!((square.sqrt() / std - 1.0).abs() < 0.05, "{name}: {} for {std}", square.sqrt());
            let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
            let bound = std * 3f64.sqrt();
            assert_eq!(f64::from(largest) <= bound * 1.000_001, is_uniform, "{name}: {largest} for {bound}");
        }
        let half = kaiming_uniform((4, 4), Fan::In, Nonlinearity::Tanh, (DType::BF16, device)).unwrap();
        assert_eq!(half.dtype(), DType::BF16);
        let error = xavier_normal(3, 1.0, device).unwrap_err().to_string();
        assert!(error.contains("xavier_normal expected a shape of at least two axes"), "{error}");
        let error = normal(3, 0.0, 1.0, (DType::I32, device)).unwrap_err().to_string();
        assert!(error.contains("floating-point dtype, found i32"), "{error}");
    }
}
