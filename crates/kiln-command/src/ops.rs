//! `kiln ops`: lists every op with its properties.

use crate::eval::{Accuracy, Facts, Gradient, Kind, facts};
use crate::names::similar;
use crate::terminal::{self, Report, plain, table};
use crate::{Fallible, settings};
use kiln::DType;
use kiln::function::Function;
use serde::Serialize;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  kiln ops                                   all ops
  kiln ops gelu softmax                      two ops
  kiln ops --json                            as JSON, with every dtype and numeric error bounds

Exit status:
  0  success
  1  there is no op with this name
  2  the command line is invalid";

/// Lists the ops with their formula, arguments, dtypes, gradients and accuracy.
///
/// These are the functions of `kiln eval`; most of them are methods of `Tensor` under the same name. KIND says how an
/// op runs: `elementwise` ops fuse with each other and with adjacent reductions and kernels, a `reduction` fuses the elementwise ops before
/// it, a `kernel` is hand-written, a `composite` op is made of others, a `view` computes nothing, and a `fill` creates a tensor.
/// DTYPES are `floats` (f16, bf16, f32), `integers` (i32, u32, u8), or `all`.
///
/// GRADIENT is `yes`, `zero` if it is zero everywhere (step functions, comparisons), `no` if `backward` refuses the op, and `-` if the op
/// takes no floats. ACCURACY is the maximum error of an `f32` result on any device, in units in the last place (ulp) plus an absolute error. `64:
/// 1e-6` is the absolute error if operands have 64 elements along each axis, of magnitude at most 1; it grows with both.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Ops to show. Default: all.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Write one JSON object with the fields `format` and `ops`.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let chosen: Vec<Function> = if args.names.is_empty() {
        Function::all().collect()
    } else {
        args.names.iter().map(|name| find(name)).collect::<Result<_, _>>()?
    };
    // The properties of an op do not depend on the device.
    let device = settings::open_cpu()?;
    let ops = chosen.into_iter().map(|function| facts(function, &device)).collect::<Fallible<_>>()?;
    terminal::show(&OpsReport { ops }, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the op with this name.
pub(crate) fn find(name: &str) -> Result<Function, String> {
    Function::by_name(name).ok_or_else(|| {
        let near = match &similar(name, Function::all().map(Function::name))[..] {
            [] => "`kiln ops` lists them".to_string(),
            near => format!("similar: {}", near.join(", ")),
        };
        format!("expected the name of an op, found `{}`; {near}", plain(name))
    })
}

#[derive(Debug, Serialize)]
struct OpsReport {
    ops: Vec<Facts>,
}

impl Report for OpsReport {
    fn text(&self) -> String {
        let head = ["OP", "KIND", "DTYPES", "GRADIENT", "ACCURACY", "CALL"].map(ToString::to_string).to_vec();
        let row = |facts: &Facts| {
            vec![
                facts.name.to_string(),
                kind(facts.kind).to_string(),
                dtypes(&facts.dtypes),
                gradient(facts.gradient).to_string(),
                accuracy(facts.accuracy),
                format!("{}: {}", facts.signature, facts.doc),
            ]
        };
        table(&[head].into_iter().chain(self.ops.iter().map(row)).collect::<Vec<_>>())
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Elementwise => "elementwise",
        Kind::Reduction => "reduction",
        Kind::Kernel => "kernel",
        Kind::Composite => "composite",
        Kind::View => "view",
        Kind::Fill => "fill",
    }
}

fn gradient(gradient: Gradient) -> &'static str {
    match gradient {
        Gradient::Yes => "yes",
        Gradient::Zero => "zero",
        Gradient::No => "no",
        Gradient::None => "-",
    }
}

/// Returns the names, or one word for a common set of them.
fn dtypes(names: &[&str]) -> String {
    let named = |is_in: &dyn Fn(DType) -> bool| {
        DType::ALL.into_iter().filter(|&dtype| is_in(dtype)).map(DType::name).eq(names.iter().copied())
    };
    let is_float = |dtype: DType| dtype.is_float() || dtype == DType::F64;
    let sets: [(&str, &dyn Fn(DType) -> bool); 5] = [
        ("all", &|_| true),
        ("numbers", &|dtype| dtype != DType::Bool),
        ("floats", &is_float),
        ("integers", &|dtype| dtype != DType::Bool && !is_float(dtype)),
        ("up to 32 bits", &|dtype| !dtype.is_wide()),
    ];
    let named = sets.into_iter().find(|(_, is_in)| named(is_in));
    named.map_or_else(|| names.join(", "), |(name, _)| name.to_string())
}

fn accuracy(accuracy: Accuracy) -> String {
    match accuracy {
        Accuracy::Exact => "exact".to_string(),
        Accuracy::Ulps { ulps, absolute: 0.0 } => format!("{ulps} ulp"),
        Accuracy::Ulps { ulps, absolute } => format!("{ulps} ulp + {absolute:.0e}"),
        Accuracy::AtLength64 { absolute } => format!("64: {absolute:.1e}"),
        Accuracy::OfItsOps => "of its ops".to_string(),
    }
}
