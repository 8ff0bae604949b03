//! Summarises an event stream: for each device, the time of each kernel.

use super::event::{Event, EventKind};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// The summary of the events of one device.
///
/// See [`summarise`] for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceSummary {
    /// The id of the device.
    pub device: String,
    /// The name of the device, if the stream contains its beginning.
    pub name: Option<String>,
    /// The number of threads, if it is the CPU device and the stream contains its beginning.
    pub threads: Option<u32>,
    /// The start of the first event, in nanoseconds of Unix time.
    pub start_ns: u64,
    /// The time from there to the end of the last event.
    pub window_ns: u64,
    /// The time in which at least one kernel is known to have run.
    pub kernels_ns: u64,
    /// The rest of the window.
    pub unattributed_ns: u64,
    /// Launches that were not timed; their time is part of the rest.
    pub untimed_launches: u64,
    /// Events dropped by the queue or lost by the watcher.
    pub dropped_events: u64,
    /// Whether the end of the stream is missing, so that the last events may be missing.
    pub is_cut_off: bool,
    /// The kernels, longest total time first.
    pub kernels: Vec<KernelSummary>,
}

/// The summary of one kernel on a device.
///
/// See [`summarise`] for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelSummary {
    /// The name.
    pub name: String,
    /// The number of launches.
    pub launches: u64,
    /// Bytes read and written by all launches.
    pub bytes: u64,
    /// Arithmetic operations of all launches.
    pub flops: u64,
    /// The number of timed launches.
    pub timed: u64,
    /// The duration of the timed launches.
    pub total_ns: u64,
    /// Bytes of the timed launches.
    pub timed_bytes: u64,
    /// Arithmetic operations of the timed launches.
    pub timed_flops: u64,
}

/// Summarises a stream of one or several devices, in the order of their first event.
///
/// ```
/// use kiln_device::observe::{Event, summarise};
///
/// let line = r#"{"device":"cpu","at_ns":4000,"type":"KernelRun","data":{"kernel":"matmul","submission":1,"launches":1,"bytes":100,"flops":10,"start_ns":1000,"duration_ns":3000}}"#;
/// let summaries = summarise(&[Event::from_json_line(line)?]);
/// assert_eq!((summaries[0].device.as_str(), summaries[0].kernels_ns), ("cpu", 3000));
/// assert_eq!((summaries[0].kernels[0].name.as_str(), summaries[0].kernels[0].launches), ("matmul", 1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn summarise(events: &[Event]) -> Vec<DeviceSummary> {
    devices(events).into_iter().map(|device| device.summary()).collect()
}

pub(super) struct DeviceEvents<'a> {
    pub(super) id: &'a str,
    pub(super) events: Vec<&'a Event>,
}

pub(super) fn devices(events: &[Event]) -> Vec<DeviceEvents<'_>> {
    let mut found: Vec<DeviceEvents<'_>> = Vec::new();
    for event in events {
        match found.iter_mut().find(|device| device.id == event.device) {
            Some(device) => device.events.push(event),
            None => found.push(DeviceEvents { id: &event.device, events: vec![event] }),
        }
    }
    found
}

impl DeviceEvents<'_> {
    /// Returns the time from the start of the first event to the end of the last.
    pub(super) fn window(&self) -> Range<u64> {
        let spans = || self.events.iter().map(|event| span_of(event));
        let start = spans().map(|span| span.start).min().unwrap_or(0);
        start..spans().map(|span| span.end).max().unwrap_or(start)
    }

    /// Returns the times in which kernels are known to have run: ordered and disjoint.
    pub(super) fn busy(&self) -> Vec<Range<u64>> {
        let is_run = |event: &&&Event| matches!(event.kind, EventKind::KernelRun { .. });
        let mut spans: Vec<Range<u64>> =
            self.events.iter().filter(is_run).filter_map(|event| event.kind.span()).collect();
        spans.sort_by_key(|span| span.start);
        let mut busy: Vec<Range<u64>> = Vec::new();
        // Sorted by start, so a span either extends the last busy time or begins a new one.
        for span in spans {
            match busy.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => busy.push(span),
            }
        }
        busy
    }

    pub(super) fn summary(&self) -> DeviceSummary {
        let (window, busy) = (self.window(), self.busy());
        let window_ns = window.end - window.start;
        let kernels_ns = busy.iter().map(|span| span.end - span.start).sum();
        let mut summary = DeviceSummary {
            device: self.id.to_string(),
            start_ns: window.start,
            window_ns,
            kernels_ns,
            // Cannot underflow: the busy times are disjoint and within the window.
            unattributed_ns: window_ns - kernels_ns,
            ..DeviceSummary::default()
        };
        let mut kernels: BTreeMap<&str, KernelSummary> = BTreeMap::new();
        // Signed, because a stream may begin in the middle of a watch.
        let mut watches = 0i64;
        for event in &self.events {
            match &event.kind {
                EventKind::WatchBegan { name, threads, .. } => {
                    (summary.name, summary.threads) = (Some(name.clone()), *threads);
                    watches += 1;
                }
                EventKind::WatchEnded { lost, .. } => {
                    watches -= 1;
                    summary.dropped_events = summary.dropped_events.saturating_add(*lost);
                }
                EventKind::EventsDropped { count } => {
                    summary.dropped_events = summary.dropped_events.saturating_add(*count);
                }
                kind @ EventKind::KernelRun { kernel, launches, duration_ns, .. } => {
                    kernels.entry(kernel).or_default().add(kind);
                    let untimed = if duration_ns.is_none() { *launches } else { 0 };
                    summary.untimed_launches = summary.untimed_launches.saturating_add(untimed);
                }
                _ => {}
            }
        }
        summary.is_cut_off = watches > 0;
        let named = |(name, kernel): (&str, KernelSummary)| KernelSummary { name: name.to_string(), ..kernel };
        summary.kernels = kernels.into_iter().map(named).collect();
        summary.kernels.sort_by_key(|kernel| Reverse(kernel.total_ns));
        summary
    }
}

impl KernelSummary {
    fn add(&mut self, kind: &EventKind) {
        let EventKind::KernelRun { launches, bytes, flops, duration_ns, .. } = kind else { return };
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.launches, *launches);
        add(&mut self.bytes, *bytes);
        add(&mut self.flops, *flops);
        if let Some(took) = duration_ns {
            add(&mut self.timed, *launches);
            add(&mut self.total_ns, *took);
            add(&mut self.timed_bytes, *bytes);
            add(&mut self.timed_flops, *flops);
        }
    }
}

/// Returns the time from the start of an event to its report, or to its end if that is later.
fn span_of(event: &Event) -> Range<u64> {
    let span = event.kind.span().unwrap_or(event.at_ns..event.at_ns);
    span.start.min(event.at_ns)..span.end.max(event.at_ns)
}
