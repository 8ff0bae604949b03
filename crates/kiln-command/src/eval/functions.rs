//! What can be called. Elementwise ops come from their table; the functions here are everything else.

use super::call::{Call, CallFault, name_of};
use kiln::op::{self, ElementOp, Signature};
use kiln::{AttentionOptions, Tensor};
use kiln_bench::Formula;

/// A function that is not elementwise.
pub(crate) struct Function {
    pub(super) signature: &'static str,
    pub(super) doc: &'static str,
    pub(super) call: fn(&Call<'_>) -> Result<Tensor, CallFault>,
    /// How it is called with what [`facts`](super::facts) has; `name(x)` where nothing is said.
    example: Option<&'static str>,
    /// What its results are checked against.
    pub(crate) formula: Option<Formula>,
}

impl Function {
    const fn example(mut self, example: &'static str) -> Self {
        self.example = Some(example);
        self
    }

    const fn checked(mut self, formula: Formula) -> Self {
        self.formula = Some(formula);
        self
    }
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
            Self::Function(function) => name_of(function.signature),
        }
    }

    pub(crate) fn doc(self) -> &'static str {
        match self {
            Self::Op(op) => op.doc,
            Self::Function(function) => function.doc,
        }
    }

    /// The name with the parameters: `softmax(x, axis=-1)`.
    pub(crate) fn signature(self) -> String {
        match self {
            Self::Op(op) => format!("{}({})", self.name(), op.arguments.join(", ")),
            Self::Function(function) => function.signature.to_string(),
        }
    }

    /// A call of it with what [`facts`](super::facts) has.
    pub(super) fn example(self) -> String {
        match self {
            Self::Op(op) if op.signature == Signature::Select => format!("{}(mask, x, x)", self.name()),
            Self::Op(op) => format!("{}({})", self.name(), vec!["x"; op.arity()].join(", ")),
            Self::Function(function) => {
                function.example.map_or_else(|| format!("{}(x)", self.name()), ToString::to_string)
            }
        }
    }
}

/// Over all axes, one, or several, which are kept or left out.
fn reduce(call: &Call<'_>, op: fn(&Tensor, &[isize]) -> kiln::Result<Tensor>) -> Result<Tensor, CallFault> {
    let x = call.tensor("x")?;
    let rank = x.rank() as isize;
    let axes = call.integers_or_none("axis")?.unwrap_or_else(|| (0..rank).collect());
    let kept = op(&x, &axes)?;
    if call.flag("keepdim")? {
        return Ok(kept);
    }
    let is_reduced = |axis: usize| axes.contains(&(axis as isize)) || axes.contains(&(axis as isize - rank));
    let lengths = kept.shape().iter().enumerate().filter(|(axis, _)| !is_reduced(*axis)).map(|(_, length)| *length);
    Ok(kept.reshape(lengths.collect::<Vec<_>>())?)
}

/// The shape of a call, with a length of -1 replaced by what the others leave for it.
fn shape_for(call: &Call<'_>, x: &Tensor) -> Result<Vec<usize>, CallFault> {
    let lengths = call.integers("shape")?;
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

fn attention(call: &Call<'_>) -> Result<Tensor, CallFault> {
    let (queries, keys, values) = (call.tensor("queries")?, call.tensor("keys")?, call.tensor("values")?);
    let mask = call.tensor_or_none("mask")?;
    let mut options = AttentionOptions::new();
    if let Some(mask) = &mask {
        options = options.mask(mask);
    }
    if let Some(scale) = call.number_or_none("scale")? {
        options = options.scale(scale as f32);
    }
    if call.flag("causal")? {
        options = options.causal();
    }
    Ok(Tensor::attention(&queries, &keys, &values, options)?)
}

fn to_dtype(call: &Call<'_>) -> Result<Tensor, CallFault> {
    Ok(call.tensor("x")?.to_dtype(call.dtype("dtype")?)?)
}

fn diagonal(call: &Call<'_>) -> Result<i32, CallFault> {
    let diagonal = call.integer("diagonal")?;
    i32::try_from(diagonal).map_err(|_| call.fault(format!("expected a diagonal of 32 bits, found {diagonal}")))
}

const fn function(
    signature: &'static str,
    doc: &'static str,
    call: fn(&Call<'_>) -> Result<Tensor, CallFault>,
) -> Function {
    Function { signature, doc, call, example: None, formula: None }
}

/// The functions that are not elementwise.
static FUNCTIONS: &[Function] = &[
    function("sum(x, axis=none, keepdim=false)", "The sum over all axes, one, or several.", |c| {
        reduce(c, Tensor::sum_keepdim)
    })
    .checked(Formula::Sum),
    function("mean(x, axis=none, keepdim=false)", "The mean.", |c| reduce(c, Tensor::mean_keepdim))
        .checked(Formula::Mean),
    function("max(x, axis=none, keepdim=false)", "The largest; `maximum` compares two tensors.", |c| {
        reduce(c, Tensor::max_keepdim)
    })
    .checked(Formula::Max),
    function("min(x, axis=none, keepdim=false)", "The smallest; `minimum` compares two tensors.", |c| {
        reduce(c, Tensor::min_keepdim)
    })
    .checked(Formula::Min),
    function("argmax(x, axis=none, keepdim=false)", "The place of the first largest, as u32.", |c| {
        reduce(c, Tensor::argmax_keepdim)
    })
    .checked(Formula::ArgMax),
    function("argmin(x, axis=none, keepdim=false)", "The place of the first smallest, as u32.", |c| {
        reduce(c, Tensor::argmin_keepdim)
    })
    .checked(Formula::ArgMin),
    function("softmax(x, axis=-1)", "Exponentials along an axis, divided by their sum.", |c| {
        Ok(c.tensor("x")?.softmax(c.integer("axis")?)?)
    })
    .checked(Formula::Softmax),
    function("log_softmax(x, axis=-1)", "The logarithm of softmax.", |c| {
        Ok(c.tensor("x")?.log_softmax(c.integer("axis")?)?)
    })
    .checked(Formula::LogSoftmax),
    function(
        "layer_norm(x, weight=none, bias=none, eps=1e-5)",
        "Less the mean, divided by the standard deviation, along the last axis.",
        |c| {
            let (weight, bias) = (c.tensor_or_none("weight")?, c.tensor_or_none("bias")?);
            Ok(c.tensor("x")?.layer_norm(weight.as_ref(), bias.as_ref(), c.number("eps")? as f32)?)
        },
    )
    .checked(Formula::LayerNorm),
    function("rms_norm(x, weight=none, eps=1e-5)", "Divided by the root mean square along the last axis.", |c| {
        let weight = c.tensor_or_none("weight")?;
        Ok(c.tensor("x")?.rms_norm(weight.as_ref(), c.number("eps")? as f32)?)
    })
    .checked(Formula::RmsNorm),
    function(
        "batch_norm(x, mean, variance, weight=none, bias=none, eps=1e-5)",
        "With the statistics of each channel, which is axis 1.",
        |c| {
            let (weight, bias) = (c.tensor_or_none("weight")?, c.tensor_or_none("bias")?);
            let (mean, variance, eps) = (c.tensor("mean")?, c.tensor("variance")?, c.number("eps")? as f32);
            Ok(c.tensor("x")?.batch_norm(&mean, &variance, weight.as_ref(), bias.as_ref(), eps)?)
        },
    )
    .example("batch_norm(x, x[0], x[1])"),
    function("matmul(a, b)", "The matrix product, as `a @ b`; axes before the last two are batches.", |c| {
        Ok(c.tensor("a")?.matmul(&c.tensor("b")?)?)
    })
    .example("matmul(x, x)")
    .checked(Formula::Matmul),
    function("T(x)", "The last two axes swapped, as `x.T`.", |c| Ok(c.tensor("x")?.t()?)),
    function("transpose(x, one, other)", "Two axes swapped.", |c| {
        Ok(c.tensor("x")?.transpose(c.integer("one")?, c.integer("other")?)?)
    })
    .example("transpose(x, 0, 1)"),
    function("permute(x, axes...)", "The axes in another order.", |c| {
        Ok(c.tensor("x")?.permute(&c.integers("axes")?)?)
    })
    .example("permute(x, 1, 0)"),
    function("reshape(x, shape...)", "The same elements in another shape; a length of -1 is what is left.", |c| {
        let x = c.tensor("x")?;
        Ok(x.reshape(shape_for(c, &x)?)?)
    })
    .example("reshape(x, -1)"),
    function("flatten(x)", "The same elements along one axis.", |c| Ok(c.tensor("x")?.flatten()?)),
    function("broadcast_to(x, shape...)", "Repeated along axes of length 1 and along new ones before them.", |c| {
        Ok(c.tensor("x")?.broadcast_to(c.shape("shape")?)?)
    })
    .example("broadcast_to(x, 2, 64, 64)"),
    function("flip(x, axis)", "Backwards along an axis.", |c| Ok(c.tensor("x")?.flip(c.integer("axis")?)?))
        .example("flip(x, 0)"),
    function("squeeze(x, axis)", "Without an axis of length 1.", |c| Ok(c.tensor("x")?.squeeze(c.integer("axis")?)?))
        .example("squeeze(x[0:1], 0)"),
    function("unsqueeze(x, axis)", "With a new axis of length 1.", |c| {
        Ok(c.tensor("x")?.unsqueeze(c.integer("axis")?)?)
    })
    .example("unsqueeze(x, 0)"),
    function("cat(tensors..., axis=0)", "One after the other along an axis.", |c| {
        Ok(Tensor::cat(&c.tensors("tensors")?, c.integer("axis")?)?)
    })
    .example("cat(x, x)"),
    function("stack(tensors..., axis=0)", "One after the other along a new axis.", |c| {
        Ok(Tensor::stack(&c.tensors("tensors")?, c.integer("axis")?)?)
    })
    .example("stack(x, x)"),
    function("to(x, dtype)", "The elements in another dtype.", to_dtype).example("to(x, f16)"),
    function("to_dtype(x, dtype)", "As to.", to_dtype).example("to_dtype(x, f16)"),
    function("gather(x, axis, index)", "For each index, the element there along an axis.", |c| {
        Ok(c.tensor("x")?.gather(c.integer("axis")?, &c.tensor("index")?)?)
    })
    .example("gather(x, 0, index)"),
    function("index_select(x, axis, index)", "The slices along an axis that the indices name.", |c| {
        Ok(c.tensor("x")?.index_select(c.integer("axis")?, &c.tensor("index")?)?)
    })
    .example("index_select(x, 0, index[0])"),
    function("embedding(table, index)", "The rows that the indices name.", |c| {
        Ok(c.tensor("table")?.embedding(&c.tensor("index")?)?)
    })
    .example("embedding(x, index[0])"),
    function(
        "scatter(x, axis, index, source)",
        "With elements of `source` at the places that the indices name.",
        |c| Ok(c.tensor("x")?.scatter(c.integer("axis")?, &c.tensor("index")?, &c.tensor("source")?)?),
    )
    .example("scatter(x, 0, index, x)"),
    function("scatter_add(x, axis, index, source)", "As scatter, but added to what is there.", |c| {
        Ok(c.tensor("x")?.scatter_add(c.integer("axis")?, &c.tensor("index")?, &c.tensor("source")?)?)
    })
    .example("scatter_add(x, 0, index, x)"),
    function("einsum(equation, tensors...)", "A sum of products, as in einsum('ij,jk->ik', a, b).", |c| {
        Ok(Tensor::einsum(c.text("equation")?, &c.tensors("tensors")?)?)
    })
    .example("einsum('ij,jk->ik', x, x)"),
    function(
        "attention(queries, keys, values, mask=none, scale=none, causal=false)",
        "Scaled dot-product attention; scale is 1/sqrt(d) unless given.",
        attention,
    )
    .example("h = x.reshape(1, 1, 64, 64); attention(h, h, h)")
    .checked(Formula::Attention),
    function("rope(x, first=0, base=10000)", "Rotary positions along the last axis but one.", |c| {
        Ok(c.tensor("x")?.rope(c.count("first")?, c.number("base")? as f32)?)
    }),
    function("dropout(x, probability, seed=0)", "Zeros with this probability, the rest scaled up.", |c| {
        Ok(c.tensor("x")?.dropout(c.number("probability")? as f32, c.count("seed")? as u64)?)
    })
    .example("dropout(x, 0.5)"),
    function("rand(shape..., dtype=f32)", "Evenly distributed numbers from 0 to 1; see `--seed`.", |c| {
        Ok(Tensor::rand(c.shape("shape")?, c.dtype("dtype")?, c.device)?)
    })
    .example("rand(64, 64, dtype=dtype)"),
    function("randn(shape..., dtype=f32)", "Normally distributed numbers; see `--seed`.", |c| {
        Ok(Tensor::randn(c.shape("shape")?, c.dtype("dtype")?, c.device)?)
    })
    .example("randn(64, 64, dtype=dtype)"),
    function("full(shape, value, dtype=f32)", "One number in every element.", |c| {
        Ok(Tensor::full(c.shape("shape")?, c.number("value")?, c.dtype("dtype")?, c.device)?)
    })
    .example("full([64, 64], 1, dtype)"),
    function("zeros(shape..., dtype=f32)", "Zeros.", |c| {
        Ok(Tensor::zeros(c.shape("shape")?, c.dtype("dtype")?, c.device)?)
    })
    .example("zeros(64, 64, dtype=dtype)"),
    function("ones(shape..., dtype=f32)", "Ones.", |c| {
        Ok(Tensor::ones(c.shape("shape")?, c.dtype("dtype")?, c.device)?)
    })
    .example("ones(64, 64, dtype=dtype)"),
    function("arange(start, end, step=1, dtype=f32)", "Numbers from `start` up to before `end`.", |c| {
        let (start, end, step) = (c.number("start")?, c.number("end")?, c.number("step")?);
        Ok(Tensor::arange(start, end, step, c.dtype("dtype")?, c.device)?)
    })
    .example("arange(0, 64, 1, dtype)"),
    function("eye(length, dtype=f32)", "The identity matrix.", |c| {
        Ok(Tensor::eye(c.count("length")?, c.dtype("dtype")?, c.device)?)
    })
    .example("eye(64, dtype)"),
    function("tri(rows, columns, diagonal=0, dtype=f32)", "Ones on and below a diagonal.", |c| {
        let (rows, columns) = (c.count("rows")?, c.count("columns")?);
        Ok(Tensor::tri(rows, columns, diagonal(c)?, c.dtype("dtype")?, c.device)?)
    })
    .example("tri(64, 64, 0, dtype)"),
    function("tril(x, diagonal=0)", "What is on and below a diagonal.", |c| Ok(c.tensor("x")?.tril(diagonal(c)?)?)),
    function("triu(x, diagonal=0)", "What is on and above a diagonal.", |c| Ok(c.tensor("x")?.triu(diagonal(c)?)?)),
];
