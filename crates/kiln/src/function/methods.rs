//! The table of [`Tensor`] methods that are not elementwise and return one tensor, by name.

use super::{Call, CallError, Parameter};
use crate::arguments::Axes;
use crate::nn::{AttentionOptions, PoolWindow};
use crate::{DType, Error, ErrorKind, Result, Tensor};

/// A method of [`Tensor`] that returns one tensor. See [`Function`](super::Function) for an example.
#[derive(Debug)]
pub struct Method {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) parameters: &'static [Parameter],
    pub(super) call: fn(&mut Call<'_>) -> Result<Tensor, CallError>,
}

/// Declares methods: a sentence, the name with typed parameters, and the call. `[...]` marks a parameter that takes a list, or all arguments that
/// are left.
macro_rules! methods {
    (|$device:ident| $(
        #[doc = $doc:literal]
        $name:ident($($parameter:ident $([$rest:tt])? : $ty:ty $(= $default:expr)?),+) => $result:expr;
    )+) => {
        pub(super) static ALL: &[Method] = &[$(Method {
            name: stringify!($name),
            doc: $doc,
            parameters: &[$(Parameter {
                name: stringify!($parameter),
                takes_rest: !stringify!($($rest)?).is_empty(),
                default: methods!(@default $($default)?),
            }),+],
            call: |call| {
                $(let $parameter = call.read::<$ty>()?;)+
                let $device = call.device;
                let _ = $device;
                Ok($result?)
            },
        }),+];
    };
    (@default) => { None };
    (@default $default:expr) => { Some(stringify!($default)) };
}

methods! { |device|
    /// The sum over all axes, or over the given ones.
    sum(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::sum, Tensor::sum_keepdim]);
    /// The mean over all axes, or over the given ones.
    mean(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::mean, Tensor::mean_keepdim]);
    /// The largest element; `maximum` compares two tensors.
    max(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::max, Tensor::max_keepdim]);
    /// The smallest element; `minimum` compares two tensors.
    min(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::min, Tensor::min_keepdim]);
    /// The index of the first largest element, as u32.
    argmax(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::argmax, Tensor::argmax_keepdim]);
    /// The index of the first smallest element, as u32.
    argmin(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::argmin, Tensor::argmin_keepdim]);
    /// The unbiased variance (divided by n - 1).
    var(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::var, Tensor::var_keepdim]);
    /// The standard deviation: the square root of the unbiased variance.
    std(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::std, Tensor::std_keepdim]);
    /// The L2 norm.
    norm(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) => reduce(&x, axis, keepdim, [Tensor::norm, Tensor::norm_keepdim]);
    /// The logarithm of the sum of exponentials.
    logsumexp(x: Tensor, axis: Option<Vec<isize>> = none, keepdim: bool = false) =>
        reduce(&x, axis, keepdim, [Tensor::logsumexp, Tensor::logsumexp_keepdim]);
    /// Softmax along an axis: `e^x` divided by its sum.
    softmax(x: Tensor, axis: isize = -1) => x.softmax(axis);
    /// The logarithm of softmax along an axis.
    log_softmax(x: Tensor, axis: isize = -1) => x.log_softmax(axis);
    /// Layer normalization over the last axis: `(x - mean) / sqrt(variance + eps) * weight + bias`.
    layer_norm(x: Tensor, weight: Option<Tensor> = none, bias: Option<Tensor> = none, eps: f64 = 1e-5) =>
        x.layer_norm(weight.as_ref(), bias.as_ref(), eps as f32);
    /// RMS normalization over the last axis: `x / sqrt(mean(x^2) + eps) * weight`.
    rms_norm(x: Tensor, weight: Option<Tensor> = none, eps: f64 = 1e-5) => x.rms_norm(weight.as_ref(), eps as f32);
    /// Batch normalization with the given mean and variance of each channel (axis 1).
    batch_norm(x: Tensor, mean: Tensor, variance: Tensor, weight: Option<Tensor> = none, bias: Option<Tensor> = none, eps: f64 = 1e-5) =>
        x.batch_norm(&mean, &variance, weight.as_ref(), bias.as_ref(), eps as f32);
    /// The matrix product, also written `a @ b`; axes before the last two are batch axes.
    matmul(a: Tensor, b: Tensor) => a.matmul(&b);
    /// The transpose of the last two axes, also written `x.T`.
    T(x: Tensor) => x.t();
    /// The tensor with two axes swapped.
    transpose(x: Tensor, one: isize, other: isize) => x.transpose(one, other);
    /// The tensor with its axes reordered.
    permute(x: Tensor, axes[...]: Vec<isize>) => x.permute(&axes);
    /// The same elements in another shape; a length of -1 is inferred.
    reshape(x: Tensor, shape[...]: Vec<isize>) => x.reshape(shape);
    /// All elements along a single axis.
    flatten(x: Tensor) => x.flatten();
    /// The tensor with the axes from `start` on merged into one.
    flatten_from(x: Tensor, start: isize) => x.flatten_from(start);
    /// `length` elements along an axis, from `start` on.
    narrow(x: Tensor, axis: isize, start: usize, length: usize) => x.narrow(axis, start, length);
    /// The tensor repeated along each axis.
    repeat(x: Tensor, times[...]: Vec<usize>) => x.repeat(times);
    /// The elements shifted along an axis, wrapping around.
    roll(x: Tensor, shift: isize, axis: isize) => x.roll(shift, axis);
    /// The tensor with `value` where the mask is not 0.
    masked_fill(x: Tensor, mask: Tensor, value: f64) => x.masked_fill(&mask, value);
    /// One-hot vectors of the indices, along a new last axis.
    one_hot(x: Tensor, depth: usize, dtype: DType = f32) => x.one_hot(depth, dtype);
    /// The indices of the nonzero elements, one row for each.
    nonzero(x: Tensor) => x.nonzero();
    /// The distinct elements in ascending order.
    unique(x: Tensor) => x.unique();
    /// The tensor broadcast to a shape: axes of length 1 are expanded and leading axes added.
    broadcast_to(x: Tensor, shape[...]: Vec<usize>) => x.broadcast_to(shape);
    /// The elements along an axis in reverse order.
    flip(x: Tensor, axis: isize) => x.flip(axis);
    /// The tensor without an axis of length 1.
    squeeze(x: Tensor, axis: isize) => x.squeeze(axis);
    /// The tensor with a new axis of length 1.
    unsqueeze(x: Tensor, axis: isize) => x.unsqueeze(axis);
    /// The tensors concatenated along an axis.
    cat(tensors[...]: Vec<Tensor>, axis: isize = 0) => Tensor::cat(&tensors, axis);
    /// The tensors stacked along a new axis.
    stack(tensors[...]: Vec<Tensor>, axis: isize = 0) => Tensor::stack(&tensors, axis);
    /// The elements converted to another dtype.
    to(x: Tensor, dtype: DType) => x.to_dtype(dtype);
    /// Same as `to`.
    to_dtype(x: Tensor, dtype: DType) => x.to_dtype(dtype);
    /// For each index, the element at that index along an axis.
    gather(x: Tensor, axis: isize, index: Tensor) => x.gather(axis, &index);
    /// The slices along an axis at the given indices.
    index_select(x: Tensor, axis: isize, index: Tensor) => x.index_select(axis, &index);
    /// The rows of a table at the given indices.
    embedding(table: Tensor, index: Tensor) => table.embedding(&index);
    /// The tensor with elements of `source` written at the indices along an axis.
    scatter(x: Tensor, axis: isize, index: Tensor, source: Tensor) => x.scatter(axis, &index, &source);
    /// The tensor with elements of `source` added at the indices along an axis.
    scatter_add(x: Tensor, axis: isize, index: Tensor, source: Tensor) =>
        x.scatter_add(axis, &index, &source);
    /// The cumulative sum along an axis.
    cumsum(x: Tensor, axis: isize = -1) => x.cumsum(axis);
    /// The cumulative product along an axis.
    cumprod(x: Tensor, axis: isize = -1) => x.cumprod(axis);
    /// The elements sorted along an axis.
    sort(x: Tensor, axis: isize = -1, descending: bool = false) => x.sort(axis, descending).map(|(values, _)| values);
    /// The indices that sort the elements along an axis, as u32.
    argsort(x: Tensor, axis: isize = -1, descending: bool = false) => x.argsort(axis, descending);
    /// The k largest elements along an axis in descending order; with `largest=false` the k smallest, ascending.
    topk(x: Tensor, k: usize, axis: isize = -1, largest: bool = true) => x.topk(k, axis, largest).map(|(values, _)| values);
    /// The maximum of each window of (batch, channels, height, width); the stride is the window size unless given.
    max_pool2d(x: Tensor, size: Vec<usize>, stride: Option<Vec<usize>> = none, padding: Vec<usize> = 0) =>
        x.max_pool2d(pool_options(&size, stride.as_deref(), &padding)?);
    /// The mean of each window of (batch, channels, height, width); the stride is the window size unless given.
    avg_pool2d(x: Tensor, size: Vec<usize>, stride: Option<Vec<usize>> = none, padding: Vec<usize> = 0) =>
        x.avg_pool2d(pool_options(&size, stride.as_deref(), &padding)?);
    /// The maximum of each window of (batch, channels, length).
    max_pool1d(x: Tensor, size: usize, stride: Option<usize> = none, padding: usize = 0) =>
        x.max_pool1d(PoolWindow::new(size).stride(stride.unwrap_or(size)).padding(padding));
    /// The mean of each window of (batch, channels, length).
    avg_pool1d(x: Tensor, size: usize, stride: Option<usize> = none, padding: usize = 0) =>
        x.avg_pool1d(PoolWindow::new(size).stride(stride.unwrap_or(size)).padding(padding));
    /// The mean of (batch, channels, height, width) over windows chosen so that the output has this height and width.
    adaptive_avg_pool2d(x: Tensor, size: Vec<usize>) => x.adaptive_avg_pool2d(pair(&size)?);
    /// Einstein summation: einsum('ij,jk->ik', a, b).
    einsum(equation: String, tensors[...]: Vec<Tensor>) => Tensor::einsum(&equation, &tensors);
    /// Scaled dot-product attention; the scale is 1/sqrt(d) unless given.
    attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Option<Tensor> = none, scale: Option<f64> = none, causal: bool = false) =>
        attention([&queries, &keys, &values], mask.as_ref(), scale, causal);
    /// Rotary position embedding; positions run along the second-to-last axis.
    rope(x: Tensor, first: usize = 0, base: f64 = 10000) => x.rope(first, base as f32);
    /// The tensor with elements zeroed with this probability, and the others scaled up.
    dropout(x: Tensor, probability: f64, seed: usize = 0) => x.dropout(probability as f32, seed as u64);
    /// Uniform random numbers from 0 to below 1; see `--seed`.
    rand(shape[...]: Vec<usize>, dtype: DType = f32) => Tensor::rand(shape, dtype, device);
    /// Standard normal random numbers; see `--seed`.
    randn(shape[...]: Vec<usize>, dtype: DType = f32) => Tensor::randn(shape, dtype, device);
    /// A tensor with every element set to `value`.
    full(shape: Vec<usize>, value: f64, dtype: DType = f32) => Tensor::full(shape, value, dtype, device);
    /// A tensor of zeros.
    zeros(shape[...]: Vec<usize>, dtype: DType = f32) => Tensor::zeros(shape, dtype, device);
    /// A tensor of ones.
    ones(shape[...]: Vec<usize>, dtype: DType = f32) => Tensor::ones(shape, dtype, device);
    /// Zeros with the shape and dtype of a tensor.
    zeros_like(x: Tensor) => x.zeros_like();
    /// Ones with the shape and dtype of a tensor.
    ones_like(x: Tensor) => x.ones_like();
    /// A tensor with every element set to `value`, with the shape and dtype of a tensor.
    full_like(x: Tensor, value: f64) => x.full_like(value);
    /// Uniform random numbers with the shape and dtype of a tensor.
    rand_like(x: Tensor) => x.rand_like();
    /// Standard normal random numbers with the shape and dtype of a tensor.
    randn_like(x: Tensor) => x.randn_like();
    /// `count` evenly spaced numbers from `start` to `end`, both included.
    linspace(start: f64, end: f64, count: usize, dtype: DType = f32) => Tensor::linspace(start, end, count, dtype, device);
    /// Numbers from `start` to below `end` in steps of `step`.
    arange(start: f64, end: f64, step: f64 = 1, dtype: DType = f32) =>
        Tensor::arange(start, end, step, dtype, device);
    /// The identity matrix.
    eye(length: usize, dtype: DType = f32) => Tensor::eye(length, dtype, device);
    /// A matrix with ones on and below a diagonal, zeros above.
    tri(rows: usize, columns: usize, diagonal: i32 = 0, dtype: DType = f32) =>
        Tensor::tri(rows, columns, diagonal, dtype, device);
    /// The lower triangle: elements above a diagonal are 0.
    tril(x: Tensor, diagonal: i32 = 0) => x.tril(diagonal);
    /// The upper triangle: elements below a diagonal are 0.
    triu(x: Tensor, diagonal: i32 = 0) => x.triu(diagonal);
}

/// Reduces over the given axes, or all: with the first method if the axes are removed, with the second if they are kept.
fn reduce(
    x: &Tensor,
    axes: Option<Vec<isize>>,
    keepdim: bool,
    methods: [fn(&Tensor, Axes) -> Result<Tensor>; 2],
) -> Result<Tensor> {
    methods[usize::from(keepdim)](x, axes.map_or(Axes::from(..), Axes::from))
}

fn pool_options(size: &[usize], stride: Option<&[usize]>, padding: &[usize]) -> Result<PoolWindow> {
    Ok(PoolWindow::new(pair(size)?).stride(pair(stride.unwrap_or(size))?).padding(pair(padding)?))
}

/// Returns lengths down and across; one number is both.
fn pair(lengths: &[usize]) -> Result<[usize; 2]> {
    match *lengths {
        [both] => Ok([both, both]),
        [down, across] => Ok([down, across]),
        _ => {
            let message = format!("a window expected one length or two, found {lengths:?}");
            Err(Error::new(ErrorKind::InvalidArgument, message))
        }
    }
}

fn attention(
    [queries, keys, values]: [&Tensor; 3],
    mask: Option<&Tensor>,
    scale: Option<f64>,
    causal: bool,
) -> Result<Tensor> {
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

#[cfg(test)]
mod tests {
    use crate::function::Function;

    /// Every public method of `Tensor` that returns one tensor and whose arguments a `Dynamic` can hold is in the table, or is excluded here with a reason.
    #[test]
    fn methods_of_tensor_are_functions() {
        const TYPES: &[&str] = &[
            "&self",
            "&Self",
            "Option<&Self>",
            "impl Into<Axis>",
            "impl Into<Axes>",
            "impl Into<Dims>",
            "impl Into<Shape>",
            "&[T]",
            "impl Into<f64>",
            "f32",
            "f64",
            "i32",
            "isize",
            "usize",
            "u64",
            "&str",
            "DType",
            "&Device",
            "bool",
        ];
        let is_left_out = |name: &str| match name {
            // Written as `x.T` and `x[1]`.
            "t" | "select" => true,
            // Takes elements in memory; `--in` reads a file.
            "from_slice" => true,
            // These change placement or tracking, not the value of an expression.
            "contiguous" | "to_device" | "requires_grad" => true,
            // Calling the functions one after the other fuses in the same way; `keepdim` is an argument.
            _ => name.starts_with("fused_") || name.ends_with("_keepdim"),
        };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tensor");
        let mut found = 0;
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
        {
            let text = std::fs::read_to_string(&file).unwrap();
            for declaration in text.split("\n    pub fn ").skip(1) {
                let head = declaration.split(" {\n").next().unwrap_or_default();
                let Some((name, rest)) = head.split_once('(') else { continue };
                let Some((parameters, "Result<Self>")) = rest.rsplit_once(") -> ") else { continue };
                let mut parameters = parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
                let name = name.split('<').next().unwrap_or_default();
                let is_writable = |parameter: &str| TYPES.contains(&parameter.rsplit(": ").next().unwrap_or_default());
                if !is_left_out(name) && parameters.all(is_writable) {
                    found += 1;
                    assert!(Function::by_name(name).is_some(), "`Tensor::{name}` is not in the table");
                }
            }
        }
        assert!(found > 30, "{found} methods");
    }
}
