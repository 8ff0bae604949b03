//! Summaries of event streams, and the timeline.

#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

use kiln_device::DeviceKind;
use kiln_device::graph::NodeKind;
use kiln_device::observe::{CleanupReason, Event, EventKind, summarise, timeline};
use kiln_device::{Grid, KernelSource, NullDevice, Origin, Usage};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// A time in 2023.
const BASE_NS: u64 = 1_700_000_000_000_000_000;

fn event(device: &str, at: u64, kind: EventKind) -> Event {
    Event { device: device.to_string(), at_ns: BASE_NS + at, kind }
}

fn began(device: &str, at: u64, kind: DeviceKind, is_timed: bool) -> Event {
    let name = format!("a {kind}");
    let threads = (kind == DeviceKind::Cpu).then_some(2);
    event(device, at, EventKind::WatchBegan { name, kind, threads, is_timed, reserved_bytes: 0 })
}

/// A kernel run that was reported as soon as it ended.
fn run(device: &str, kernel: &str, launches: u64, start: u64, took: u64) -> Event {
    let kind = EventKind::KernelRun {
        kernel: kernel.to_string(),
        submission: start,
        launches,
        bytes: 100 * launches,
        flops: 10 * launches,
        start_ns: Some(BASE_NS + start),
        duration_ns: Some(took),
    };
    event(device, start + took, kind)
}

/// Two devices with everything that is drawn: concurrent and consecutive kernels, a compile, an untimed launch, a
/// graph, a pool.
fn sample() -> Vec<Event> {
    let untimed = EventKind::KernelRun {
        kernel: "gather".into(),
        submission: 2,
        launches: 1,
        bytes: 8,
        flops: 0,
        start_ns: None,
        duration_ns: None,
    };
    let ready = EventKind::KernelReady {
        kernel: "gather".into(),
        origin: Origin::Compiled,
        start_ns: BASE_NS + 2_000,
        duration_ns: 1_500,
    };
    let node = EventKind::GraphNode {
        run: 1,
        node: "look".into(),
        kind: NodeKind::Host,
        worker: 1,
        start_ns: BASE_NS + 6_000,
        duration_ns: 250,
        submission: None,
        done_ns: None,
    };
    let cleanup = EventKind::PoolCleanup {
        reason: CleanupReason::Idle,
        blocks: 1,
        bytes: 4096,
        start_ns: BASE_NS + 8_000,
        duration_ns: 100,
    };
    vec![
        began("cpu", 0, DeviceKind::Cpu, true),
        event("cpu", 500, EventKind::PoolGrew { bytes: 4096, usage: Usage::Shared, reserved_bytes: 4096 }),
        run("cpu", "matmul", 1, 1_000, 3_000),
        run("cpu", "add", 20, 2_000, 1_000),
        began("gpu:0", 1_500, DeviceKind::SoftwareGpu, false),
        event("gpu:0", 3_500, ready),
        event("gpu:0", 4_000, untimed),
        run("cpu", "add", 1, 5_000, 1_000),
        event("cpu", 6_250, node),
        event("cpu", 8_100, EventKind::PoolShrank { bytes: 4096, reserved_bytes: 0 }),
        event("cpu", 8_100, cleanup),
        event("cpu", 9_000, EventKind::WatchEnded { delivered: 8, dropped: 0, lost: 0 }),
    ]
}

#[test]
fn a_timeline_has_the_perfetto_format() {
    insta::assert_snapshot!("timeline", serde_json::to_string_pretty(&timeline(&sample())).unwrap());
}

#[test]
fn every_line_is_read_back_as_it_was_written() {
    let line = |event: &Event| event.to_json_line().unwrap();
    for event in sample() {
        assert_eq!(Event::from_json_line(&line(&event)).unwrap(), event);
    }
    // A cache event has the same content as in the cache's own stream, plus device and time.
    let text = r#"{"device":"cpu","at_ns":7,"type":"ResourceCacheAccess","data":{"cache_key":"plans:1","hit":true,"bytes":64}}"#;
    let event = Event::from_json_line(text).unwrap();
    assert!(matches!(event.kind, EventKind::Cache(_)));
    assert_eq!(line(&event), text);
    // Names of earlier versions are still read; the oldest did not count lost events.
    let text = r#"{"device":"cpu","at_ns":7,"type":"PoolGaveBack","data":{"bytes":64,"reserved_bytes":0}}"#;
    let shrank = EventKind::PoolShrank { bytes: 64, reserved_bytes: 0 };
    assert_eq!(Event::from_json_line(text).unwrap().kind, shrank);
    let text = r#"{"device":"cpu","at_ns":7,"type":"WatchEnded","data":{"told":8,"dropped":0}}"#;
    let ended = EventKind::WatchEnded { delivered: 8, dropped: 0, lost: 0 };
    assert_eq!(Event::from_json_line(text).unwrap().kind, ended);
    for wrong in ["", "{}", "[]", r#"{"device":"cpu","at_ns":7,"type":"Unheard","data":{}}"#] {
        assert_eq!(Event::from_json_line(wrong).unwrap_err().kind(), std::io::ErrorKind::InvalidData, "{wrong}");
    }
}

#[test]
fn kernels_at_once_are_counted_once_in_the_window() {
    let summaries = summarise(&sample());
    let cpu = &summaries[0];
    assert_eq!((cpu.device.as_str(), cpu.threads, cpu.window_ns), ("cpu", Some(2), 9_000));
    assert_eq!((cpu.kernels_ns, cpu.unattributed_ns), (4_000, 5_000));
    let found: Vec<_> = cpu.kernels.iter().map(|k| (k.name.as_str(), k.launches, k.total_ns, k.bytes)).collect();
    assert_eq!(found, [("matmul", 1, 3_000, 100), ("add", 21, 2_000, 2_100)]);
    let gpu = &summaries[1];
    assert_eq!((gpu.kernels_ns, gpu.unattributed_ns, gpu.untimed_launches), (0, 2_500, 1));
    assert_eq!((gpu.kernels[0].launches, gpu.kernels[0].timed, gpu.kernels[0].timed_bytes), (1, 0, 0));
}

/// Dropped and lost events are summed.
#[test]
fn missing_events_are_summed() {
    let mut events = sample();
    events.pop();
    events.push(event("cpu", 8_500, EventKind::EventsDropped { count: 3 }));
    events.push(event("cpu", 9_000, EventKind::WatchEnded { delivered: 9, dropped: 3, lost: 4 }));
    assert_eq!(summarise(&events)[0].dropped_events, 7);
}

/// Collects the names of spans.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<&'static str>>>);

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "kiln"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut names = self.0.lock().unwrap();
        names.push(span.metadata().name());
        Id::from_u64(names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const WGSL: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = 1.0; }";

/// Spans are opened only if tracing is on.
#[test]
fn tracing_has_spans_of_kernels_submissions_graphs_and_cleanups() {
    let device = NullDevice::new().into_device().unwrap();
    let work = || {
        let spans = Spans::default();
        tracing::subscriber::with_default(spans.clone(), || {
            device.clear_kernels();
            let kernel = device.kernel(KernelSource::wgsl(WGSL).named("fill")).unwrap();
            let mut out = device.buffer(64).unwrap();
            kernel.launch().bind("out", &mut out).grid(Grid::workgroups([1, 1, 1])).submit().unwrap();
            let mut graph = kiln_device::Graph::new();
            graph.buffer("out", &out).unwrap();
            graph.host("look", [(&out, kiln_device::BufferUse::Read)], |_| Ok(())).unwrap();
            let to = device.buffer(64).unwrap();
            graph.buffer("to", &to).unwrap();
            graph.copy("copy", &out, &to).unwrap();
            graph.compile().unwrap().with_workers(1).unwrap().run().unwrap();
            device.pool().cleanup(true);
        });
        spans.0.lock().unwrap().clone()
    };
    assert_eq!(work(), [""; 0]);
    device.set_tracing(true);
    let expected = ["kernel_ready", "submission", "graph_run", "submission", "pool_cleanup"];
    assert_eq!(work(), if cfg!(feature = "events") { &expected[..] } else { &[] });
    device.set_tracing(false);
    assert_eq!(work(), [""; 0]);
}

proptest! {
    /// Kernel time and unattributed time add up to the window, whatever overlaps; spans on a track do not overlap.
    #[test]
    fn sums_add_up(runs in prop::collection::vec((0u64..10_000, 0u64..3_000, 1u64..5), 0..40)) {
        let mut events = vec![began("cpu", 500, DeviceKind::Cpu, true)];
        events.extend(runs.iter().map(|&(start, took, launches)| run("cpu", "k", launches, start, took)));
        let drawn = timeline(&events);
        let summary = &drawn.other_data.devices[0];
        prop_assert_eq!(summary.kernels_ns + summary.unattributed_ns, summary.window_ns);
        let micros = |ns: u64| ns as f64 / 1000.0;
        let spans = || drawn.trace_events.iter().filter(|event| event.ph == "X");
        let rest: f64 = spans().filter(|event| event.name == "unattributed").filter_map(|event| event.dur).sum();
        prop_assert!((rest - micros(summary.unattributed_ns)).abs() < 1e-6, "{} {:?}", rest, summary);
        // Independent reference: a moment is attributed if any kernel runs.
        let first = runs.iter().map(|run| run.0).chain([500]).min().unwrap();
        let last = runs.iter().map(|run| run.0 + run.1).chain([500]).max().unwrap();
        let busy = (first..last).filter(|&at| runs.iter().any(|run| run.0 <= at && at < run.0 + run.1)).count() as u64;
        prop_assert_eq!((summary.kernels_ns, summary.window_ns), (busy, last - first));
        let mut tracks: Vec<(usize, f64, f64)> = spans().map(|event| (event.tid, event.ts, event.dur.unwrap())).collect();
        tracks.sort_by(|one, other| one.partial_cmp(other).unwrap());
        for pair in tracks.windows(2) {
            prop_assert!(pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1 + 1e-6, "{:?}", pair);
        }
    }
}
