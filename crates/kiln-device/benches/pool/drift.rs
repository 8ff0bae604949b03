//! A workload with drifting sizes: every request is a little larger than the last, while the bytes in use stay the
//! same.

use crate::harness::report::{Checks, Number, Target};
use crate::plot::{Plot, Series};
use crate::{Bench, resident};
use kiln_device::{Buffer, Bytes, Device, PoolOptions, PoolStatistics};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

const FIRST_BYTES: u64 = 32 << 10;
const LAST_BYTES: u64 = 4 << 20;
/// The oldest buffers are dropped to hold at most this many bytes.
const HELD_BYTES: u64 = 64 << 20;

/// The reserved bytes after each request.
#[derive(Default)]
struct Trace {
    in_use: Vec<f64>,
    reserved: Vec<f64>,
    peer: Vec<f64>,
}

/// A pool that only adds blocks of new sizes grows without bound here; this one reaches a plateau.
pub(crate) fn run(bench: &mut Bench) {
    let growth = bench.effort.pick(0.001, 0.002, 0.02);
    println!(
        "drift: each request {} % larger than the last, from {} to {}, {} held",
        100.0 * growth,
        Bytes(FIRST_BYTES),
        Bytes(LAST_BYTES),
        Bytes(HELD_BYTES)
    );
    let sizes = sizes(growth);
    let checks = Checks::default();
    let (trace, statistics) = follow(&bench.cpu(PoolOptions::new()), &sizes, &checks);
    let plot = plot(&sizes, &trace);
    print!("{}", plot.text());
    // The temporary directory of benchmarks is next to the profiles in the target directory.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new("."));
    let path = target.join("bench").join("pool-drift.svg");
    match plot.write_svg(&path) {
        Ok(()) => println!("  plot written to {}", path.display()),
        Err(error) => println!("  cannot write the plot to {}: {error}", path.display()),
    }
    for (name, line) in [("kiln", &trace.reserved), ("powers of two that never shrink", &trace.peer)] {
        let at = [1, 2, 3, 4].map(|quarter| format!("{:.1}", line[(line.len() - 1) * quarter / 4])).join(", ");
        println!("  reserved at the quarters, MiB: {at} ({name}); last half by first half {:.2}", plateau(line));
    }
    println!("  {} of {} requests reached the driver", statistics.driver_request_count, statistics.allocation_count);
    let growth = Number::new(plateau(&trace.reserved), "x");
    // Bytes in use including padding vary by one class step, a quarter; a pool that grows with the sizes doubles.
    bench.report.claim("most reserved, last half by first half", &growth, Target::AtMost(1.25), &checks);
    let slack = max(&trace.reserved) / max(&trace.in_use);
    bench.report.claim("most reserved by most in use", &Number::new(slack, "x"), Target::AtMost(2.0), &checks);
}

fn sizes(growth: f64) -> Vec<u64> {
    let grown = std::iter::successors(Some(FIRST_BYTES), |bytes| Some(bytes + (*bytes as f64 * growth) as u64));
    grown.take_while(|bytes| *bytes <= LAST_BYTES).collect()
}

/// Runs the requests on a device with default settings, and on the model of the peer.
fn follow(device: &Device, sizes: &[u64], checks: &Checks) -> (Trace, PoolStatistics) {
    let (mut trace, mut peer) = (Trace::default(), NeverShrinking::default());
    let mut held: VecDeque<(Buffer, u64)> = VecDeque::new();
    let mut held_bytes = 0;
    for (number, &bytes) in (0..).zip(sizes) {
        while held_bytes + bytes > HELD_BYTES {
            let Some((oldest, stamp)) = held.pop_front() else { break };
            checks.expect(oldest.map_read(|bytes| ends(bytes) == [stamp; 2]).unwrap());
            held_bytes -= oldest.bytes();
            peer.free(oldest.bytes());
        }
        let buffer = device.buffer(bytes).unwrap();
        buffer.map_write(|bytes| set_ends(bytes, number)).unwrap();
        held.push_back((buffer, number));
        held_bytes += bytes;
        peer.allocate(bytes);
        let statistics = device.buffer_pool_stats();
        checks.expect(statistics.bytes_in_use >= held_bytes);
        trace.in_use.push(resident::mib(statistics.bytes_in_use));
        trace.reserved.push(resident::mib(statistics.bytes_reserved));
        trace.peer.push(resident::mib(peer.reserved));
    }
    (trace, device.buffer_pool_stats())
}

fn set_ends(bytes: &mut [u8], stamp: u64) {
    let last = bytes.len() - 8;
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes[last..].copy_from_slice(&stamp.to_le_bytes());
}

fn ends(bytes: &[u8]) -> [u64; 2] {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    [word(0), word(bytes.len() - 8)]
}

/// A model of the pool to compare with: rounds up to powers of two and never frees a block.
#[derive(Default)]
struct NeverShrinking {
    free: BTreeMap<u64, u64>,
    reserved: u64,
}

impl NeverShrinking {
    fn allocate(&mut self, bytes: u64) {
        let class = bytes.next_power_of_two();
        let free = self.free.entry(class).or_default();
        match free.checked_sub(1) {
            Some(left) => *free = left,
            None => self.reserved += class,
        }
    }

    fn free(&mut self, bytes: u64) {
        *self.free.entry(bytes.next_power_of_two()).or_default() += 1;
    }
}

/// Returns the peak of the last half relative to that of the first half.
fn plateau(line: &[f64]) -> f64 {
    let (first, last) = line.split_at(line.len() / 2);
    max(last) / max(first)
}

fn max(line: &[f64]) -> f64 {
    line.iter().copied().fold(0.0, f64::max)
}

fn plot<'a>(sizes: &[u64], trace: &'a Trace) -> Plot<'a> {
    let tick = |quarter: usize| {
        let at = (sizes.len() - 1) * quarter / 4;
        (at, format!("{at}: {}", Bytes(sizes[at])))
    };
    Plot {
        title: "Memory of a pool while sizes drift",
        x_label: "number of the request: its size",
        y_label: "MiB",
        x_ticks: (0..=4).map(tick).collect(),
        series: [
            Series { name: "powers of two, never shrinking: reserved", mark: '+', line: &trace.peer },
            Series { name: "kiln: reserved", mark: '#', line: &trace.reserved },
            Series { name: "kiln: in use", mark: '.', line: &trace.in_use },
        ],
    }
}
