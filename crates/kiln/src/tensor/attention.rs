//! Attention and rotary position embeddings.

use super::Tensor;
use super::check::{self, Name, mismatch, names, unsupported};
use crate::{DType, Result, Shape};
use kiln_kernels::attention::Attention;
use std::sync::Arc;

/// Options of [`Tensor::attention`].
///
/// ```
/// let options = kiln::nn::AttentionOptions::new().causal().scale(0.125);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct AttentionOptions<'a> {
    scale: Option<f32>,
    is_causal: bool,
    mask: Option<&'a Tensor>,
}

impl<'a> AttentionOptions<'a> {
    /// Creates the defaults: scores scaled by 1/√d for queries of length d, no mask.
    ///
    /// See [`AttentionOptions`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the factor of the scores. The default is 1/√d for queries of length d.
    ///
    /// See [`AttentionOptions`] for an example.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Applies a causal mask: each query attends to keys up to its own position; the last query attends to all keys.
    ///
    /// See [`AttentionOptions`] for an example.
    pub fn causal(mut self) -> Self {
        self.is_causal = true;
        self
    }

    /// Sets a mask: a `u8` tensor that broadcasts to `(batch, heads, queries, keys)`, 0 for masked keys. A padding
    /// mask has the shape `(batch, 1, 1, keys)`.
    ///
    /// See [`AttentionOptions`] for an example.
    pub fn mask(mut self, mask: &'a Tensor) -> Self {
        self.mask = Some(mask);
        self
    }
}

impl Tensor {
    /// Computes scaled dot-product attention, `softmax(queries @ keysᵀ * scale) @ values`, in one kernel that never
    /// stores the score matrix.
    ///
    /// Queries have the shape `(batch, heads, m, d)`, keys `(batch, heads, n, d)`, values `(batch, heads, n, e)`;
    /// leading axes may be missing from all three. A query with all keys masked gives zeros. Masked keys and values
    /// must be finite: their weight is 0, but 0 times infinity is NaN. On a GPU, values have at most 256 elements
    /// each.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::nn::AttentionOptions;
    /// use kiln::{DType, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0], (1, 1, 2, 2), &device)?;
    /// let y = Tensor::attention(&x, &x, &x, AttentionOptions::new().causal())?;
    /// assert_eq!(y.to_vec::<f32>()?[..2], [1.0, 0.0]); // the first query sees the first key only
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the shapes are incompatible, `InvalidArgument` if dtypes or devices differ, and
    /// `Unsupported` for integer dtypes, or if the mask is not `u8`.
    pub fn attention(queries: &Self, keys: &Self, values: &Self, options: AttentionOptions<'_>) -> Result<Self> {
        let all = [queries, keys, values];
        check::same_device("attention", &all)?;
        check::same_dtype("attention", &all)?;
        check::float("attention", queries)?;
        let wrong = |what: &str| mismatch(format!("attention expected {what}, found {}", names(&all)));
        let rank = queries.rank();
        if !(2..=4).contains(&rank) || keys.rank() != rank || values.rank() != rank {
            return Err(wrong("queries, keys and values with the same two to four axes"));
        }
        let whole = |tensor: &Self| {
            let front = std::iter::repeat_n(1, 4 - rank);
            tensor.reshape(front.chain(tensor.shape().iter().copied()).collect::<Shape>())
        };
        let (q, k, v) = (whole(queries)?, whole(keys)?, whole(values)?);
        let batch: Shape = q.shape()[..2].iter().copied().collect();
        let fits = [&k, &v].iter().all(|tensor| tensor.shape()[..2] == batch[..])
            && q.shape()[3] == k.shape()[3]
            && k.shape()[2] == v.shape()[2];
        if !fits {
            return Err(wrong("(batch, heads, m, d), (batch, heads, n, d) and (batch, heads, n, e)"));
        }
        // 1 / √d keeps the variance of the scores independent of d. The maximum avoids a division by zero for empty
        // heads.
        let scale = options.scale.unwrap_or_else(|| (q.shape()[3].max(1) as f32).sqrt().recip());
        let op = Attention { scale, causal: options.is_causal, has_mask: options.mask.is_some() };
        let result = match options.mask {
            None => Self::kernel(Arc::new(op), &[&q, &k, &v])?,
            Some(mask) => {
                check::same_device("attention", &[queries, mask])?;
                if !matches!(mask.dtype(), DType::U8 | DType::Bool) {
                    let found = Name(mask);
                    return Err(unsupported(format!(
                        "attention expected a mask of u8 or bool, found {found}; convert it with to_dtype"
                    )));
                }
                let mask = &mask.to_dtype(DType::U8)?;
                let scores = Shape::from([batch[0], batch[1], q.shape()[2], k.shape()[2]]);
                if mask.shape().broadcast(&scores).as_ref() != Some(&scores) {
                    let found = Name(mask);
                    let message = format!(
                        "attention expected a mask that broadcasts to {scores}, found {found} for {}",
                        names(&all)
                    );
                    return Err(mismatch(message));
                }
                Self::kernel(Arc::new(op), &[&q, &k, &v, &mask.broadcast_unchecked(&scores)?])?
            }
        };
        let shape: Shape = queries.shape()[..rank - 1].iter().copied().chain([v.shape()[3]]).collect();
        result.reshape(shape)
    }

    /// Applies rotary position embeddings (RoPE): along the last axis, which has an even length `d`, element `i` of
    /// the first half and element `i` of the second are rotated by the angle `position * base.powf(-2 i / d)`.
    /// Positions count from `first` along the second-to-last axis; angles beyond 2^20 count as 0.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 0.0, 1.0, 0.0], (2, 2), &device)?;
    /// let y = x.rope(0, 10_000.0)?.to_vec::<f32>()?;
    /// assert_eq!(y[..2], [1.0, 0.0]); // position 0
    /// assert!((y[2] - 1f32.cos()).abs() < 1e-6 && (y[3] - 1f32.sin()).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if there are fewer than two axes or the last has an odd length, and `Unsupported` for
    /// integer dtypes.
    pub fn rope(&self, first: usize, base: f32) -> Result<Self> {
        check::float("rope", self)?;
        let &[.., positions, length] = &self.shape()[..] else {
            return Err(mismatch(format!("rope expected at least two axes, found {}", Name(self))));
        };
        if !length.is_multiple_of(2) {
            return Err(mismatch(format!("rope expected a last axis of even length, found {}", Name(self))));
        }
        let (half, device) = (length / 2, self.device());
        let (position, pair) = Self::row_and_column(positions, half, device)?;
        let position = position.to_dtype(DType::F32)?.add_scalar(first as f64)?;
        // base^(-2 * pair / length) as exp(pair * step): the logarithm is computed once, in `f64`.
        let step = -2.0 * f64::from(base).ln() / length.max(1) as f64;
        let angle = position.mul(&pair.to_dtype(DType::F32)?.mul_scalar(step)?.exp()?)?;
        let (sine, cosine) = (angle.sin()?, angle.cos()?);
        // Pairs element i with element i + length / 2, as GPT-NeoX and Hugging Face do, not with its neighbour.
        let wide = self.to_dtype(DType::F32)?;
        let (one, other) = (wide.slice(-1, ..half)?, wide.slice(-1, half..)?);
        let turned = [
            one.mul(&cosine)?.sub(&other.mul(&sine)?)?.to_dtype(self.dtype())?,
            one.mul(&sine)?.add(&other.mul(&cosine)?)?.to_dtype(self.dtype())?,
        ];
        Self::cat(&turned, -1)
    }
}
