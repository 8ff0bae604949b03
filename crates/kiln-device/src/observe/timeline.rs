//! Converts an event stream to a trace for Perfetto and `chrome://tracing`.
//!
//! Each device is a process. Its tracks are: kernels, on several tracks if they overlap; the time in which no kernel is
//! known to have run; compiles; graph nodes, by worker; cleanups of the pool, and the bytes of the pool as a counter.

use super::event::{Event, EventKind};
use super::summary::{DeviceEvents, DeviceSummary, devices};
use serde::Serialize;
use serde_json::{Value, json};
use std::ops::Range;

/// A trace in the format of `chrome://tracing`, to be serialised as JSON.
///
/// See [`timeline()`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// The events. Times are microseconds since the first event.
    pub trace_events: Vec<TraceEvent>,
    /// The unit that viewers display.
    pub display_time_unit: &'static str,
    /// The totals of each device; kernel time and unattributed time add up to the window.
    pub other_data: Totals,
}

/// The totals of a trace.
///
/// See [`timeline()`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// The devices, in the order of their processes.
    pub devices: Vec<DeviceSummary>,
}

/// An event of the trace; the field names are those of the format.
///
/// See [`timeline()`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceEvent {
    /// The displayed name.
    pub name: String,
    /// The phase: `X` for a span, `i` for an instant, `C` for a counter, `M` for the name of a process or track.
    pub ph: &'static str,
    /// The start, in microseconds.
    pub ts: f64,
    /// The duration of a span, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<f64>,
    /// The number of the device.
    pub pid: usize,
    /// The track.
    pub tid: usize,
    /// Additional data.
    pub args: Value,
}

/// Track numbers. Kernels, compiles and workers use consecutive tracks from their first one.
const UNATTRIBUTED: usize = 1;
const POOL: usize = 2;
const KERNELS: usize = 100;
const COMPILES: usize = 200;
const WORKERS: usize = 300;
const TRACKS: [(usize, usize, &str); 5] = [
    (UNATTRIBUTED, UNATTRIBUTED, "unattributed"),
    (POOL, POOL, "pool"),
    (KERNELS, COMPILES - 1, "kernels"),
    (COMPILES, WORKERS - 1, "compiles"),
    (WORKERS, usize::MAX, "graph worker"),
];

/// Converts a stream of one or several devices to a trace.
///
/// ```
/// use kiln_device::observe::{Event, timeline};
///
/// let line = r#"{"device":"cpu","at_ns":4000,"type":"KernelRun","data":{"kernel":"matmul","submission":1,"launches":1,"bytes":100,"flops":10,"start_ns":1000,"duration_ns":3000}}"#;
/// let trace = timeline(&[Event::from_json_line(line)?]);
/// assert!(trace.trace_events.iter().any(|event| event.name == "matmul" && event.dur == Some(3.0)));
/// assert_eq!(trace.other_data.devices[0].kernels_ns, 3000);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn timeline(events: &[Event]) -> Timeline {
    let devices = devices(events);
    let origin_ns = devices.iter().map(|device| device.window().start).min().unwrap_or(0);
    let trace_events =
        devices.iter().zip(1..).flat_map(|(device, pid)| TraceBuilder::new(pid, origin_ns).build(device));
    Timeline {
        trace_events: trace_events.collect(),
        display_time_unit: "ns",
        other_data: Totals { devices: devices.iter().map(DeviceEvents::summary).collect() },
    }
}

struct TraceBuilder {
    pid: usize,
    origin_ns: u64,
    events: Vec<TraceEvent>,
    /// When each track of kernels, and of compiles, is free again.
    kernels: Vec<u64>,
    compiles: Vec<u64>,
}

impl TraceBuilder {
    fn new(pid: usize, origin_ns: u64) -> Self {
        Self { pid, origin_ns, events: Vec::new(), kernels: Vec::new(), compiles: Vec::new() }
    }

    fn build(mut self, device: &DeviceEvents<'_>) -> Vec<TraceEvent> {
        let mut events = device.events.clone();
        // In the order of their start, so that each span finds a free track.
        events.sort_by_key(|event| span_of(event).start);
        events.into_iter().for_each(|event| self.draw(event));
        self.draw_unattributed(&device.window(), &device.busy());
        self.with_names(device.id)
    }

    fn draw(&mut self, event: &Event) {
        match &event.kind {
            EventKind::KernelRun { kernel, launches, .. } => {
                let together = if *launches > 1 { format!("{kernel} ×{launches}") } else { kernel.clone() };
                match event.kind.span() {
                    Some(span) => {
                        let track = KERNELS + lane(&mut self.kernels, &span);
                        self.span(together, track, event);
                    }
                    None => self.instant(format!("{together} (untimed)"), KERNELS, event),
                }
            }
            EventKind::KernelReady { kernel, .. } => {
                let track = COMPILES + lane(&mut self.compiles, &span_of(event));
                self.span(kernel.clone(), track, event);
            }
            EventKind::GraphNode { node, worker, .. } => self.span(node.clone(), WORKERS + *worker as usize, event),
            EventKind::PoolCleanup { .. } => self.span("cleanup".into(), POOL, event),
            EventKind::PoolPressure { begins, .. } => {
                self.instant(if *begins { "pressure begins" } else { "pressure ends" }.into(), POOL, event);
            }
            EventKind::PoolOutOfMemory { .. } => self.instant("out of memory".into(), POOL, event),
            EventKind::EventsDropped { .. } => self.instant("events dropped".into(), UNATTRIBUTED, event),
            EventKind::WatchBegan { reserved_bytes, .. }
            | EventKind::PoolGrew { reserved_bytes, .. }
            | EventKind::PoolShrank { reserved_bytes, .. } => {
                let args = json!({ "reserved": reserved_bytes });
                self.push("pool bytes".into(), "C", POOL, event.at_ns..event.at_ns, args);
            }
            EventKind::GraphRun { .. } | EventKind::WatchEnded { .. } | EventKind::Cache(_) => {}
        }
    }

    /// Draws the parts of the window between kernels.
    fn draw_unattributed(&mut self, window: &Range<u64>, busy: &[Range<u64>]) {
        let ends = busy.iter().map(|span| span.end);
        let starts = busy.iter().map(|span| span.start).chain([window.end]);
        for (start, end) in [window.start].into_iter().chain(ends).zip(starts).filter(|(start, end)| start < end) {
            self.push("unattributed".into(), "X", UNATTRIBUTED, start..end, json!({}));
        }
    }

    fn span(&mut self, name: String, track: usize, event: &Event) {
        self.push(name, "X", track, span_of(event), data(&event.kind));
    }

    fn instant(&mut self, name: String, track: usize, event: &Event) {
        self.push(name, "i", track, event.at_ns..event.at_ns, data(&event.kind));
    }

    fn push(&mut self, name: String, ph: &'static str, tid: usize, span: Range<u64>, args: Value) {
        let micros = |ns: u64| ns as f64 / 1000.0;
        // Cannot underflow: the origin is the earliest start of all windows, and a window contains its spans.
        let (ts, dur) = (micros(span.start - self.origin_ns), (ph == "X").then(|| micros(span.end - span.start)));
        self.events.push(TraceEvent { name, ph, ts, dur, pid: self.pid, tid, args });
    }

    /// Returns all events, preceded by the names of the process and of the used tracks.
    fn with_names(self, id: &str) -> Vec<TraceEvent> {
        let mut tids: Vec<usize> = self.events.iter().map(|event| event.tid).collect();
        tids.sort_unstable();
        tids.dedup();
        let pid = self.pid;
        let meta = |name: &str, tid, of: String| {
            let args = json!({ "name": of });
            TraceEvent { name: name.to_string(), ph: "M", ts: 0.0, dur: None, pid, tid, args }
        };
        let track = |tid: usize| {
            let known = TRACKS.iter().find(|(first, last, _)| (*first..=*last).contains(&tid));
            let (first, name) = known.map_or((tid, "other"), |(first, _, name)| (*first, *name));
            let number = tid - first;
            let name = if number == 0 { name.to_string() } else { format!("{name} {number}") };
            meta("thread_name", tid, name)
        };
        let names = [meta("process_name", 0, id.to_string())].into_iter().chain(tids.into_iter().map(track));
        names.chain(self.events).collect()
    }
}

/// Returns the first track that is free when the span starts, and occupies it until the span ends.
fn lane(free_at: &mut Vec<u64>, span: &Range<u64>) -> usize {
    // First fit. Because spans come in the order of their start, this uses the fewest lanes.
    let found = free_at.iter().position(|&free| free <= span.start).unwrap_or(free_at.len());
    match free_at.get_mut(found) {
        Some(free) => *free = span.end,
        None => free_at.push(span.end),
    }
    found
}

/// Returns the span of an event, or the time of its report if the span is unknown.
fn span_of(event: &Event) -> Range<u64> {
    event.kind.span().unwrap_or(event.at_ns..event.at_ns)
}

/// Returns the data of an event, as in its JSON line.
fn data(kind: &EventKind) -> Value {
    serde_json::to_value(kind).ok().and_then(|mut value| value.get_mut("data").map(Value::take)).unwrap_or_default()
}
