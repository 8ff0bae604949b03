//! The ops of the NumPy cases as calls of tensor methods.

use crate::data::apply_view;
use kiln::arguments::IndexItem;
use kiln::ir::op;
use kiln::nn::{Activation, AttentionOptions, PoolWindow};
use kiln::{DType, Device, Result, Slice, Tensor};
use kiln_testkit::View;
use kiln_testkit::fixture::Case;
use serde_json::Value;

/// Computes the op of a case for these inputs.
pub(crate) fn call(case: &Case, inputs: &[Tensor], device: &Device) -> Result<Vec<Tensor>> {
    let args = Args(&case.args);
    let x = inputs.first();
    let x = || x.expect("the case has an input");
    let one = match &case.op[..] {
        "view" => apply_view(x(), &View::from_json(&case.args["step"]).expect("a view")),
        "to_dtype" => x().to_dtype(args.dtype()),
        "add_scalar" => x().add_scalar(args.float("value")),
        "sub_scalar" => x().sub_scalar(args.float("value")),
        "mul_scalar" => x().mul_scalar(args.float("value")),
        "div_scalar" => x().div_scalar(args.float("value")),
        "clamp" => x().clamp(args.float("low"), args.float("high")),
        "where" => x().where_(&inputs[1], &inputs[2]),
        "sum" | "mean" | "max" | "min" | "argmax" | "argmin" => reduce(&case.op, x(), &args),
        "var" | "std" | "norm" | "logsumexp" => statistic(&case.op, x(), &args),
        "i" => x().i(args.items()),
        "repeat" => x().repeat(args.sizes("times")),
        "roll" => x().roll(args.0["shift"].as_i64().expect("a number") as isize, args.size("axis")),
        "pad" => x().pad(&args.pairs("pairs"), args.float("value")),
        "masked_fill" => x().masked_fill(&inputs[1], args.float("value")),
        "unique" => x().unique(),
        "nonzero" => x().nonzero(),
        "one_hot" => x().one_hot(args.size("depth"), args.dtype()),
        "linspace" => {
            Tensor::linspace(args.float("start"), args.float("end"), args.size("count"), args.dtype(), device)
        }
        "softmax" => x().softmax(args.size("axis")),
        "log_softmax" => x().log_softmax(args.size("axis")),
        "layer_norm" => {
            let mut rest = inputs[1..].iter();
            let weight = if args.flag("weight") { rest.next() } else { None };
            let bias = if args.flag("bias") { rest.next() } else { None };
            x().layer_norm(weight, bias, args.float("eps") as f32)
        }
        "rms_norm" => x().rms_norm(inputs.get(1), args.float("eps") as f32),
        "batch_norm" => {
            let (weight, bias) = (inputs.get(3), inputs.get(4));
            x().batch_norm(&inputs[1], &inputs[2], weight, bias, args.float("eps") as f32)
        }
        "matmul" => x().matmul(&inputs[1]),
        "matmul_with_activation" => x().matmul_with_activation(&inputs[1], activation(&args)),
        "einsum" => Tensor::einsum(args.text("equation"), &inputs.iter().collect::<Vec<_>>()),
        "attention" => {
            let mut options = AttentionOptions::new();
            options = if args.flag("causal") { options.causal() } else { options };
            options = args.0["scale"].as_f64().map_or(options, |scale| options.scale(scale as f32));
            options = inputs.get(3).map_or(options, |mask| options.mask(mask));
            Tensor::attention(x(), &inputs[1], &inputs[2], options)
        }
        "rope" => x().rope(args.size("offset"), args.float("base") as f32),
        "cat" => Tensor::cat(inputs, args.size("axis")),
        "stack" => Tensor::stack(inputs, args.size("axis")),
        "split" => return x().split(&args.sizes("sizes"), args.size("axis")),
        "chunk" => return x().chunk(args.size("count"), args.size("axis")),
        "cumsum" => x().cumsum(args.size("axis")),
        "cumprod" => x().cumprod(args.size("axis")),
        "sort" => {
            let (values, indices) = x().sort(args.size("axis"), args.flag("descending"))?;
            assert_eq!(
                x().argsort(args.size("axis"), args.flag("descending"))?.to_vec::<u32>()?,
                indices.to_vec::<u32>()?
            );
            return Ok(vec![values, indices]);
        }
        "topk" => {
            let (values, indices) = x().topk(args.size("k"), args.size("axis"), args.flag("descending"))?;
            return Ok(vec![values, indices]);
        }
        "max_pool2d" => x().max_pool2d(pool(&args)),
        "max_pool1d" => x().max_pool1d(pool(&args)),
        "avg_pool2d" => x().avg_pool2d(mean_pool(&args)),
        "avg_pool1d" => x().avg_pool1d(mean_pool(&args)),
        "adaptive_avg_pool2d" => x().adaptive_avg_pool2d(args.pair("size")),
        "gather" => x().gather(args.size("axis"), &inputs[1]),
        "scatter" => x().scatter(args.size("axis"), &inputs[1], &inputs[2]),
        "scatter_add" => x().scatter_add(args.size("axis"), &inputs[1], &inputs[2]),
        "index_select" => x().index_select(args.size("axis"), &inputs[1]),
        "embedding" => x().embedding(&inputs[1]),
        "arange" => Tensor::arange(args.float("start"), args.float("end"), args.float("step"), args.dtype(), device),
        "tril" => x().tril(args.0["diagonal"].as_i64().expect("a number") as i32),
        "triu" => x().triu(args.0["diagonal"].as_i64().expect("a number") as i32),
        name => {
            let op = op::by_name(name).unwrap_or_else(|| panic!("{}: no op `{name}`", case.name));
            Tensor::apply(op, &inputs.iter().collect::<Vec<_>>())
        }
    };
    Ok(vec![one?])
}

fn reduce(op: &str, x: &Tensor, args: &Args<'_>) -> Result<Tensor> {
    let axes = args.sizes("axes");
    match (op, args.text("form")) {
        ("sum", "all") => x.sum_all(),
        ("sum", "axis") => x.sum(axes[0]),
        ("sum", _) => x.sum_keepdim(&axes),
        ("mean", "all") => x.mean_all(),
        ("mean", "axis") => x.mean(axes[0]),
        ("mean", _) => x.mean_keepdim(&axes),
        ("max", "all") => x.max_all(),
        ("max", "axis") => x.max(axes[0]),
        ("max", _) => x.max_keepdim(&axes),
        ("min", "all") => x.min_all(),
        ("min", "axis") => x.min(axes[0]),
        ("min", _) => x.min_keepdim(&axes),
        ("argmax", "all") => x.argmax_all(),
        ("argmax", "axis") => x.argmax(axes[0]),
        ("argmin", "all") => x.argmin_all(),
        ("argmin", "axis") => x.argmin(axes[0]),
        other => panic!("no reduction {other:?}"),
    }
}

fn statistic(op: &str, x: &Tensor, args: &Args<'_>) -> Result<Tensor> {
    let axes = args.sizes("axes");
    match (op, args.text("form")) {
        ("var", "keepdim") => x.var_keepdim(axes),
        ("var", _) => x.var(axes),
        ("std", "keepdim") => x.std_keepdim(axes),
        ("std", _) => x.std(axes),
        ("norm", "keepdim") => x.norm_keepdim(axes),
        ("norm", _) => x.norm(axes),
        (_, "keepdim") => x.logsumexp_keepdim(axes),
        _ => x.logsumexp(axes),
    }
}

fn pool(args: &Args<'_>) -> PoolWindow {
    PoolWindow::new(args.pair("size")).stride(args.pair("stride")).padding(args.pair("padding"))
}

fn mean_pool(args: &Args<'_>) -> PoolWindow {
    if args.flag("counts_padding") { pool(args) } else { pool(args).without_counting_padding() }
}

fn activation(args: &Args<'_>) -> Activation {
    match args.text("activation") {
        "none" => Activation::None,
        "relu" => Activation::Relu,
        "gelu" => Activation::Gelu,
        "gelu_erf" => Activation::GeluErf,
        other => panic!("no activation {other}"),
    }
}

/// The arguments of a case that are not tensors.
struct Args<'a>(&'a Value);

impl Args<'_> {
    fn float(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_else(|| panic!("no number `{name}` in {}", self.0))
    }

    fn size(&self, name: &str) -> usize {
        self.0[name].as_u64().unwrap_or_else(|| panic!("no size `{name}` in {}", self.0)) as usize
    }

    fn sizes(&self, name: &str) -> Vec<usize> {
        let list = self.0[name].as_array().unwrap_or_else(|| panic!("no list `{name}` in {}", self.0));
        list.iter().map(|size| size.as_u64().expect("a size") as usize).collect()
    }

    fn pairs(&self, name: &str) -> Vec<(usize, usize)> {
        let pair =
            |pair: &Value| Args(pair).list().map(|one| one.as_u64().expect("a size") as usize).collect::<Vec<_>>();
        Args(&self.0[name]).list().map(|one| (pair(one)[0], pair(one)[1])).collect()
    }

    fn list(&self) -> impl Iterator<Item = &Value> {
        self.0.as_array().unwrap_or_else(|| panic!("no list: {}", self.0)).iter()
    }

    /// The items of an index.
    fn items(&self) -> Vec<IndexItem> {
        let bound = |bound: &Value| bound.as_i64().map(|bound| bound as isize);
        let item = |item: &Value| match item {
            Value::Number(number) => IndexItem::At(number.as_i64().expect("an index") as isize),
            Value::String(text) if text == "..." => IndexItem::Ellipsis,
            Value::String(_) => IndexItem::NewAxis,
            range => {
                let slice = match (bound(&range[0]), bound(&range[1])) {
                    (None, None) => Slice::new(..),
                    (Some(start), None) => Slice::new(start..),
                    (None, Some(end)) => Slice::new(..end),
                    (Some(start), Some(end)) => Slice::new(start..end),
                };
                slice.step(bound(&range[2]).expect("a step")).into()
            }
        };
        Args(&self.0["items"]).list().map(item).collect()
    }

    fn pair(&self, name: &str) -> [usize; 2] {
        self.sizes(name).try_into().expect("two sizes")
    }

    fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or_else(|| panic!("no flag `{name}` in {}", self.0))
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_else(|| panic!("no text `{name}` in {}", self.0))
    }

    fn dtype(&self) -> DType {
        DType::by_name(self.text("dtype")).expect("the name of a dtype")
    }
}
