//! A stream as a file for Perfetto and `chrome://tracing`.
//!
//! Each device is a process of it. Its tracks are kernels, of which several may run at once; the time in which none is known to have run;
//! compiles; nodes of graphs, by worker; cleanups of the pool, and the bytes of the pool as a counter.

use super::event::{Event, Happening};
use super::summary::{DeviceEvents, DeviceSummary, devices};
use serde::Serialize;
use serde_json::{Value, json};
use std::ops::Range;

/// The trace as `chrome://tracing` reads it, as JSON of this value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// What is drawn. Times are microseconds from the first thing that happened.
    pub trace_events: Vec<TraceEvent>,
    /// The unit that viewers show.
    pub display_time_unit: &'static str,
    /// What it adds up to, for each device: kernels and the unattributed rest are the window.
    pub other_data: Totals,
}

/// What a timeline adds up to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// The devices, in the order of their processes.
    pub devices: Vec<DeviceSummary>,
}

/// One thing that is drawn, by the names that the format gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceEvent {
    /// What it is called.
    pub name: String,
    /// Its sort: `X` a span, `i` a moment, `C` a counter, `M` the name of a process or a track.
    pub ph: &'static str,
    /// When it began, in microseconds.
    pub ts: f64,
    /// How long it took, in microseconds; only of spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<f64>,
    /// The number of the device.
    pub pid: usize,
    /// The track.
    pub tid: usize,
    /// What else there is to say.
    pub args: Value,
}

/// Tracks by number; kernels, compiles and workers take as many as they need from their first one on.
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

/// The timeline of a stream, which may be of several devices.
pub fn timeline(events: &[Event]) -> Timeline {
    let devices = devices(events);
    let origin_ns = devices.iter().map(|device| device.window().start).min().unwrap_or(0);
    let trace_events = devices.iter().zip(1..).flat_map(|(device, pid)| Drawing::new(pid, origin_ns).of(device));
    Timeline {
        trace_events: trace_events.collect(),
        display_time_unit: "ns",
        other_data: Totals { devices: devices.iter().map(DeviceEvents::summary).collect() },
    }
}

struct Drawing {
    pid: usize,
    origin_ns: u64,
    events: Vec<TraceEvent>,
    /// When each track of kernels, and of compiles, is free again.
    kernels: Vec<u64>,
    compiles: Vec<u64>,
}

impl Drawing {
    fn new(pid: usize, origin_ns: u64) -> Self {
        Self { pid, origin_ns, events: Vec::new(), kernels: Vec::new(), compiles: Vec::new() }
    }

    fn of(mut self, device: &DeviceEvents<'_>) -> Vec<TraceEvent> {
        let mut events = device.events.clone();
        // Spans by their beginning, so that each finds a track that is free.
        events.sort_by_key(|event| span_of(event).start);
        events.into_iter().for_each(|event| self.draw(event));
        self.draw_rest(&device.window(), &device.busy());
        self.names(device.id)
    }

    fn draw(&mut self, event: &Event) {
        match &event.what {
            Happening::KernelRun { kernel, launches, .. } => {
                let together = if *launches > 1 { format!("{kernel} ×{launches}") } else { kernel.clone() };
                match event.what.span() {
                    Some(span) => {
                        let track = KERNELS + lane(&mut self.kernels, &span);
                        self.span(together, track, event);
                    }
                    None => self.moment(format!("{together} (untimed)"), KERNELS, event),
                }
            }
            Happening::KernelReady { kernel, .. } => {
                let track = COMPILES + lane(&mut self.compiles, &span_of(event));
                self.span(kernel.clone(), track, event);
            }
            Happening::GraphNode { node, worker, .. } => self.span(node.clone(), WORKERS + *worker as usize, event),
            Happening::PoolCleanup { .. } => self.span("cleanup".into(), POOL, event),
            Happening::PoolPressure { begins, .. } => {
                self.moment(if *begins { "pressure begins" } else { "pressure ends" }.into(), POOL, event);
            }
            Happening::PoolOutOfMemory { .. } => self.moment("out of memory".into(), POOL, event),
            Happening::EventsDropped { .. } => self.moment("events dropped".into(), UNATTRIBUTED, event),
            Happening::WatchBegan { reserved_bytes, .. }
            | Happening::PoolTook { reserved_bytes, .. }
            | Happening::PoolGaveBack { reserved_bytes, .. } => {
                let args = json!({ "reserved": reserved_bytes });
                self.push("pool bytes".into(), "C", POOL, event.at_ns..event.at_ns, args);
            }
            Happening::GraphRun { .. } | Happening::WatchEnded { .. } | Happening::Cache(_) => {}
        }
    }

    /// The parts of the window between kernels.
    fn draw_rest(&mut self, window: &Range<u64>, busy: &[Range<u64>]) {
        let ends = busy.iter().map(|span| span.end);
        let starts = busy.iter().map(|span| span.start).chain([window.end]);
        for (start, end) in [window.start].into_iter().chain(ends).zip(starts).filter(|(start, end)| start < end) {
            self.push("unattributed".into(), "X", UNATTRIBUTED, start..end, json!({}));
        }
    }

    fn span(&mut self, name: String, track: usize, event: &Event) {
        self.push(name, "X", track, span_of(event), data(&event.what));
    }

    fn moment(&mut self, name: String, track: usize, event: &Event) {
        self.push(name, "i", track, event.at_ns..event.at_ns, data(&event.what));
    }

    fn push(&mut self, name: String, ph: &'static str, tid: usize, span: Range<u64>, args: Value) {
        let micros = |ns: u64| ns as f64 / 1000.0;
        let (ts, dur) = (micros(span.start - self.origin_ns), (ph == "X").then(|| micros(span.end - span.start)));
        self.events.push(TraceEvent { name, ph, ts, dur, pid: self.pid, tid, args });
    }

    /// Everything that was drawn, behind the names of the process and of the tracks that it is on.
    fn names(self, id: &str) -> Vec<TraceEvent> {
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

/// The first track that is free when the span begins; it is taken until the span ends.
fn lane(free_at: &mut Vec<u64>, span: &Range<u64>) -> usize {
    let found = free_at.iter().position(|&free| free <= span.start).unwrap_or(free_at.len());
    match free_at.get_mut(found) {
        Some(free) => *free = span.end,
        None => free_at.push(span.end),
    }
    found
}

/// Returns the span of an event, or the time of its report where the span is unknown.
fn span_of(event: &Event) -> Range<u64> {
    event.what.span().unwrap_or(event.at_ns..event.at_ns)
}

/// What an event says, as its line has it.
fn data(what: &Happening) -> Value {
    serde_json::to_value(what).ok().and_then(|mut value| value.get_mut("data").map(Value::take)).unwrap_or_default()
}
