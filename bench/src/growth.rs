//! How the time per element grows with the number of elements, and with one thread instead of two.

use crate::options::Options;
use kiln::Device;
use kiln::device::CpuOptions;
use kiln_bench::{Effort, Fault, Limits, Number, Op, Ours, Timing, compare, find};
use serde::Serialize;

/// A work at one size.
#[derive(Serialize)]
pub(crate) struct Size {
    pub(crate) work: &'static str,
    pub(crate) dtype: Number,
    pub(crate) elements: usize,
    pub(crate) timing: Timing,
    pub(crate) nanoseconds_per_element: f64,
    /// What the machine allows at this size.
    pub(crate) least_nanoseconds_per_element: Option<f64>,
}

/// A work at some size.
type OfSize = fn(usize) -> Op;

const WORKS: [(&str, OfSize); 4] = [
    ("add", |len| Op::Add { len }),
    ("chain8", |len| Op::Chain8 { len }),
    ("sum", |len| Op::Sum { len }),
    ("softmax", |len| Op::Softmax { rows: len / 1024, columns: 1024 }),
];

/// Time per element from 64 K to 64 M elements.
pub(crate) fn growth(options: &Options, limits: &mut Limits) -> Result<Vec<Size>, Fault> {
    let device = Device::cpu_with(CpuOptions::new().threads(options.threads))?;
    let mut sizes = Vec::new();
    println!("{:<10} {:>4} {:>10} {:>10} {:>10}", "work", "", "elements", "ns/element", "limit");
    for (work, of_size) in WORKS.into_iter().filter(|(work, _)| is_wanted(options, work)) {
        for number in options.numbers() {
            for elements in (16..=26).step_by(2).map(|bits| 1 << bits) {
                let op = of_size(elements);
                let ready = Ours::new(&op, number, &device)?.ready();
                op.check(number, &ready.output()?)?;
                let timing = compare(&mut [ready.arm("kiln")], &options.effort()).remove(0)?;
                let per_element = |seconds: f64| seconds * 1e9 / elements as f64;
                let size = Size {
                    work,
                    dtype: number,
                    elements,
                    nanoseconds_per_element: per_element(timing.median),
                    least_nanoseconds_per_element: limits.least(&op, number).map(|least| per_element(least.seconds())),
                    timing,
                };
                print_size(&size);
                sizes.push(size);
            }
        }
    }
    Ok(sizes)
}

fn is_wanted(options: &Options, work: &str) -> bool {
    options.only.is_empty() || options.only.iter().any(|only| work.starts_with(only.as_str()))
}

fn print_size(size: &Size) {
    let least = size.least_nanoseconds_per_element.map_or("-".to_string(), |least| format!("{least:.4}"));
    let Size { work, dtype, elements, nanoseconds_per_element, .. } = size;
    println!("{work:<10} {dtype:>4} {elements:>10} {nanoseconds_per_element:>10.4} {least:>10}");
}

/// One thread beside several.
#[derive(Serialize)]
pub(crate) struct Scaling {
    work: &'static str,
    dtype: Number,
    one_thread: Timing,
    threads: Timing,
    /// The median on one thread over that on several.
    speed_up: f64,
}

/// How much faster Kiln is on several threads where arithmetic is the limit.
pub(crate) fn scaling(options: &Options) -> Result<Vec<Scaling>, Fault> {
    let device = |threads| Device::cpu_with(CpuOptions::new().threads(threads));
    let (one, several) = (device(1)?, device(options.threads)?);
    let mut lines = Vec::new();
    println!("{:<16} {:>4} {:>10} {:>10} {:>8}", "work (ms)", "", "1 thread", "threads", "speed-up");
    for work in ["matmul-1024", "attention-512", "gelu-16m"].iter().filter_map(|id| find(id)) {
        for number in options.numbers() {
            let op = work.op;
            let [one, several] = [&one, &several].map(|device| Ours::new(&op, number, device).map(Ours::ready));
            let (one, several) = (one?, several?);
            op.check(number, &one.output()?)?;
            op.check(number, &several.output()?)?;
            let effort = Effort { least_samples: 15, ..options.effort() };
            let mut timings = compare(&mut [one.arm("one"), several.arm("several")], &effort);
            let (threads, one_thread) = (timings.remove(1)?, timings.remove(0)?);
            let speed_up = one_thread.median / threads.median;
            let milliseconds = |timing: &Timing| timing.median * 1e3;
            let (one, several) = (milliseconds(&one_thread), milliseconds(&threads));
            println!("{:<16} {number:>4} {one:>10.3} {several:>10.3} {speed_up:>8.2}", work.id);
            lines.push(Scaling { work: work.id, dtype: number, one_thread, threads, speed_up });
        }
    }
    Ok(lines)
}
