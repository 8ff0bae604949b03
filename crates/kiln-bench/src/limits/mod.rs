//! The machine's roofline: measured FLOP/s and bandwidth, and the time that follows from them for a workload.

mod loops;

use crate::{ElementType, Op};
use loops::Streams;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Instant;

/// A memory access pattern.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Reads one array.
    Read,
    /// Reads one array and writes one.
    Copy,
    /// Reads two arrays and writes one.
    Triad,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Self; 3] = [Self::Read, Self::Copy, Self::Triad];

    /// Returns the pattern nearest to a workload that reads and writes this many bytes.
    pub fn of(read: f64, written: f64) -> Self {
        // A copy reads as much as it writes, a triad twice as much; 1.5 is between them.
        if written < 0.1 * read {
            Self::Read
        } else if read < 1.5 * written {
            Self::Copy
        } else {
            Self::Triad
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Copy => "copy",
            Self::Triad => "triad",
        }
    }

    /// Returns the number of arrays it accesses.
    fn arrays(self) -> usize {
        match self {
            Self::Read => 1,
            Self::Copy => 2,
            Self::Triad => 3,
        }
    }
}

/// The limits of this machine for a number of threads. Bandwidths are measured on first use.
///
/// See the [crate documentation](crate) for an example.
#[derive(Debug)]
pub struct Limits {
    threads: usize,
    peak: f64,
    bandwidths: BTreeMap<(Pattern, usize), f64>,
}

/// Roofline time of a workload, in seconds.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// Time for its arithmetic at peak FLOP/s.
    pub compute: f64,
    /// Time for the bytes that it must move, at the bandwidth for that footprint.
    pub memory: f64,
}

impl Roofline {
    /// Returns the larger of the two.
    pub fn seconds(&self) -> f64 {
        self.compute.max(self.memory)
    }
}

impl Limits {
    /// Measures the peak of `f32` multiply-adds on this many threads, which takes some milliseconds.
    pub fn measure(threads: usize) -> Self {
        Self { threads, peak: peak_flops(threads), bandwidths: BTreeMap::new() }
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the peak `f32` FLOP/s, as fused multiply-adds.
    pub fn peak_flops(&self) -> f64 {
        self.peak
    }

    /// Returns the bandwidth in bytes per second of repeated passes over this footprint, rounded up to a power of two.
    pub fn bandwidth(&mut self, pattern: Pattern, footprint_bytes: f64) -> f64 {
        let bytes = footprint(footprint_bytes);
        *self.bandwidths.entry((pattern, bytes)).or_insert_with(|| bytes_per_second(pattern, bytes, self.threads))
    }

    /// Returns the bandwidths measured so far, by pattern and footprint in bytes.
    pub fn bandwidths(&self) -> impl Iterator<Item = (Pattern, usize, f64)> + '_ {
        self.bandwidths.iter().map(|(&(pattern, bytes), &bandwidth)| (pattern, bytes, bandwidth))
    }

    /// Returns the roofline time of one run of an op, or `None` for small adds, which are bound by call overhead.
    pub fn roofline(&mut self, op: &Op, dtype: ElementType) -> Option<Roofline> {
        if op.ops_per_run() > 1 {
            return None;
        }
        Some(self.roofline_of(op.flops(), op.bytes_read(dtype), op.bytes_written(dtype)))
    }

    /// Returns the roofline time for this number of FLOPs and of bytes read and written.
    pub fn roofline_of(&mut self, flops: f64, read: f64, written: f64) -> Roofline {
        let bandwidth = self.bandwidth(Pattern::of(read, written), read + written);
        Roofline { compute: flops / self.peak, memory: (read + written) / bandwidth }
    }

    /// Measures the limits of an op again and keeps the better values.
    pub fn improve(&mut self, op: &Op, dtype: ElementType) {
        self.peak = self.peak.max(peak_flops(self.threads));
        let (read, written) = (op.bytes_read(dtype), op.bytes_written(dtype));
        let (pattern, bytes) = (Pattern::of(read, written), footprint(read + written));
        // The larger value is kept: other load only makes a measurement slower.
        let rate = bytes_per_second(pattern, bytes, self.threads);
        self.bandwidths.entry((pattern, bytes)).and_modify(|known| *known = known.max(rate)).or_insert(rate);
    }
}

/// Rounds a footprint up to the size at which bandwidth is measured.
fn footprint(bytes: f64) -> usize {
    (bytes.max(65536.0) as usize).next_power_of_two()
}

/// Number of tries. The best one counts, because noise only makes a try slower.
const TRIES: usize = 7;

fn peak_flops(threads: usize) -> f64 {
    let rounds = 200_000;
    let seconds = best(threads, (0..threads).map(|_| move || loops::multiply_add(rounds)).collect());
    (threads * rounds * loops::FLOPS_PER_ROUND) as f64 / seconds
}

fn bytes_per_second(pattern: Pattern, bytes: usize, threads: usize) -> f64 {
    let len = bytes / pattern.arrays() / threads / size_of::<f32>();
    // A few milliseconds in cache, one or two passes far beyond it.
    let passes = ((256 << 20) / bytes).max(1);
    let moved = (len * size_of::<f32>() * pattern.arrays() * threads * passes) as f64;
    // Non-temporal stores win beyond the caches, ordinary ones within them; the faster counts.
    let seconds = [false, true].map(|bypass_cache| {
        let streams = (0..threads).map(|_| {
            let mut streams = Streams::new(len, pattern);
            move || (0..passes).for_each(|_| streams.pass(pattern, bypass_cache))
        });
        best(threads, streams.collect())
    });
    moved / seconds[0].min(seconds[1])
}

/// Returns the least time over some tries to finish all jobs, each on its own, already running thread.
fn best<Job: FnMut() + Send>(threads: usize, jobs: Vec<Job>) -> f64 {
    // There must be as many jobs as threads: with fewer, all of them would wait forever.
    let barrier = Barrier::new(threads);
    let spans: Vec<Vec<(Instant, Instant)>> = std::thread::scope(|scope| {
        let spawn = |mut job: Job| {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut once = || {
                    // All threads start together, and spawning is not timed.
                    barrier.wait();
                    let start = Instant::now();
                    job();
                    (start, Instant::now())
                };
                (0..TRIES).map(|_| once()).collect()
            })
        };
        let running: Vec<_> = jobs.into_iter().map(spawn).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let span = |attempt: usize| {
        // From the first start to the last end: all threads together are as fast as the slowest.
        let start = spans.iter().map(|of_thread| of_thread[attempt].0).min();
        let end = spans.iter().map(|of_thread| of_thread[attempt].1).max();
        start.zip(end).map_or(f64::INFINITY, |(start, end)| (end - start).as_secs_f64())
    };
    (0..TRIES).map(span).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_follow_from_the_bytes_read_and_written() {
        let of = |op: &Op| Pattern::of(op.bytes_read(ElementType::F32), op.bytes_written(ElementType::F32));
        assert_eq!(of(&Op::Sum { len: 1000 }), Pattern::Read);
        assert_eq!(of(&Op::Gelu { len: 1000 }), Pattern::Copy);
        assert_eq!(of(&Op::Add { len: 1000 }), Pattern::Triad);
        assert_eq!(of(&Op::Matmul { m: 1, k: 576, n: 1536 }), Pattern::Read);
    }

    #[test]
    fn roofline_time_is_bound_by_arithmetic_or_by_bytes() {
        let mut limits = Limits { threads: 1, peak: 1e9, bandwidths: BTreeMap::new() };
        limits.bandwidths.insert((Pattern::Triad, 1 << 20), 1e8);
        let add = limits.roofline(&Op::Add { len: 1 << 16 }, ElementType::F32);
        assert_eq!(add, Some(Roofline { compute: 65536.0 / 1e9, memory: 3.0 * 4.0 * 65536.0 / 1e8 }));
        assert_eq!(add.map(|roofline| roofline.seconds()), Some(3.0 * 4.0 * 65536.0 / 1e8));
        let matmul = limits.roofline(&Op::Matmul { m: 256, k: 256, n: 256 }, ElementType::F32).unwrap();
        assert_eq!(matmul.seconds(), 2.0 * 16_777_216.0 / 1e9);
        assert_eq!(limits.roofline(&Op::TinyIndependent { count: 2, len: 16 }, ElementType::F32), None);
    }

    #[test]
    fn measured_limits_are_positive_and_cached() {
        let mut limits = Limits::measure(2);
        assert!(limits.peak_flops().is_finite() && limits.peak_flops() > 0.0);
        for pattern in Pattern::ALL {
            let bandwidth = limits.bandwidth(pattern, 1e5);
            assert!(bandwidth.is_finite() && bandwidth > 0.0, "{}", pattern.name());
            assert_eq!(limits.bandwidth(pattern, 1.1e5), bandwidth);
        }
        assert_eq!(limits.bandwidths().count(), 3);
    }
}
