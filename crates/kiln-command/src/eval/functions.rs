//! What can be called. Elementwise ops come from their table; the functions here are all other methods of `Tensor` that make one tensor.

use super::call::{Call, CallFault, Parameter};
use kiln::op::{self, ElementOp, Signature};
use kiln::{AttentionOptions, Tensor};
use kiln_bench::Formula;

/// A function that is not elementwise.
pub(crate) struct Function {
    name: &'static str,
    parameters: &'static [Parameter],
    doc: &'static str,
    pub(super) call: fn(&Call<'_>) -> Result<Tensor, CallFault>,
    /// How it is called with what [`facts`](super::facts) has; with `x` for each parameter that has to be given where nothing is said.
    example: Option<&'static str>,
    /// What its results are checked against.
    pub(crate) formula: Option<Formula>,
}

/// What a name stands for.
#[derive(Clone, Copy)]
pub(crate) enum Callee {
    Op(&'static ElementOp),
    Function(&'static Function),
}

impl Callee {
    /// Everything that can be called.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        op::all().iter().copied().map(Self::Op).chain(FUNCTIONS.iter().map(Self::Function))
    }

    /// What can be called under this name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|callee| callee.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            // Some ops have names that are words of Rust, with a `_` behind.
            Self::Op(op) => op.name.trim_end_matches('_'),
            Self::Function(function) => function.name,
        }
    }

    pub(crate) fn doc(self) -> &'static str {
        match self {
            Self::Op(op) => op.doc,
            Self::Function(function) => function.doc,
        }
    }

    pub(super) fn parameters(self) -> Vec<Parameter> {
        match self {
            Self::Op(op) => op.arguments.iter().map(|&name| Parameter::new(name, false, None)).collect(),
            Self::Function(function) => function.parameters.to_vec(),
        }
    }

    /// The name with the parameters: `softmax(x, axis=-1)`.
    pub(crate) fn signature(self) -> String {
        let parameters: Vec<String> = self.parameters().iter().map(ToString::to_string).collect();
        format!("{}({})", self.name(), parameters.join(", "))
    }

    /// A call of it with what [`facts`](super::facts) has.
    pub(super) fn example(self) -> String {
        match self {
            Self::Op(op) if op.signature == Signature::Select => format!("{}(mask, x, x)", self.name()),
            Self::Function(Function { example: Some(example), .. }) => (*example).to_string(),
            _ => {
                let required = self.parameters().iter().filter(|parameter| parameter.default.is_none()).count();
                format!("{}({})", self.name(), vec!["x"; required].join(", "))
            }
        }
    }
}

/// Reduces along all axes, one, or several, which are kept or left out.
fn reduce(
    x: &Tensor,
    axes: Option<Vec<isize>>,
    keepdim: bool,
    op: fn(&Tensor, &[isize]) -> kiln::Result<Tensor>,
) -> kiln::Result<Tensor> {
    let rank = x.rank() as isize;
    let axes = axes.unwrap_or_else(|| (0..rank).collect());
    let kept = op(x, &axes)?;
    if keepdim {
        return Ok(kept);
    }
    let is_reduced = |axis: usize| axes.contains(&(axis as isize)) || axes.contains(&(axis as isize - rank));
    let lengths = kept.shape().iter().enumerate().filter(|(axis, _)| !is_reduced(*axis)).map(|(_, length)| *length);
    kept.reshape(lengths.collect::<Vec<_>>())
}

/// The shape of a call, with a length of -1 replaced by what the others leave for it.
fn shape_for(call: &Call<'_>, x: &Tensor, lengths: &[isize]) -> Result<Vec<usize>, CallFault> {
    let Some(open) = lengths.iter().position(|length| *length == -1) else { return call.shape("shape") };
    let (elements, others) = (x.elements(), lengths.iter().enumerate().filter(|(axis, _)| *axis != open));
    let others: Option<Vec<usize>> = others.map(|(_, length)| usize::try_from(*length).ok()).collect();
    let product = others.as_ref().and_then(|others| others.iter().try_fold(1usize, |all, one| all.checked_mul(*one)));
    match (others, product) {
        (Some(mut shape), Some(product @ 1..)) if elements.is_multiple_of(product) => {
            shape.insert(open, elements / product);
            Ok(shape)
        }
        _ => Err(call.fault(format!("reshape expected lengths that divide {elements} elements, found {lengths:?}"))),
    }
}

fn attention(
    [queries, keys, values]: [&Tensor; 3],
    mask: Option<&Tensor>,
    scale: Option<f64>,
    causal: bool,
) -> kiln::Result<Tensor> {
    let mut options = AttentionOptions::new();
    if let Some(mask) = mask {
        options = options.mask(mask);
    }
    if let Some(scale) = scale {
        options = options.scale(scale as f32);
    }
    if causal {
        options = options.causal();
    }
    Tensor::attention(queries, keys, values, options)
}

fn diagonal_of(call: &Call<'_>, diagonal: isize) -> Result<i32, CallFault> {
    i32::try_from(diagonal).map_err(|_| call.fault(format!("expected a diagonal of 32 bits, found {diagonal}")))
}

/// Declares functions: a sentence, the name with its parameters, and the method of `Tensor`; an example, and the formula of its reference. A
/// parameter is read by the method of [`Call`] after its colon; `[...]` takes a list or all arguments that are left.
macro_rules! functions {
    (|$call:ident| $(
        $doc:literal
        $name:ident($($parameter:ident $([$rest:tt])? : $reader:ident $(= $default:expr)?),+) => $result:expr
        $(, example $example:literal)? $(, checked $formula:ident)?;
    )+) => {
        /// The functions that are not elementwise.
        static FUNCTIONS: &[Function] = &[$(Function {
            name: stringify!($name),
            parameters: &[$(Parameter::new(
                stringify!($parameter),
                !stringify!($($rest)?).is_empty(),
                functions!(@option $(stringify!($default))?),
            )),+],
            doc: $doc,
            call: |$call| {
                $(let $parameter = $call.$reader(stringify!($parameter))?;)+
                Ok($result?)
            },
            example: functions!(@option $($example)?),
            formula: functions!(@option $(Formula::$formula)?),
        }),+];
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
}

functions! { |call|
    "The sum over all axes, one, or several."
    sum(x: tensor, axis: integers_or_none = none, keepdim: flag = false) => reduce(&x, axis, keepdim, Tensor::sum_keepdim), checked Sum;
    "The mean."
    mean(x: tensor, axis: integers_or_none = none, keepdim: flag = false) => reduce(&x, axis, keepdim, Tensor::mean_keepdim), checked Mean;
    "The largest; `maximum` compares two tensors."
    max(x: tensor, axis: integers_or_none = none, keepdim: flag = false) => reduce(&x, axis, keepdim, Tensor::max_keepdim), checked Max;
    "The smallest; `minimum` compares two tensors."
    min(x: tensor, axis: integers_or_none = none, keepdim: flag = false) => reduce(&x, axis, keepdim, Tensor::min_keepdim), checked Min;
    "The place of the first largest, as u32."
    argmax(x: tensor, axis: integers_or_none = none, keepdim: flag = false) => reduce(&x, axis, keepdim, Tensor::argmax_keepdim), checked ArgMax;
    "The place of the first smallest, as u32."
    argmin(x: tensor, axis: integers_or_none = none, keepdim: flag = false) => reduce(&x, axis, keepdim, Tensor::argmin_keepdim), checked ArgMin;
    "Exponentials along an axis, divided by their sum."
    softmax(x: tensor, axis: integer = -1) => x.softmax(axis), checked Softmax;
    "The logarithm of softmax."
    log_softmax(x: tensor, axis: integer = -1) => x.log_softmax(axis), checked LogSoftmax;
    "Less the mean, divided by the standard deviation, along the last axis."
    layer_norm(x: tensor, weight: tensor_or_none = none, bias: tensor_or_none = none, eps: number = 1e-5) =>
        x.layer_norm(weight.as_ref(), bias.as_ref(), eps as f32), checked LayerNorm;
    "Divided by the root mean square along the last axis."
    rms_norm(x: tensor, weight: tensor_or_none = none, eps: number = 1e-5) => x.rms_norm(weight.as_ref(), eps as f32), checked RmsNorm;
    "With the statistics of each channel, which is axis 1."
    batch_norm(x: tensor, mean: tensor, variance: tensor, weight: tensor_or_none = none, bias: tensor_or_none = none, eps: number = 1e-5) =>
        x.batch_norm(&mean, &variance, weight.as_ref(), bias.as_ref(), eps as f32), example "batch_norm(x, x[0], x[1])";
    "The matrix product, as `a @ b`; axes before the last two are batches."
    matmul(a: tensor, b: tensor) => a.matmul(&b), checked Matmul;
    "The last two axes swapped, as `x.T`."
    T(x: tensor) => x.t();
    "Two axes swapped."
    transpose(x: tensor, one: integer, other: integer) => x.transpose(one, other), example "transpose(x, 0, 1)";
    "The axes in another order."
    permute(x: tensor, axes[...]: integers) => x.permute(&axes), example "permute(x, 1, 0)";
    "The same elements in another shape; a length of -1 is what is left."
    reshape(x: tensor, shape[...]: integers) => x.reshape(shape_for(call, &x, &shape)?), example "reshape(x, -1)";
    "The same elements along one axis."
    flatten(x: tensor) => x.flatten();
    "Repeated along axes of length 1 and along new ones before them."
    broadcast_to(x: tensor, shape[...]: shape) => x.broadcast_to(shape), example "broadcast_to(x, 2, 64, 64)";
    "Backwards along an axis."
    flip(x: tensor, axis: integer) => x.flip(axis), example "flip(x, 0)";
    "Without an axis of length 1."
    squeeze(x: tensor, axis: integer) => x.squeeze(axis), example "squeeze(x[0:1], 0)";
    "With a new axis of length 1."
    unsqueeze(x: tensor, axis: integer) => x.unsqueeze(axis), example "unsqueeze(x, 0)";
    "One after the other along an axis."
    cat(tensors[...]: tensors, axis: integer = 0) => Tensor::cat(&tensors, axis), example "cat(x, x)";
    "One after the other along a new axis."
    stack(tensors[...]: tensors, axis: integer = 0) => Tensor::stack(&tensors, axis), example "stack(x, x)";
    "The elements in another dtype."
    to(x: tensor, dtype: dtype) => x.to_dtype(dtype), example "to(x, f16)";
    "As to."
    to_dtype(x: tensor, dtype: dtype) => x.to_dtype(dtype), example "to_dtype(x, f16)";
    "For each index, the element there along an axis."
    gather(x: tensor, axis: integer, index: tensor) => x.gather(axis, &index), example "gather(x, 0, index)";
    "The slices along an axis that the indices name."
    index_select(x: tensor, axis: integer, index: tensor) => x.index_select(axis, &index), example "index_select(x, 0, index[0])";
    "The rows that the indices name."
    embedding(table: tensor, index: tensor) => table.embedding(&index), example "embedding(x, index[0])";
    "With elements of `source` at the places that the indices name."
    scatter(x: tensor, axis: integer, index: tensor, source: tensor) => x.scatter(axis, &index, &source), example "scatter(x, 0, index, x)";
    "As scatter, but added to what is there."
    scatter_add(x: tensor, axis: integer, index: tensor, source: tensor) =>
        x.scatter_add(axis, &index, &source), example "scatter_add(x, 0, index, x)";
    "A sum of products, as in einsum('ij,jk->ik', a, b)."
    einsum(equation: text, tensors[...]: tensors) => Tensor::einsum(equation, &tensors), example "einsum('ij,jk->ik', x, x)";
    "Scaled dot-product attention; scale is 1/sqrt(d) unless given."
    attention(queries: tensor, keys: tensor, values: tensor, mask: tensor_or_none = none, scale: number_or_none = none, causal: flag = false) =>
        attention([&queries, &keys, &values], mask.as_ref(), scale, causal),
        example "h = x.reshape(1, 1, 64, 64); attention(h, h, h)", checked Attention;
    "Rotary positions along the last axis but one."
    rope(x: tensor, first: count = 0, base: number = 10000) => x.rope(first, base as f32);
    "Zeros with this probability, the rest scaled up."
    dropout(x: tensor, probability: number, seed: count = 0) => x.dropout(probability as f32, seed as u64), example "dropout(x, 0.5)";
    "Evenly distributed numbers from 0 to 1; see `--seed`."
    rand(shape[...]: shape, dtype: dtype = f32) => Tensor::rand(shape, dtype, call.device), example "rand(64, 64, dtype=dtype)";
    "Normally distributed numbers; see `--seed`."
    randn(shape[...]: shape, dtype: dtype = f32) => Tensor::randn(shape, dtype, call.device), example "randn(64, 64, dtype=dtype)";
    "One number in every element."
    full(shape: shape, value: number, dtype: dtype = f32) => Tensor::full(shape, value, dtype, call.device), example "full([64, 64], 1, dtype)";
    "Zeros."
    zeros(shape[...]: shape, dtype: dtype = f32) => Tensor::zeros(shape, dtype, call.device), example "zeros(64, 64, dtype=dtype)";
    "Ones."
    ones(shape[...]: shape, dtype: dtype = f32) => Tensor::ones(shape, dtype, call.device), example "ones(64, 64, dtype=dtype)";
    "Numbers from `start` up to before `end`."
    arange(start: number, end: number, step: number = 1, dtype: dtype = f32) =>
        Tensor::arange(start, end, step, dtype, call.device), example "arange(0, 64, 1, dtype)";
    "The identity matrix."
    eye(length: count, dtype: dtype = f32) => Tensor::eye(length, dtype, call.device), example "eye(64, dtype)";
    "Ones on and below a diagonal."
    tri(rows: count, columns: count, diagonal: integer = 0, dtype: dtype = f32) =>
        Tensor::tri(rows, columns, diagonal_of(call, diagonal)?, dtype, call.device), example "tri(64, 64, 0, dtype)";
    "What is on and below a diagonal."
    tril(x: tensor, diagonal: integer = 0) => x.tril(diagonal_of(call, diagonal)?);
    "What is on and above a diagonal."
    triu(x: tensor, diagonal: integer = 0) => x.triu(diagonal_of(call, diagonal)?);
}
