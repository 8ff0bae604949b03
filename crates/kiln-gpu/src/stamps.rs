//! Device time around dispatches.
//!
//! While somebody watches, each dispatch is a pass of its own with a timestamp at both ends. The timestamps of a submission are
//! resolved at its end as one batch, and read when it is over: nobody waits for them.

use crate::scope::buffer;
use kiln_device::{KernelRun, Recorder};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most dispatches of one submission that are timed: two queries each, as many as a set holds.
const MAX_DISPATCHES: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;
/// The most sets that are kept while no submission uses them.
const MAX_SPARE: usize = 8;
const STAMP_BYTES: u64 = size_of::<u64>() as u64;

/// The clock of a device, and the query sets that no submission uses.
#[derive(Debug)]
pub(crate) struct Stamps {
    recorder: Recorder,
    /// Nanoseconds of a tick; `None` where the device has no timestamps.
    period_ns: Option<f64>,
    spare: Mutex<Vec<StampSet>>,
    clock: Mutex<DeviceClock>,
}

/// Timestamps for the dispatches of one submission.
#[derive(Debug)]
pub(crate) struct StampSet {
    /// How many dispatches it has room for.
    room: usize,
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
}

/// What a submission runs, while somebody watches.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The dispatches in order, without times.
    pub(crate) runs: Vec<KernelRun>,
    set: Option<StampSet>,
}

impl Stamps {
    pub(crate) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        let has_stamps = device.features().contains(wgpu::Features::TIMESTAMP_QUERY);
        let period_ns = has_stamps.then(|| f64::from(queue.get_timestamp_period()));
        Self { recorder: Recorder::new(), period_ns, spare: Mutex::default(), clock: Mutex::default() }
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Makes ready to time dispatches.
    pub(crate) fn watch(&self, device: &wgpu::Device, runs: Vec<KernelRun>) -> Watched {
        let room = runs.len().min(MAX_DISPATCHES);
        if self.period_ns.is_none() || room == 0 {
            return Watched { runs, set: None };
        }
        let mut spare = self.spare.lock();
        let found = spare.iter().position(|set| set.room >= room).map(|place| spare.swap_remove(place));
        drop(spare);
        let room = room.next_power_of_two().min(MAX_DISPATCHES);
        Watched { runs, set: Some(found.unwrap_or_else(|| StampSet::new(device, room))) }
    }

    /// Tells the recorder what a submission ran, once its timestamps are there.
    pub(crate) fn deliver(self: &Arc<Self>, watched: Watched, submitted: Instant, number: u64) {
        let Watched { mut runs, set } = watched;
        let Some(set) = set else { return self.recorder.record(number, runs) };
        let (stamps, read) = (Arc::clone(self), set.read.clone());
        read.map_async(wgpu::MapMode::Read, .., move |mapped| {
            if mapped.is_ok() {
                stamps.fill(&mut runs, &set.ticks(), submitted);
                let mut spare = stamps.spare.lock();
                if spare.len() < MAX_SPARE {
                    spare.push(set);
                }
            }
            // Launches count also where the device is gone and no time is known.
            stamps.recorder.record(number, runs);
        });
    }

    /// Puts times to runs, where they make sense.
    fn fill(&self, runs: &mut [KernelRun], ticks: &[u64], submitted: Instant) {
        let (Some(period_ns), Some(&first)) = (self.period_ns, ticks.first()) else { return };
        let pairs = || ticks.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let makes_sense = |&(began, ended): &(u64, u64)| first <= began && began <= ended;
        let last = pairs().take(runs.len()).filter(makes_sense).map(|(_, ended)| ended).max().unwrap_or(first);
        let start = self.clock.lock().host_time(first..last, period_ns, submitted, Instant::now());
        let nanos = |tick: u64| nanos(tick - first, period_ns);
        for (run, (began, ended)) in runs.iter_mut().zip(pairs()).filter(|(_, pair)| makes_sense(pair)) {
            run.time = Some((start + nanos(began), nanos(ended) - nanos(began)));
        }
    }
}

/// Of a difference: the ticks themselves have more bits than a float where a machine is up for months.
fn nanos(ticks: u64, period_ns: f64) -> Duration {
    Duration::from_nanos((ticks as f64 * period_ns) as u64)
}

impl StampSet {
    fn new(device: &wgpu::Device, room: usize) -> Self {
        let count = 2 * room as u32;
        let buffer = |usage| buffer(device, u64::from(count) * STAMP_BYTES, usage);
        let ty = wgpu::QueryType::Timestamp;
        Self {
            room,
            queries: device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty, count }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            read: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
        }
    }

    /// The ticks in the buffer, which is mapped.
    fn ticks(&self) -> Vec<u64> {
        let mapped = self.read.get_mapped_range(..);
        let tick = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let ticks = mapped.map(|bytes| bytes.chunks_exact(STAMP_BYTES as usize).map(tick).collect());
        self.read.unmap();
        ticks.unwrap_or_default()
    }
}

impl Watched {
    /// Whether its dispatches are timed, each in a pass of its own.
    pub(crate) fn is_timed(&self) -> bool {
        self.set.is_some()
    }

    /// The timestamps of dispatch number `index` of the submission.
    pub(crate) fn writes(&self, index: usize) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let set = self.set.as_ref().filter(|set| index < set.room)?;
        let first = 2 * index as u32;
        let (begin, end) = (Some(first), Some(first + 1));
        let writes = wgpu::ComputePassTimestampWrites {
            query_set: &set.queries,
            beginning_of_pass_write_index: begin,
            end_of_pass_write_index: end,
        };
        Some(writes)
    }

    /// Resolves all timestamps at the end of a submission.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        if let Some(set) = &self.set {
            let count = 2 * self.runs.len().min(set.room) as u32;
            encoder.resolve_query_set(&set.queries, 0..count, &set.resolved, 0);
            encoder.copy_buffer_to_buffer(&set.resolved, 0, &set.read, 0, u64::from(count) * STAMP_BYTES);
        }
    }
}

/// Where the clock of the device is on that of the host.
#[derive(Debug, Default)]
struct DeviceClock {
    /// The end of the last submission on both. Each submission moves it, because the two clocks drift apart.
    last: Option<(u64, Instant)>,
}

impl DeviceClock {
    /// The host time of the first timestamp of a submission. No kernel begins before it was submitted, none ends after the timestamps
    /// were `seen`: between these the clock of the device is believed. What ran in order stays in order.
    fn host_time(&mut self, ticks: Range<u64>, period_ns: f64, submitted: Instant, seen: Instant) -> Instant {
        let took = nanos(ticks.end - ticks.start, period_ns);
        let latest = seen.checked_sub(took).unwrap_or(submitted);
        let start = match self.last {
            None => submitted,
            Some((tick, at)) if tick <= ticks.start => {
                (at + nanos(ticks.start - tick, period_ns)).min(latest).max(submitted).max(at)
            }
            // Told late: something that ran after it is known already.
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

    /// No submission is seen so late that this says something.
    const LATE: u64 = 1_000_000_000;

    fn clock() -> (DeviceClock, impl Fn(u64) -> Instant) {
        let base = Instant::now();
        (DeviceClock::default(), move |micros| base + Duration::from_micros(micros))
    }

    /// Device time in order is host time in order, and never before the submission, however far the clocks are apart.
    #[test]
    fn device_time_lands_behind_its_submission_and_in_order() {
        // The ticks of a machine that is up for long are no whole numbers as floats.
        for epoch in [1_000_000, (1 << 60) + 1] {
            let (mut clock, at) = clock();
            // Submitted at, begun on the device's clock, expected on the host's.
            let table = [(10, 0, 10), (20, 30, 40), (60, 40, 60), (61, 50, 70), (62, 45, 65)];
            for (submitted, began, expected) in table {
                let ticks = epoch + began * 1000;
                let found = clock.host_time(ticks..ticks, 1.0, at(submitted), at(LATE));
                assert_eq!(found, at(expected), "submitted at {submitted}");
            }
        }
    }

    /// A clock that runs a thousandth too fast, or too slow, is never far from the truth.
    #[test]
    fn clocks_that_drift_apart_are_brought_together() {
        for per_mille in [999, 1001] {
            let (mut clock, at) = clock();
            for submission in 0..10_000 {
                // Each takes half of a millisecond, and is told soon after.
                let began = submission * 1000;
                let tick = |micros: u64| (1 << 40) + micros * per_mille;
                let ticks = tick(began + 5)..tick(began + 500);
                let found = clock.host_time(ticks, 1.0, at(began), at(began + 510));
                assert!((at(began)..at(began + 16)).contains(&found), "submission {submission}: {:?}", found - at(0));
            }
        }
    }
}
