//! Time per element by number of elements, and speedup by number of threads.

use crate::options::Options;
use kiln::Device;
use kiln::device::CpuOptions;
use kiln_bench::{ElementType, Fault, KilnWorkload, Limits, Op, SamplingConfig, Timing, compare, find};
use serde::Serialize;

/// The measurement of a workload at one size.
#[derive(Serialize)]
pub(crate) struct Size {
    pub(crate) workload: &'static str,
    pub(crate) dtype: ElementType,
    pub(crate) elements: usize,
    pub(crate) timing: Timing,
    pub(crate) nanoseconds_per_element: f64,
    /// Roofline at this size.
    pub(crate) roofline_nanoseconds_per_element: Option<f64>,
}

/// Creates a workload with this number of elements.
type OfSize = fn(usize) -> Op;

const WORKLOADS: [(&str, OfSize); 4] = [
    ("add", |len| Op::Add { len }),
    ("chain8", |len| Op::Chain8 { len }),
    ("sum", |len| Op::Sum { len }),
    ("softmax", |len| Op::Softmax { rows: len / 1024, columns: 1024 }),
];

/// Measures the time per element from 64 K to 64 M elements.
pub(crate) fn growth(options: &Options, limits: &mut Limits) -> Result<Vec<Size>, Fault> {
    let device = Device::cpu_with(CpuOptions::new().threads(options.threads))?;
    let mut sizes = Vec::new();
    println!("{:<10} {:>4} {:>10} {:>10} {:>10}", "workload", "", "elements", "ns/element", "roofline");
    for (workload, of_size) in WORKLOADS.into_iter().filter(|(workload, _)| is_wanted(options, workload)) {
        for dtype in options.dtypes() {
            for elements in (16..=26).step_by(2).map(|bits| 1 << bits) {
                let op = of_size(elements);
                let prepared = KilnWorkload::new(&op, dtype, &device)?.into_prepared();
                op.check(dtype, &prepared.output()?)?;
                let timing = compare(&mut [prepared.arm("kiln")], &options.sampling()).remove(0)?;
                let per_element = |seconds: f64| seconds * 1e9 / elements as f64;
                let size = Size {
                    workload,
                    dtype,
                    elements,
                    nanoseconds_per_element: per_element(timing.median),
                    roofline_nanoseconds_per_element: limits
                        .roofline(&op, dtype)
                        .map(|roofline| per_element(roofline.seconds())),
                    timing,
                };
                print_size(&size);
                sizes.push(size);
            }
        }
    }
    Ok(sizes)
}

fn is_wanted(options: &Options, workload: &str) -> bool {
    options.only.is_empty() || options.only.iter().any(|only| workload.starts_with(only.as_str()))
}

fn print_size(size: &Size) {
    let roofline = size.roofline_nanoseconds_per_element.map_or("-".to_string(), |roofline| format!("{roofline:.4}"));
    let Size { workload, dtype, elements, nanoseconds_per_element, .. } = size;
    println!("{workload:<10} {dtype:>4} {elements:>10} {nanoseconds_per_element:>10.4} {roofline:>10}");
}

/// The times on one thread and on several.
#[derive(Serialize)]
pub(crate) struct Scaling {
    workload: &'static str,
    dtype: ElementType,
    one_thread: Timing,
    threads: Timing,
    /// Median on one thread divided by the median on several.
    speed_up: f64,
}

/// Measures the speedup on several threads for compute-bound workloads.
pub(crate) fn scaling(options: &Options) -> Result<Vec<Scaling>, Fault> {
    let device = |threads| Device::cpu_with(CpuOptions::new().threads(threads));
    let (one, several) = (device(1)?, device(options.threads)?);
    let mut lines = Vec::new();
    println!("{:<16} {:>4} {:>10} {:>10} {:>8}", "workload (ms)", "", "1 thread", "threads", "speed-up");
    for workload in ["matmul-1024", "attention-512", "gelu-16m"].iter().filter_map(|id| find(id)) {
        for dtype in options.dtypes() {
            let op = workload.op;
            let [one, several] =
                [&one, &several].map(|device| KilnWorkload::new(&op, dtype, device).map(KilnWorkload::into_prepared));
            let (one, several) = (one?, several?);
            op.check(dtype, &one.output()?)?;
            op.check(dtype, &several.output()?)?;
            let sampling = SamplingConfig { min_samples: 15, ..options.sampling() };
            let mut timings = compare(&mut [one.arm("one"), several.arm("several")], &sampling);
            let (threads, one_thread) = (timings.remove(1)?, timings.remove(0)?);
            let speed_up = one_thread.median / threads.median;
            let milliseconds = |timing: &Timing| timing.median * 1e3;
            let (one, several) = (milliseconds(&one_thread), milliseconds(&threads));
            println!("{:<16} {dtype:>4} {one:>10.3} {several:>10.3} {speed_up:>8.2}", workload.id);
            lines.push(Scaling { workload: workload.id, dtype, one_thread, threads, speed_up });
        }
    }
    Ok(lines)
}
