//! Multi-head attention.

use super::init::{self, TensorOptions};
use super::{AttentionOptions, Linear, Mode, Module, Parameter, Visitor, linear};
use crate::{Error, ErrorKind, Result, Tensor};

/// Multi-head attention over sequences `(batch, length, width)`: [`Tensor::attention`] with input and output
/// projections.
///
/// [`forward`](Module::forward) is self-attention. [`attend`](Self::attend) takes separate queries, keys and values.
/// Parameters have the names of PyTorch's `nn.MultiheadAttention`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{AttentionOptions, Mode, Module, MultiHeadAttention};
/// use kiln::{DType, Tensor};
///
/// let layer = MultiHeadAttention::new(8, 2, &device)?;
/// let x = Tensor::randn((1, 5, 8), DType::F32, &device)?;
/// assert_eq!(layer.forward(&x, &Mode::inference())?.shape(), x.shape());
/// let memory = Tensor::randn((1, 7, 8), DType::F32, &device)?;
/// assert_eq!(layer.attend(&x, &memory, &memory, AttentionOptions::new())?.shape(), x.shape());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[doc(alias = "MultiheadAttention")]
#[doc(alias = "SelfAttention")]
pub struct MultiHeadAttention {
    /// The weights of the query, key and value projections.
    pub in_proj: InProjection,
    /// The biases of the query, key and value projections, in this order.
    pub in_proj_bias: Option<Parameter>,
    /// The output projection.
    pub out_proj: Linear,
    width: usize,
    heads: usize,
    is_causal: bool,
}

/// The weights of the query, key and value projections.
///
/// See [`MultiHeadAttention`] for an example.
#[derive(Clone, Debug)]
pub enum InProjection {
    /// `in_proj_weight`: `(3 * width, width)`, with queries, keys and values in this order.
    Joint(Parameter),
    /// `q_proj_weight`, `k_proj_weight` and `v_proj_weight`: `(width, width of the input)` each.
    Separate([Parameter; 3]),
}

impl MultiHeadAttention {
    /// Creates a layer for elements of `width` numbers, split among `heads` heads, with Xavier weights and zero
    /// biases (PyTorch's default).
    ///
    /// See [`MultiHeadAttention`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the width is not divisible by the number of heads, and the errors of
    /// [`Linear::new`].
    pub fn new(width: usize, heads: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        let options = options.into();
        let weight = init::xavier_uniform((3 * width, width), 1.0, options.clone())?;
        Self::with_projection(width, heads, InProjection::Joint(Parameter::new(&weight)?), &options)
    }

    /// Creates a layer whose keys and values have different widths from its queries (`kdim` and `vdim` of PyTorch).
    ///
    /// See [`MultiHeadAttention`] for an example.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    #[doc(alias = "kdim")]
    #[doc(alias = "vdim")]
    pub fn with_widths(
        width: usize,
        key_width: usize,
        value_width: usize,
        heads: usize,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        let options = options.into();
        let drawn = |from: usize| Parameter::new(&init::xavier_uniform((width, from), 1.0, options.clone())?);
        let weights = [drawn(width)?, drawn(key_width)?, drawn(value_width)?];
        Self::with_projection(width, heads, InProjection::Separate(weights), &options)
    }

    fn with_projection(width: usize, heads: usize, in_proj: InProjection, options: &TensorOptions) -> Result<Self> {
        if heads == 0 || !width.is_multiple_of(heads) {
            let message = format!("attention expected a width divisible by {heads} heads, found {width}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        // As in PyTorch: biases start at 0, also that of the output projection.
        let zeros = |length: usize| Parameter::new(&Tensor::zeros(length, options.dtype, &options.device)?);
        let out_proj = Linear { bias: Some(zeros(width)?), ..Linear::new(width, width, options.clone())? };
        Ok(Self { in_proj, in_proj_bias: Some(zeros(3 * width)?), out_proj, width, heads, is_causal: false })
    }

    /// Applies a causal mask: each query attends only to keys up to its own position.
    ///
    /// See [`MultiHeadAttention`] for an example.
    pub fn causal(self) -> Self {
        Self { is_causal: true, ..self }
    }

    /// Removes all biases.
    ///
    /// See [`MultiHeadAttention`] for an example.
    pub fn without_bias(self) -> Self {
        Self { in_proj_bias: None, out_proj: self.out_proj.without_bias(), ..self }
    }

    /// Attends from `queries` `(batch, m, width)` to `keys` and `values` `(batch, n, width)` and returns `(batch, m, width)`. A mask in `options`
    /// broadcasts to `(batch, heads, m, n)`.
    ///
    /// See [`MultiHeadAttention`] for an example.
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the shapes are incompatible, and the errors of [`Tensor::attention`].
    pub fn attend(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        options: AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let weights = match &self.in_proj {
            InProjection::Joint(weight) => thirds(&weight.get())?,
            InProjection::Separate(weights) => weights.iter().map(Parameter::get).collect(),
        };
        let biases = self.in_proj_bias.as_ref().map(|bias| thirds(&bias.get())).transpose()?;
        let mut parts = Vec::new();
        for (number, (name, input)) in
            [("queries", queries), ("keys", keys), ("values", values)].into_iter().enumerate()
        {
            expect_sequence(name, weights[number].shape()[1], input)?;
            let bias = biases.as_ref().map(|biases| &biases[number]);
            let projected = linear::affine(input, &weights[number], bias)?;
            let (batch, length) = (input.shape()[0], input.shape()[1]);
            let heads = projected.reshape([batch, length, self.heads, self.width / self.heads])?;
            parts.push(heads.transpose(1, 2)?);
        }
        self.merge(&parts[0], &parts[1], &parts[2], options)
    }

    /// Runs attention, concatenates the heads and projects the result.
    fn merge(&self, q: &Tensor, k: &Tensor, v: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let options = if self.is_causal { options.causal() } else { options };
        let (batch, length) = (q.shape()[0], q.shape()[2]);
        let seen = Tensor::attention(q, k, v, options)?;
        let rows = seen.transpose(1, 2)?.reshape((batch, length, self.width))?;
        self.out_proj.forward(&rows, &Mode::inference())
    }
}

impl Module for MultiHeadAttention {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let InProjection::Joint(weight) = &self.in_proj else {
            return self.attend(input, input, input, AttentionOptions::new());
        };
        expect_sequence("an input", self.width, input)?;
        // One matrix multiplication for queries, keys and values.
        let all = linear::affine(input, &weight.get(), self.in_proj_bias.as_ref().map(Parameter::get).as_ref())?;
        let (batch, length) = (input.shape()[0], input.shape()[1]);
        let all = all.reshape([batch, length, 3, self.heads, self.width / self.heads])?;
        // (3, batch, heads, length, head width)
        let all = all.permute([2, 0, 3, 1, 4])?;
        self.merge(&all.select(0, 0)?, &all.select(0, 1)?, &all.select(0, 2)?, AttentionOptions::new())
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        match &self.in_proj {
            InProjection::Joint(weight) => visitor.parameter("in_proj_weight", weight),
            InProjection::Separate(weights) => {
                for (name, weight) in ["q_proj_weight", "k_proj_weight", "v_proj_weight"].into_iter().zip(weights) {
                    visitor.parameter(name, weight);
                }
            }
        }
        visitor.optional("in_proj_bias", self.in_proj_bias.as_ref());
        visitor.module("out_proj", &self.out_proj);
    }
}

fn thirds(tensor: &Tensor) -> Result<Vec<Tensor>> {
    tensor.chunk(3, 0)
}

fn expect_sequence(what: &str, width: usize, input: &Tensor) -> Result<()> {
    if matches!(&input.shape()[..], [_, _, found] if *found == width) {
        return Ok(());
    }
    let (dtype, shape, device) = (input.dtype(), input.shape(), &input.device().info().id);
    let message = format!("attention expected {what} (batch, length, {width}), found {dtype} {shape} on {device}");
    Err(Error::new(ErrorKind::ShapeMismatch, message))
}
