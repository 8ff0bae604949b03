//! `kiln run`: runs one kernel from a file once, on arrays from files.
//!
//! `problem`, `dims` and `value` parse the command line, `plan` matches it with the kernel's bindings, `files` prevents overwritten
//! files, `arrays` moves data between files and the device, `element` describes the layout in each, `report`
//! is the output. `check` is `kiln check`, which takes the same arguments and makes up missing ones.

mod arrays;
pub(crate) mod check;
mod dims;
mod element;
mod files;
mod plan;
mod problem;
mod report;
mod value;

use crate::Fallible;
use crate::kernel_dir::{lost, open_for_kernels, warn_not_stored};
use crate::source_args::{Named, SourceArgs, compile};
use crate::terminal::{self, micros};
use arrays::Bound;
pub(crate) use dims::Dims;
use kiln::kernel::{Kernel, Origin};
use plan::Plan;
use problem::{Problem, Request};
use report::{DeviceReport, KernelReport, RunReport};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  kiln run saxpy.wgsl --in x=x.npy --in y=y.npy --out y=result.npy --value alpha=2 --size 1000
  kiln run saxpy.wgsl --in x=x.npy --out y=ax.npy --value alpha=2 --size 1000    y starts as zeros
  kiln run blur.wgsl --in from=image.npy --out to=blurred.npy --size 640x480 --constant RADIUS=3
  kiln run saxpy.wgsl --device gpu:1 --in x=x.npy --out y=ax.npy --value alpha=2 --size 1000 --json

Exit status:
  0  the kernel ran, and every output was written
  1  a file could not be read or written, or the kernel could not be compiled or run
  2  the command line is invalid";

/// Runs a WGSL kernel on arrays in `.npy` files.
///
/// Every storage buffer of the kernel takes an array: `--in x=x.npy` to read, `--out y=y.npy` to write, both to read and write. Every
/// uniform takes a number: `--value n=1000`. The compiled kernel is cached for the next run (see `kiln cache`).
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// File with the kernel.
    #[arg(value_name = "KERNEL.wgsl")]
    kernel: PathBuf,
    /// The device: `cpu`, `gpu`, `gpu:1`; `kiln doctor` lists them. Default: the best one.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    problem: Problem,
    /// File for the contents of a buffer after the run. A buffer without `--in` starts as zeros, with one element per invocation of
    /// `--size`. An odd number of f16 elements is padded with one, which `arrayLength` counts and the file omits. Repeatable.
    #[arg(long = "out", value_name = "BUFFER=FILE.npy", value_parser = Named::<PathBuf>::parse)]
    outputs: Vec<Named<PathBuf>>,
    /// Write one JSON object with the fields `format`, `kernel`, `device`, `run_us` and `outputs`.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let source = args.source.read(&args.kernel)?;
    let device = open_for_kernels(args.device.as_deref(), args.problem.time_limit)?;
    let began = Instant::now();
    let kernel = compile(&device, source)?;
    let load_time = began.elapsed();
    if kernel.origin() == Origin::Compiled
        && let Some(fault) = lost(&device.kernel_cache_stats().disk)
    {
        warn_not_stored(&fault);
    }
    let plan = Plan::new(kernel.name(), kernel.reflection(), args.request())?;
    let mut bound = arrays::upload(&device, &plan)?;
    let run_time = launch(&kernel, &plan, &mut bound)?;
    let outputs = arrays::download(bound)?;
    let info = device.info();
    let report = RunReport {
        kernel: KernelReport {
            name: kernel.name().to_string(),
            entry: kernel.reflection().entry.clone(),
            hash: kernel.hash().to_string(),
            origin: kernel.origin(),
            load_us: micros(load_time),
        },
        device: DeviceReport { id: info.id.clone(), name: info.name.clone() },
        run_us: micros(run_time),
        outputs,
    };
    Ok(terminal::show(&report, args.json)?)
}

/// Launches the kernel and waits for it.
fn launch(kernel: &Kernel, plan: &Plan<'_>, bound: &mut [Bound<'_>]) -> Fallible<Duration> {
    let began = Instant::now();
    let mut launch = kernel.launch().grid(plan.grid);
    for Bound { args, buffer, .. } in bound.iter_mut() {
        launch = launch.bind(args.binding.name.as_str(), buffer);
    }
    for (name, value) in &plan.values {
        launch = launch.value(*name, value.clone());
    }
    launch.submit()?;
    // A submission returns before the work is done on a GPU. Errors of the kernel also surface here.
    kernel.device().synchronize()?;
    Ok(began.elapsed())
}

impl Args {
    fn request(&self) -> Request<'_> {
        Request { kernel: &self.kernel, problem: &self.problem, outputs: &self.outputs, fill: None }
    }
}
