//! `kiln bench`: measures Kiln's benchmark workloads, or one op on user-given shapes.
//!
//! The workloads, their data and the timing are those of the `kiln-bench` crate. `report` is the output for each, `single` one op, `serve` the
//! protocol for another program that requests samples, `memory` the resident memory.

mod memory;
mod report;
mod serve;
mod single;

use crate::kernel_dir::open_device;
use crate::names::similar_or;
use crate::run::Dims;
use crate::{Fallible, settings, terminal};
use kiln::function::Function;
use kiln::{DType, Device, DeviceKind};
use kiln_bench::{Arm, ElementType, KilnWorkload, Limits, SamplingConfig, Workload, compare, workloads};
use report::{WorkloadLine, WorkloadReport};
use std::io;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  kiln bench                                               all workloads on the CPU device
  kiln bench --list                                        list the workloads
  kiln bench matmul softmax --dtype f16                    two groups, all sizes
  kiln bench add-1m --quick --json                         one workload, as JSON
  kiln bench gelu --shape 1024x1024 --dtype f16            one op of `kiln ops` on this shape
  kiln bench matmul --shape 256x512 --shape 512x128        a shape for each operand
  kiln bench softmax --shape 64x1000 --device gpu --quick  on a GPU

Exit status:
  0  every output was correct
  1  an output was wrong, or a measurement failed
  2  the command line is invalid";

/// Benchmarks workloads, or single ops on given shapes: checks the outputs and compares the times with the roofline.
///
/// Without `--shape`, names are workloads, listed by `kiln bench --list`, or prefixes of them: `kiln bench matmul` runs all sizes. Without
/// names, all workloads run. `bench/` in the repository runs the same workloads with other libraries.
///
/// With `--shape`, names are ops, listed by `kiln ops`. Operands are sampled from the op's domain, and the output is checked against an f64
/// reference before it is timed. Reductions are over all axes, the other ops along the last axis. Bytes are those that the kernels must
/// read and write. The roofline is the bandwidth of copies and the rate of multiply-adds, measured on this machine.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Workloads to run, or ops with `--shape`. Default: all workloads.
    #[arg(value_name = "WORKLOAD|OP")]
    workloads: Vec<String>,
    /// Shape of the operands: `1024x1024`. If repeated, one shape per operand; they broadcast if the op does.
    #[arg(long = "shape", value_name = "SHAPE", requires = "workloads", conflicts_with_all = ["list", "serve"])]
    shapes: Vec<Dims>,
    /// Element type: `f32` or `f16`; for ops any dtype of `kiln ops`. Default: `f32`; `u32` for ops on bits.
    #[arg(long, value_name = "DTYPE", value_parser = parse_dtype)]
    dtype: Option<DType>,
    /// The device: `cpu`, `gpu`, `gpu:1`; `kiln doctor` lists them.
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    device: String,
    /// Number of threads of the CPU device. Default: the number of cores that the process may use.
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Take few samples: a smoke test.
    #[arg(long)]
    quick: bool,
    /// List the workloads and exit.
    #[arg(long, conflicts_with_all = ["serve", "quick"])]
    list: bool,
    /// Answer requests on standard input, one JSON object per line, until it ends: {"do":"prepare","workload":"add-1m",
    /// "dtype":"f32"}, {"do":"sample","runs":10} for nanoseconds, {"do":"output","path":"out.npy"}, {"do":"memory"},
    /// {"do":"start"}, {"do":"quit"}.
    #[arg(long, conflicts_with_all = ["workloads", "quick"])]
    serve: bool,
    /// Write one JSON object per line for each workload or op.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    if !args.shapes.is_empty() {
        return single::run(args);
    }
    let (chosen, dtype) = (choose(&args.workloads)?, element_type(args.dtype)?);
    if args.list {
        for workload in chosen {
            write_line(&WorkloadLine::of(workload), args.json)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let device = open(&args.device, args.threads)?;
    if args.serve {
        serve::serve(&device, io::stdin().lock(), &mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    for name in args.workloads.iter().filter(|name| Function::by_name(name).is_some()) {
        terminal::print_message("note", &format!("`{name}` selects workloads; add `--shape` to benchmark the op"));
    }
    let sampling = if args.quick { SamplingConfig::quick() } else { SamplingConfig::new() };
    let mut limits = limits_of(&device);
    let mut status = ExitCode::SUCCESS;
    for workload in chosen {
        let report = measure(workload, dtype, &device, &sampling, limits.as_mut())?;
        if report.fault.is_some() {
            status = ExitCode::FAILURE;
        }
        write_line(&report, args.json)?;
    }
    Ok(status)
}

fn parse_dtype(text: &str) -> Result<DType, String> {
    let others = || DType::ALL.map(DType::name).into_iter().filter(|name| !["f32", "f16"].contains(name));
    let more = || format!("; ops with `--shape` also take {}", others().collect::<Vec<_>>().join(", "));
    DType::by_name(text).ok_or_else(|| format!("expected `f32` or `f16`, found `{text}`{}", more()))
}

fn element_type(dtype: Option<DType>) -> Result<ElementType, String> {
    let name = dtype.unwrap_or(DType::F32).name();
    let known = ElementType::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| {
        format!("workloads expected `f32` or `f16`, found `{name}`; other dtypes need an op and `--shape`")
    })
}

/// Returns the workloads with these names or name prefixes, in table order; all if there are no names.
fn choose(names: &[String]) -> Result<Vec<&'static Workload>, String> {
    let is_meant =
        |name: &str, workload: &Workload| workload.id == name || workload.id.starts_with(&format!("{name}-"));
    if let Some(name) = names.iter().find(|name| !workloads().iter().any(|workload| is_meant(name, workload))) {
        return Err(unknown(name));
    }
    let is_chosen = |workload: &&Workload| names.is_empty() || names.iter().any(|name| is_meant(name, workload));
    Ok(workloads().iter().filter(is_chosen).collect())
}

/// Returns the error message for an unknown workload.
fn unknown(name: &str) -> String {
    let near = match Function::by_name(name) {
        Some(_) => format!("it is an op: use `kiln bench {name} --shape 1024x1024`"),
        None => similar_or(name, workloads().iter().map(|workload| workload.id), "`kiln bench --list` lists them"),
    };
    format!("expected the name of a workload, found `{}`; {near}", terminal::plain(name))
}

fn open(name: &str, threads: Option<usize>) -> Fallible<Device> {
    match (name, threads) {
        ("cpu", Some(count)) => Ok(settings::open_cpu_with(settings::cpu_options()?.threads(count))?),
        (_, Some(_)) => Err(format!("`--threads` expected the device `cpu`, found `{name}`").into()),
        (_, None) => open_device(Some(name)),
    }
}

/// Measures the processor's limits if the device is the CPU device.
fn limits_of(device: &Device) -> Option<Limits> {
    let threads = device.info().limits.threads.filter(|_| device.info().kind == DeviceKind::Cpu)?;
    Some(Limits::measure(threads as usize))
}

/// Checks the output of a workload, then times it.
fn measure(
    workload: &'static Workload,
    dtype: ElementType,
    device: &Device,
    sampling: &SamplingConfig,
    limits: Option<&mut Limits>,
) -> Fallible<WorkloadReport> {
    let data = workload.op.data(dtype);
    let kiln = KilnWorkload::with_data(&workload.op, dtype, &data, device)?;
    let fault = workload.op.check_on(dtype, &data, &kiln.output()?).err();
    // Before the timing, so that the copy on the host does not count in the peak memory.
    drop(data);
    let mut report = WorkloadReport::new(workload, dtype, device);
    if let Some(wrong) = fault {
        report.fault = Some(wrong.to_string());
        return Ok(report);
    }
    memory::reset_peak();
    let timing = compare(&mut [Arm::new("kiln", || Ok(kiln.run()?))], sampling).pop();
    report.peak_resident_bytes = memory::peak_resident_bytes();
    if let Some(timing) = timing {
        let timing = timing.map_err(|fault| fault.to_string())?;
        report.set_timing(timing, limits.and_then(|limits| limits.roofline(&workload.op, dtype)));
    }
    Ok(report)
}

/// Writes one line: a JSON object, or text for people.
fn write_line(line: &impl terminal::Report, json: bool) -> io::Result<()> {
    let text = if json { serde_json::to_string(line).map_err(io::Error::other)? + "\n" } else { line.text() };
    terminal::write(&mut io::stdout(), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Result<Vec<&'static str>, String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Ok(choose(&names)?.into_iter().map(|workload| workload.id).collect())
    }

    #[test]
    fn a_name_is_that_of_a_work_or_its_beginning() {
        assert_eq!(ids(&["add-1m"]).unwrap(), ["add-1m"]);
        assert_eq!(ids(&["gelu", "add"]).unwrap(), ["add-1m", "add-16m", "gelu-1m", "gelu-16m"]);
        assert_eq!(ids(&["mlp", "mlp-1x64x64"]).unwrap(), ["mlp-1x64x64", "mlp-64x64x64"]);
        assert_eq!(ids(&[]).unwrap().len(), workloads().len());
    }

    #[test]
    fn an_unknown_name_suggests_similar_ones() {
        let expected = "expected the name of a workload, found `matmul-1025`; similar: matmul-1024";
        assert!(ids(&["add-1m", "matmul-1025"]).unwrap_err().starts_with(expected));
        let expected = "expected the name of a workload, found `conv`; `kiln bench --list` lists them";
        assert_eq!(ids(&["conv"]).unwrap_err(), expected);
        assert!(ids(&["a"]).is_err(), "not the beginning of every name");
    }

    #[test]
    fn threads_are_of_the_cpu_device() {
        let error = open("gpu", Some(2)).unwrap_err().to_string();
        assert_eq!(error, "`--threads` expected the device `cpu`, found `gpu`");
        assert_eq!(open("cpu", Some(3)).unwrap().info().limits.threads, Some(3));
    }
}
