//! Measures the device time of dispatches with timestamp queries.
//!
//! While profiling is on, each dispatch runs in its own compute pass with a timestamp at both ends. The timestamps of a
//! submission are resolved in one batch at its end and read in a callback, so that no thread waits for them.

use crate::scope::buffer;
use kiln_device::{KernelRun, Recorder};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of timed dispatches in a submission: each takes two queries of one set.
const MAX_DISPATCHES: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;
/// The maximum number of unused query sets that are kept.
const MAX_SPARE: usize = 8;
const TIMESTAMP_BYTES: u64 = size_of::<u64>() as u64;

/// The device clock, and the unused query sets.
#[derive(Debug)]
pub(crate) struct Timestamps {
    recorder: Recorder,
    /// Nanoseconds per tick; `None` if the device has no timestamps.
    period_ns: Option<f64>,
    spare: Mutex<Vec<TimestampSet>>,
    clock: Mutex<DeviceClock>,
}

/// Query set and buffers for the timestamps of one submission.
#[derive(Debug)]
pub(crate) struct TimestampSet {
    /// The number of dispatches that fit.
    capacity: usize,
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
}

/// The launches of a submission, recorded while profiling is on.
#[derive(Debug)]
pub(crate) struct ProfiledLaunches {
    /// The launches in order, without times.
    pub(crate) runs: Vec<KernelRun>,
    set: Option<TimestampSet>,
}

impl Timestamps {
    pub(crate) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        let has_timestamps = device.features().contains(wgpu::Features::TIMESTAMP_QUERY);
        let period_ns = has_timestamps.then(|| f64::from(queue.get_timestamp_period()));
        Self { recorder: Recorder::new(), period_ns, spare: Mutex::default(), clock: Mutex::default() }
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Prepares to time the launches of a submission. They are only counted if the device has no timestamps.
    pub(crate) fn profile(&self, device: &wgpu::Device, runs: Vec<KernelRun>) -> ProfiledLaunches {
        let capacity = runs.len().min(MAX_DISPATCHES);
        if self.period_ns.is_none() || capacity == 0 {
            return ProfiledLaunches { runs, set: None };
        }
        let mut spare = self.spare.lock();
        // Any set that is large enough; only the used queries are resolved.
        let found = spare.iter().position(|set| set.capacity >= capacity).map(|place| spare.swap_remove(place));
        // Released before a set is created, which calls the driver.
        drop(spare);
        // Rounded up, so that sets can be reused for submissions of similar size.
        let capacity = capacity.next_power_of_two().min(MAX_DISPATCHES);
        ProfiledLaunches { runs, set: Some(found.unwrap_or_else(|| TimestampSet::new(device, capacity))) }
    }

    /// Passes the launches of a submission to the recorder, once their timestamps are available.
    pub(crate) fn deliver(self: &Arc<Self>, profiled: ProfiledLaunches, submitted: Instant, number: u64) {
        let ProfiledLaunches { mut runs, set } = profiled;
        let Some(set) = set else { return self.recorder.record(number, runs) };
        let (timestamps, read) = (Arc::clone(self), set.read.clone());
        read.map_async(wgpu::MapMode::Read, .., move |mapped| {
            if mapped.is_ok() {
                timestamps.fill(&mut runs, &set.ticks(), submitted);
                let mut spare = timestamps.spare.lock();
                if spare.len() < MAX_SPARE {
                    spare.push(set);
                }
            }
            // Launches are counted even if the device is lost and their times are unknown.
            timestamps.recorder.record(number, runs);
        });
    }

    /// Sets the times of launches. Pairs of timestamps that are out of order are skipped.
    fn fill(&self, runs: &mut [KernelRun], ticks: &[u64], submitted: Instant) {
        let (Some(period_ns), Some(&first)) = (self.period_ns, ticks.first()) else { return };
        let pairs = || ticks.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let is_plausible = |&(began, ended): &(u64, u64)| first <= began && began <= ended;
        // The buffer may contain more ticks than dispatches, from an earlier submission.
        let last = pairs().take(runs.len()).filter(is_plausible).map(|(_, ended)| ended).max().unwrap_or(first);
        let start = self.clock.lock().host_time(first..last, period_ns, submitted, Instant::now());
        let nanos = |tick: u64| nanos(tick - first, period_ns);
        // `nanos` is monotonic, so the difference of durations cannot underflow.
        for (run, (began, ended)) in runs.iter_mut().zip(pairs()).filter(|(_, pair)| is_plausible(pair)) {
            run.time = Some((start + nanos(began), nanos(ended) - nanos(began)));
        }
    }
}

/// Converts a difference of ticks to a duration. Absolute ticks would exceed the precision of `f64` after months of
/// uptime.
fn nanos(ticks: u64, period_ns: f64) -> Duration {
    Duration::from_nanos((ticks as f64 * period_ns) as u64)
}

impl TimestampSet {
    fn new(device: &wgpu::Device, capacity: usize) -> Self {
        let count = 2 * capacity as u32;
        let buffer = |usage| buffer(device, u64::from(count) * TIMESTAMP_BYTES, usage);
        let ty = wgpu::QueryType::Timestamp;
        Self {
            capacity,
            queries: device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty, count }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            read: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
        }
    }

    /// Returns the ticks in the read buffer, which is mapped, and unmaps it.
    fn ticks(&self) -> Vec<u64> {
        let mapped = self.read.get_mapped_range(..);
        let tick = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let ticks = mapped.map(|bytes| bytes.chunks_exact(TIMESTAMP_BYTES as usize).map(tick).collect());
        self.read.unmap();
        ticks.unwrap_or_default()
    }
}

impl ProfiledLaunches {
    /// Returns whether each dispatch is timed, in its own pass.
    pub(crate) fn is_timed(&self) -> bool {
        self.set.is_some()
    }

    /// Returns the timestamp writes of dispatch `index` of the submission.
    pub(crate) fn writes(&self, index: usize) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let set = self.set.as_ref().filter(|set| index < set.capacity)?;
        let first = 2 * index as u32;
        let (begin, end) = (Some(first), Some(first + 1));
        let writes = wgpu::ComputePassTimestampWrites {
            query_set: &set.queries,
            beginning_of_pass_write_index: begin,
            end_of_pass_write_index: end,
        };
        Some(writes)
    }

    /// Resolves all timestamps, at the end of a submission.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        if let Some(set) = &self.set {
            let count = 2 * self.runs.len().min(set.capacity) as u32;
            encoder.resolve_query_set(&set.queries, 0..count, &set.resolved, 0);
            encoder.copy_buffer_to_buffer(&set.resolved, 0, &set.read, 0, u64::from(count) * TIMESTAMP_BYTES);
        }
    }
}

/// Maps the device clock to the host clock.
#[derive(Debug, Default)]
struct DeviceClock {
    /// The end of the last submission on both clocks. Updated by each submission, because the clocks drift.
    last: Option<(u64, Instant)>,
}

impl DeviceClock {
    /// Returns the host time of the first timestamp of a submission.
    ///
    /// The device clock is used within two bounds: no kernel begins before its submission, and none ends after the
    /// timestamps were observed. Kernels that ran in order stay in order.
    fn host_time(&mut self, ticks: Range<u64>, period_ns: f64, submitted: Instant, observed: Instant) -> Instant {
        let took = nanos(ticks.end - ticks.start, period_ns);
        let latest = observed.checked_sub(took).unwrap_or(submitted);
        let start = match self.last {
            // The offset of the clocks is unknown at first. The submission is the earliest possible start; later ones
            // refine it.
            None => submitted,
            Some((tick, at)) if tick <= ticks.start => {
                // The lower bounds come last, so they win if drift makes the bounds contradict each other.
                (at + nanos(ticks.start - tick, period_ns)).min(latest).max(submitted).max(at)
            }
            // Reported late: a submission that ran after this one was reported first.
            Some((tick, at)) => at
                .checked_sub(nanos(tick - ticks.start, period_ns))
                .map_or(submitted, |at| at.min(latest).max(submitted)),
        };
        self.last = Some((ticks.end, start + took));
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later than any time in the tests, so that the upper bound has no effect.
    const LATE: u64 = 1_000_000_000;

    fn clock() -> (DeviceClock, impl Fn(u64) -> Instant) {
        let base = Instant::now();
        (DeviceClock::default(), move |micros| base + Duration::from_micros(micros))
    }

    /// Device times keep their order on the host clock and never precede the submission, however large the clock
    /// offset.
    #[test]
    fn device_times_follow_their_submission_in_order() {
        // The ticks after a long uptime are not exact as `f64`.
        for epoch in [1_000_000, (1 << 60) + 1] {
            let (mut clock, at) = clock();
            // Submission time, start on the device clock, expected start on the host clock.
            let table = [(10, 0, 10), (20, 30, 40), (60, 40, 60), (61, 50, 70), (62, 45, 65)];
            for (submitted, began, expected) in table {
                let ticks = epoch + began * 1000;
                let found = clock.host_time(ticks..ticks, 1.0, at(submitted), at(LATE));
                assert_eq!(found, at(expected), "submitted at {submitted}");
            }
        }
    }

    /// A device clock that drifts by 0.1 % in either direction stays aligned with the host clock.
    #[test]
    fn clock_drift_is_corrected() {
        for per_mille in [999, 1001] {
            let (mut clock, at) = clock();
            for submission in 0..10_000 {
                // Each submission takes half a millisecond and is reported soon after.
                let began = submission * 1000;
                let tick = |micros: u64| (1 << 40) + micros * per_mille;
                let ticks = tick(began + 5)..tick(began + 500);
                let found = clock.host_time(ticks, 1.0, at(began), at(began + 510));
                assert!((at(began)..at(began + 16)).contains(&found), "submission {submission}: {:?}", found - at(0));
            }
        }
    }
}
