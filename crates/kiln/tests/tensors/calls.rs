//! The ops of the NumPy cases as calls of tensor methods.

use crate::data::apply_view;
use kiln::{Activation, AttentionOptions, DType, Device, Result, Tensor, op};
use kiln_testkit::View;
use kiln_testkit::fixture::Case;
use serde_json::Value;

/// What the case's op gives for these inputs.
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
        ("sum", "axis") => x.sum_axis(axes[0]),
        ("sum", _) => x.sum_keepdim(&axes),
        ("mean", "all") => x.mean_all(),
        ("mean", "axis") => x.mean_axis(axes[0]),
        ("mean", _) => x.mean_keepdim(&axes),
        ("max", "all") => x.max_all(),
        ("max", "axis") => x.max_axis(axes[0]),
        ("max", _) => x.max_keepdim(&axes),
        ("min", "all") => x.min_all(),
        ("min", "axis") => x.min_axis(axes[0]),
        ("min", _) => x.min_keepdim(&axes),
        ("argmax", "all") => x.argmax_all(),
        ("argmax", "axis") => x.argmax_axis(axes[0]),
        ("argmin", "all") => x.argmin_all(),
        ("argmin", "axis") => x.argmin_axis(axes[0]),
        other => panic!("no reduction {other:?}"),
    }
}

fn activation(args: &Args<'_>) -> Activation {
    match args.text("activation") {
        "none" => Activation::None,
        "relu" => Activation::Relu,
        "gelu" => Activation::Gelu,
        other => panic!("no activation {other}"),
    }
}

/// Arguments of a case that are no tensors.
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
