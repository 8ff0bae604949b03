//! `kiln eval`: one expression on arrays from files.
//!
//! In the order of the flow: `lex`, `parse` and `ast` read the expression, `arrays` the files; `evaluate` builds a tensor from
//! both, with `index` for square brackets and `call` for calls of the library's functions; `facts` describes each function. `fault` formats
//! errors of an expression, `report` the result.

mod arrays;
mod ast;
mod call;
mod evaluate;
mod facts;
mod fault;
mod index;
mod lex;
mod parse;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use facts::{Accuracy, Facts, Gradient, Kind, facts, single};

use crate::Fallible;
use crate::kernel_dir::open_device;
use crate::new_file::NewFile;
use crate::npy::Array;
use crate::source_args::{Named, repeated};
use crate::terminal::{self, micros};
use kiln::function::Dynamic;
use kiln::{Device, Tensor};
use report::{Data, EvalReport, FunctionsReport};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// The variable that enables `--verify`.
const VERIFY: &str = "KILN_VERIFY";

const EXAMPLES: &str = "\
Examples:
  kiln eval \"relu(a*b+1).sum(1)\" --in a=a.npy --in b=b.npy --out c.npy
  kiln eval \"softmax(randn(4, 4))\" --seed 7         prints the result
  kiln eval \"x @ x.T\" --in x=x.npy --explain        explains the kernels
  kiln eval \"gelu(x).mean()\" --in x=x.npy --device gpu --verify --json
  kiln eval --functions                             list the functions; see also `kiln ops`

Exit status:
  0  success
  1  the expression or a file is invalid, or --verify found different results
  2  the command line is invalid";

/// Evaluates an expression on arrays in `.npy` files.
///
/// Operators are those of Python: + - * / ** @, comparisons and indexing such as `x[1:3, none]`. `x.sum(1)` is the same as `sum(x, 1)`.
/// Statements are separated by `;`, and the last one is the result: `y = a*b; y/y.sum()`. Numbers take the dtype of the tensor operand;
/// operands of different dtypes need a conversion such as `x.to(f32)`. `kiln eval --functions` lists the functions.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The expression.
    #[arg(required_unless_present = "functions", allow_hyphen_values = true)]
    expression: Option<String>,
    /// Array for a name of the expression: f16, f32, i32, u32, u8 or bool; f64 is read as f32, and i64 as i32 if it fits.
    /// Repeatable.
    #[arg(long = "in", value_name = "NAME=FILE.npy", value_parser = Named::<PathBuf>::parse)]
    inputs: Vec<Named<PathBuf>>,
    /// File for the result. Default: print it.
    #[arg(long, value_name = "FILE.npy")]
    out: Option<PathBuf>,
    /// The device: `cpu`, `gpu`, `gpu:1`; `kiln doctor` lists them. Default: the best one.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Explain which kernels run, what is fused, what is not and why, and how many bytes move. Written to standard error if the result is
    /// printed.
    #[arg(long)]
    explain: bool,
    /// Compute fused, unfused and on the CPU device, and fail if the results differ. Same as `KILN_VERIFY=1`.
    #[arg(long)]
    verify: bool,
    /// Seed of rand and randn.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// List the functions and exit.
    #[arg(long)]
    functions: bool,
    /// Write one JSON object with the fields `format`, `shape`, `dtype`, `device`, `run_us`, and `data` or `file`; `explain`
    /// and `verify` if requested. Infinities and NaN are null.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let expression = match &args.expression {
        Some(expression) if !args.functions => expression,
        _ => return Ok(terminal::show(&FunctionsReport::new(), args.json)?),
    };
    let program = parse::parse(expression).map_err(|fault| fault.render(expression))?;
    check_names(&args.inputs)?;
    let device = open_device(args.device.as_deref())?;
    device.set_seed(args.seed);
    let inputs = read(&args.inputs, &device)?;
    let tensor = evaluate::evaluate(&program, inputs, &device).map_err(|fault| fault.render(expression))?;
    let output = args.out.as_deref().map(|path| begin(path, &tensor)).transpose()?;
    let report = compute(args, &tensor, output)?;
    if let Some(explain) = report.explain.as_ref().filter(|_| !args.json) {
        // On standard error if standard output carries data, which another program may read.
        let text = format!("{}\n", explain.trim_end());
        match args.out {
            Some(_) => terminal::write(&mut std::io::stdout(), &text)?,
            None => terminal::write(&mut std::io::stderr(), &text)?,
        }
    }
    if let Some(verify) = report.verify.as_ref().filter(|_| !args.json) {
        terminal::write(&mut std::io::stderr(), &format!("verified: {verify}\n"))?;
    }
    Ok(terminal::show(&report, args.json)?)
}

/// The path, the file and the element type of a result.
type Output<'a> = (&'a Path, NewFile, crate::npy::Kind);

/// Checks that every input has a unique and valid name.
fn check_names(inputs: &[Named<PathBuf>]) -> Result<(), String> {
    if let Some(name) = repeated(inputs.iter().map(|input| &input.name)) {
        return Err(format!("expected `--in {name}=…` once, found it twice"));
    }
    let is_free = |name: &str| lex::is_name(name) && Dynamic::from_keyword(name).is_none();
    match inputs.iter().find(|input| !is_free(&input.name)) {
        Some(Named { name, .. }) if lex::is_name(name) => {
            Err(format!("`--in` expected a variable name, found the reserved name `{name}`"))
        }
        Some(Named { name, .. }) => {
            Err(format!("`--in` expected a name of letters, digits and `_`, found `{}`", terminal::plain(name)))
        }
        None => Ok(()),
    }
}

fn read(inputs: &[Named<PathBuf>], device: &Device) -> Fallible<BTreeMap<String, Dynamic>> {
    let mut tensors = BTreeMap::new();
    for Named { name, value: path } in inputs {
        let array = Array::read(path).map_err(|error| format!("input `{name}`: {error}"))?;
        let named = |text: String| format!("input `{name}`: {}: {text}", path.display());
        let (tensor, note) = arrays::to_tensor(&array, device).map_err(named)?;
        if let Some(note) = note {
            terminal::warn(&named(note));
        }
        tensors.insert(name.clone(), Dynamic::Tensor(tensor));
    }
    Ok(tensors)
}

/// Creates the output file before anything is computed, so that an unwritable path is reported first.
fn begin<'a>(path: &'a Path, tensor: &Tensor) -> Fallible<Output<'a>> {
    let kind = arrays::kind(tensor.dtype()).ok_or_else(|| {
        let dtype = tensor.dtype();
        format!("expected a result dtype that `.npy` supports, found {dtype}; end the expression with `.to(f32)`")
    })?;
    Ok((path, NewFile::create(path)?, kind))
}

fn write((path, mut file, kind): Output<'_>, tensor: &Tensor) -> Fallible<String> {
    let path = path.display();
    arrays::to_array(tensor, kind)?.write(&mut file).map_err(|error| format!("cannot write {path}: {error}"))?;
    file.commit()?;
    Ok(path.to_string())
}

/// Computes the tensor and writes or returns its elements.
fn compute(args: &Args, tensor: &Tensor, output: Option<Output<'_>>) -> Fallible<EvalReport> {
    let explain = if args.explain { Some(tensor.explain()?.to_string()) } else { None };
    let began = Instant::now();
    let verify = if args.verify || is_set(VERIFY) { Some(tensor.eval_checked()?.to_string()) } else { None };
    tensor.eval()?;
    // `eval` returns before a GPU has finished.
    tensor.device().synchronize()?;
    let run_us = micros(began.elapsed());
    let is_shown = output.is_none();
    Ok(EvalReport {
        shape: tensor.shape().iter().map(|length| *length as u64).collect(),
        dtype: tensor.dtype().name(),
        data: if is_shown && args.json { Some(Data::of(tensor)?) } else { None },
        shown: (is_shown && !args.json).then(|| tensor.to_string()),
        file: output.map(|output| write(output, tensor)).transpose()?,
        device: tensor.device().info().id.clone(),
        run_us,
        explain,
        verify,
    })
}

/// Returns whether an environment variable is set, neither empty nor 0.
fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}
