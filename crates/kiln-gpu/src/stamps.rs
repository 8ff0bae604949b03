//! Device time around dispatches (R7.3).
//!
//! While somebody watches, each dispatch is a pass of its own with a timestamp at both ends. The timestamps of a submission are
//! resolved at its end as one batch, and read when it is over: nobody waits for them.

use kiln_runtime::{KernelRun, Recorder};
use parking_lot::Mutex;
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
        let clock = Mutex::new(DeviceClock { base: Instant::now(), offset_ns: None });
        Self { recorder: Recorder::new(), period_ns, spare: Mutex::default(), clock }
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
        let (Some(period), Some(&first)) = (self.period_ns, ticks.first()) else { return };
        // Differences first: the ticks of a machine that is up for months have more bits than a float.
        let nanos = |tick: u64| (tick.saturating_sub(first) as f64 * period) as u64;
        let start = self.clock.lock().host_time((first as f64 * period) as i128, submitted);
        for (run, pair) in runs.iter_mut().zip(ticks.chunks_exact(2)) {
            if let [began, ended] = *pair
                && first <= began
                && began <= ended
            {
                let took = Duration::from_nanos(nanos(ended) - nanos(began));
                run.time = Some((start + Duration::from_nanos(nanos(began)), took));
            }
        }
    }
}

impl StampSet {
    fn new(device: &wgpu::Device, room: usize) -> Self {
        let count = 2 * room as u32;
        let buffer = |usage| {
            let size = u64::from(count) * STAMP_BYTES;
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
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
#[derive(Debug)]
struct DeviceClock {
    base: Instant,
    /// What is added to device time for host time since `base`.
    offset_ns: Option<i128>,
}

impl DeviceClock {
    /// The host time of the first timestamp of a submission. No kernel begins before it was submitted: that is all that is
    /// known, and exact where the device was idle. The offset only grows, so what ran in order stays in order.
    fn host_time(&mut self, first_ns: i128, submitted: Instant) -> Instant {
        let submitted_ns = submitted.saturating_duration_since(self.base).as_nanos() as i128;
        let least = submitted_ns - first_ns;
        let offset = self.offset_ns.map_or(least, |offset| offset.max(least));
        self.offset_ns = Some(offset);
        self.base + Duration::from_nanos(u64::try_from(first_ns + offset).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Device time in order is host time in order, and never before the submission, however far the clocks are apart.
    #[test]
    fn device_time_lands_behind_its_submission_and_in_order() {
        let base = Instant::now();
        let mut clock = DeviceClock { base, offset_ns: None };
        let at = |micros: u64| base + Duration::from_micros(micros);
        // Submitted at, begun on the device's clock, expected on the host's.
        let table = [(10, 1_000_000, 10), (20, 1_000_030, 40), (60, 1_000_040, 60), (61, 1_000_050, 70)];
        for (submitted, began, expected) in table {
            assert_eq!(clock.host_time(began * 1000, at(submitted)), at(expected), "submitted at {submitted}");
        }
    }
}
