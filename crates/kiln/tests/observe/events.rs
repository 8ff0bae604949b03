//! One event stream for caches, pools, kernels and graphs.

use crate::devices::open;
use kiln::device::Feature;
use kiln::graph::Graph;
use kiln::observe::{
    CleanupReason, Event, EventChannel, EventKind, EventLines, WatchReport, Watcher, summarise, timeline,
    watch_from_settings,
};
use kiln::pool::PoolConfig;
use kiln::{DType, Device, Tensor};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Returns the events emitted while `work` runs.
fn events_of(device: &Device, work: impl FnOnce()) -> Vec<Event> {
    let (channel, events) = EventChannel::new(100_000);
    let watch = device.watch(channel).unwrap();
    work();
    let report = device.unwatch(watch).unwrap();
    let events: Vec<Event> = events.iter().collect();
    assert_eq!(report, WatchReport { delivered: events.len() as u64, dropped: 0, lost: 0 });
    assert!(events.iter().all(|event| event.device == device.info().id));
    assert!(matches!(events[0].kind, EventKind::WatchBegan { .. }), "{:?}", events[0]);
    let last = events.len() as u64 - 1;
    assert_eq!(events[events.len() - 1].kind, EventKind::WatchEnded { delivered: last, dropped: 0, lost: 0 });
    events
}

fn is_timed(device: &Device) -> bool {
    device.info().id == "cpu" || device.info().features.contains(&Feature::Timestamps)
}

fn lines(path: &Path) -> Vec<Event> {
    fs::read_to_string(path).unwrap().lines().map(|line| Event::from_json_line(line).unwrap()).collect()
}

#[test]
fn kernel_events_have_their_submission_cost_and_time() {
    for device in open() {
        let x = Tensor::ones((64, 64), DType::F32, &device).unwrap();
        x.eval().unwrap();
        let events = events_of(&device, || (0..3).for_each(|_| x.matmul(&x).unwrap().eval().unwrap()));
        let mut submissions = Vec::new();
        for event in &events {
            let EventKind::KernelRun { kernel, submission, launches, bytes, flops, start_ns, duration_ns } =
                &event.kind
            else {
                continue;
            };
            assert_eq!((kernel.as_str(), *launches), ("matmul", 1));
            assert_eq!((*bytes, *flops), (3 * 4 * 64 * 64, 2 * 64 * 64 * 64));
            assert_eq!((start_ns.is_some(), duration_ns.is_some()), (is_timed(&device), is_timed(&device)));
            submissions.push(*submission);
        }
        assert!(
            submissions.len() == 3 && submissions.is_sorted() && submissions[0] < submissions[2],
            "{submissions:?}"
        );
        let summary = &summarise(&events)[0];
        assert_eq!(summary.kernels_ns + summary.unattributed_ns, summary.window_ns);
        let [kernel] = &summary.kernels[..] else { panic!("{summary:?}") };
        assert_eq!((kernel.launches, kernel.timed), (3, if is_timed(&device) { 3 } else { 0 }));
        assert_eq!(summary.untimed_launches, 3 - kernel.timed);
    }
}

/// Cache events are the same as those that a cache sink receives.
#[test]
fn caches_tell_misses_then_hits_and_compiles_tell_their_time() {
    for device in open() {
        let events = events_of(&device, || {
            for _ in 0..2 {
                let x = Tensor::from_slice(&[1.0f32, 2.0], 2, &device).unwrap();
                assert_eq!(x.mul_scalar(3.0).unwrap().to_vec::<f32>().unwrap(), [3.0, 6.0]);
            }
        });
        let accesses = |cache: &str| -> Vec<bool> {
            let of = |event: &Event| {
                let line: serde_json::Value = serde_json::from_str(&event.to_json_line().unwrap()).unwrap();
                let is_of = line["data"]["cache_key"].as_str().is_some_and(|key| key.starts_with(cache));
                (line["type"] == "ResourceCacheAccess" && is_of).then(|| line["data"]["hit"].as_bool().unwrap())
            };
            events.iter().filter_map(of).collect()
        };
        assert_eq!(accesses("plans:"), [false, true]);
        let compiles =
            events.iter().filter(|event| matches!(event.kind, EventKind::KernelReady { duration_ns: 1.., .. }));
        let is_gpu = device.info().id != "cpu";
        assert_eq!(compiles.count(), usize::from(is_gpu), "the CPU device runs plans natively");
        assert_eq!(accesses("kernels:").first(), is_gpu.then_some(&false));
    }
}

#[test]
fn pools_report_allocations_and_releases() {
    for device in open() {
        let bytes = 40 << 20;
        let events = events_of(&device, || {
            drop(device.buffer(bytes).unwrap());
            device.synchronize().unwrap();
            device.pool().cleanup(true);
            let budget = PoolConfig { budget_bytes: Some(1 << 20), ..device.pool().config() };
            device.pool().set_config(budget).unwrap();
            let held: Vec<_> = (0..4).map_while(|_| device.buffer(300 << 10).ok()).collect();
            assert!(held.len() < 4, "beyond the budget");
        });
        let mut reserved = None;
        for event in &events {
            match event.kind {
                EventKind::WatchBegan { reserved_bytes, .. } => reserved = Some(reserved_bytes),
                EventKind::PoolGrew { bytes, reserved_bytes, .. } => {
                    assert_eq!(reserved.map(|before| before + bytes), Some(reserved_bytes));
                    reserved = Some(reserved_bytes);
                }
                EventKind::PoolShrank { bytes, reserved_bytes } => {
                    assert_eq!(reserved.map(|before| before - bytes), Some(reserved_bytes));
                    reserved = Some(reserved_bytes);
                }
                _ => {}
            }
        }
        assert_eq!(reserved, Some(device.buffer_pool_stats().bytes_reserved));
        let has = |is: fn(&EventKind) -> bool| events.iter().any(|event| is(&event.kind));
        assert!(has(|kind| matches!(kind, EventKind::PoolGrew { bytes: 41_943_040, .. })));
        assert!(has(|kind| matches!(
            kind,
            EventKind::PoolCleanup { reason: CleanupReason::Requested, bytes: 41_943_040.., .. }
        )));
        assert!(has(|kind| matches!(kind, EventKind::PoolPressure { begins: true, budget_bytes: 1_048_576, .. })));
        assert!(has(|kind| matches!(kind, EventKind::PoolOutOfMemory { bytes: 307_200, .. })));
    }
}

#[test]
fn graphs_tell_each_node_once() {
    for device in open() {
        let (from, to) = (device.buffer_from(&[1u32, 2, 3]).unwrap(), device.buffer_of::<u32>(3).unwrap());
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let mut graph = Graph::new();
        graph.buffer("from", from).unwrap();
        graph.buffer("to", to).unwrap();
        graph.copy("copy", from, to).unwrap();
        graph.host("look", [(to, kiln::graph::BufferUse::Read)], |_| Ok(())).unwrap();
        let plan = graph.compile().unwrap();
        let mut report = None;
        let events = events_of(&device, || report = Some(plan.run().unwrap()));
        let nodes: Vec<(&str, u64, Option<u64>)> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::GraphNode { node, run, submission, .. } => Some((node.as_str(), *run, *submission)),
                _ => None,
            })
            .collect();
        let expected =
            report.iter().flat_map(|report| &report.nodes).map(|node| (node.name.as_str(), 1, node.submission));
        assert_eq!(nodes, expected.collect::<Vec<_>>());
        let runs = events.iter().filter(|event| matches!(event.kind, EventKind::GraphRun { run: 1, nodes: 2, .. }));
        assert_eq!(runs.count(), 1);
    }
}

/// The file has all events when the last handle is dropped, including GPU timestamps.
#[test]
fn a_file_is_whole_when_the_device_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    for device in open() {
        let (id, timed) = (device.info().id.clone(), is_timed(&device));
        let file = folder.path().join(format!("{}.jsonl", id.replace(':', "-")));
        let x = Tensor::ones((128, 128), DType::F32, &device).unwrap();
        x.eval().unwrap();
        device.watch(EventLines::new(File::create(&file).unwrap())).unwrap();
        for _ in 0..5 {
            x.matmul(&x).unwrap().eval().unwrap();
        }
        drop((x, device));
        let events = lines(&file);
        let runs = |event: &&Event| matches!(&event.kind, EventKind::KernelRun { duration_ns, .. } if duration_ns.is_some() == timed);
        assert_eq!(events.iter().filter(runs).count(), 5, "{id}");
        let last = &events[events.len() - 1];
        let delivered = events.len() as u64 - 1;
        assert_eq!(last.kind, EventKind::WatchEnded { delivered, dropped: 0, lost: 0 }, "{id}");
        let reserved = events.iter().rev().find_map(|event| match event.kind {
            EventKind::PoolShrank { reserved_bytes, .. } => Some(reserved_bytes),
            _ => None,
        });
        assert_eq!(reserved, Some(0), "{id}: the memory released when the pool closes is in the stream");
        let drawn = timeline(&events);
        assert!(drawn.trace_events.iter().any(|event| event.ph == "X" && event.name != "unattributed"), "{id}");
    }
}

/// Devices that are given the same file name write separate files.
#[test]
fn the_setting_names_a_file_that_devices_do_not_fight_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let setting = |name: &str| (name == "KILN_EVENTS").then(|| path.to_string_lossy().into_owned());
    let devices = [Device::cpu().unwrap(), Device::cpu().unwrap()];
    for (device, len) in devices.iter().zip([3, 5]) {
        assert_eq!(watch_from_settings(device, |_| None).unwrap(), None);
        assert_eq!(watch_from_settings(device, |_| Some(String::new())).unwrap(), None);
        assert!(watch_from_settings(device, setting).unwrap().is_some());
        Tensor::ones(len, DType::F32, device).unwrap().add_scalar(1.0).unwrap().eval().unwrap();
    }
    drop(devices);
    for (file, len) in [("events.jsonl", 3), ("events.2.jsonl", 5)] {
        let summary = &summarise(&lines(&folder.path().join(file)))[0];
        assert_eq!(summary.kernels.iter().map(|kernel| kernel.flops).sum::<u64>() % len, 0, "{file}: {summary:?}");
        assert!(!summary.kernels.is_empty());
    }
    let device = Device::cpu().unwrap();
    let error = watch_from_settings(&device, |_| Some("/nonexistent/events.jsonl".into())).unwrap_err().to_string();
    assert!(error.contains("KILN_EVENTS expected a file for events, found `/nonexistent/events.jsonl`"), "{error}");
}

struct Broken;

impl Watcher for Broken {
    fn take(&mut self, event: &Event) -> io::Result<()> {
        assert!(!matches!(event.kind, EventKind::KernelRun { .. }), "planted");
        Err(io::Error::other("out of order"))
    }
}

/// A watcher that fails or panics does not affect the others or the device.
#[test]
fn a_watcher_that_fails_is_counted() {
    let device = Device::cpu().unwrap();
    let broken = device.watch(Broken).unwrap();
    let events =
        events_of(&device, || Tensor::ones(9, DType::F32, &device).unwrap().add_scalar(1.0).unwrap().eval().unwrap());
    let report = device.unwatch(broken).unwrap();
    assert_eq!((report.delivered, report.dropped), (0, 0));
    assert!(report.lost >= events.len() as u64 - 2, "{report:?}");
    assert_eq!(device.unwatch(broken), None, "gone");
    device.synchronize().unwrap();
}

fn work(device: &Device) {
    Tensor::ones(9, DType::F32, device).unwrap().add_scalar(1.0).unwrap().eval().unwrap();
}

/// Accepts all events, and fails to flush this many times.
struct Unflushed(EventChannel, usize);

impl Watcher for Unflushed {
    fn take(&mut self, event: &Event) -> io::Result<()> {
        self.0.take(event)
    }

    fn flush(&mut self) -> io::Result<()> {
        let fails = self.1 > 0;
        self.1 = self.1.saturating_sub(1);
        if fails { Err(io::Error::other("no room")) } else { Ok(()) }
    }
}

/// Events that could not be written are lost, and the stream reports the loss as soon as it can.
#[test]
fn events_that_could_not_be_flushed_are_lost() {
    let device = Device::cpu().unwrap();
    for failures in [1, usize::MAX] {
        let (channel, events) = EventChannel::new(1000);
        let watch = device.watch(Unflushed(channel, failures)).unwrap();
        work(&device);
        let report = device.unwatch(watch).unwrap();
        let taken: Vec<Event> = events.iter().collect();
        assert_eq!(report.delivered + report.lost, taken.len() as u64, "{report:?}");
        if failures > 1 {
            assert_eq!(report.delivered, 0, "{report:?}");
            continue;
        }
        assert!(report.delivered > 0 && report.lost > 0, "{report:?}");
        let ended = EventKind::WatchEnded { delivered: report.delivered - 1, dropped: 0, lost: report.lost };
        assert_eq!(taken.last().map(|event| &event.kind), Some(&ended));
    }
}

/// A file on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn lines_that_found_no_room_on_disk_are_lost() {
    let device = Device::cpu().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let watch = device.watch(EventLines::new(full)).unwrap();
    (0..100).for_each(|_| work(&device));
    let report = device.unwatch(watch).unwrap();
    assert_eq!((report.delivered, report.dropped), (0, 0), "{report:?}");
    assert!(report.lost > 100, "{report:?}");
}

/// Fails when `work` does, or never ends.
fn ending(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("an end");
}

/// The stream survives a watcher whose drop panics.
#[test]
fn a_watcher_that_panics_when_it_is_dropped_ends_nothing() {
    struct Fragile;
    impl Watcher for Fragile {
        fn take(&mut self, _: &Event) -> io::Result<()> {
            Ok(())
        }
    }
    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("planted");
        }
    }
    ending(|| {
        let device = Device::cpu().unwrap();
        let fragile = device.watch(Fragile).unwrap();
        let events = events_of(&device, || {
            let report = device.unwatch(fragile).unwrap();
            assert_eq!((report.dropped, report.lost), (0, 0));
            work(&device);
        });
        assert!(events.iter().any(|event| matches!(event.kind, EventKind::KernelRun { .. })));
        // Ends when the device is dropped.
        device.watch(Fragile).unwrap();
    });
}

/// A watcher may start and end watches, even while another thread waits for its own end.
#[test]
fn a_watcher_can_end_a_watch() {
    struct Ender(Device, Option<kiln::observe::WatchId>, mpsc::Sender<Option<WatchReport>>);
    impl Watcher for Ender {
        fn take(&mut self, event: &Event) -> io::Result<()> {
            // Delivered while the test waits for the end of this watch.
            if matches!(event.kind, EventKind::WatchEnded { .. })
                && let Some(other) = self.1.take()
            {
                self.2.send(self.0.unwatch(other)).unwrap();
                self.0.watch(EventChannel::new(9).0).unwrap();
            }
            Ok(())
        }
    }
    ending(|| {
        let device = Device::cpu().unwrap();
        let (channel, events) = EventChannel::new(1000);
        let other = device.watch(channel).unwrap();
        let (send, reports) = mpsc::channel();
        let ender = device.watch(Ender(device.clone(), Some(other), send)).unwrap();
        assert!(device.unwatch(ender).unwrap().delivered > 0);
        assert_eq!(reports.recv().unwrap(), Some(WatchReport::default()), "it cannot wait for itself");
        assert_eq!(device.unwatch(other), None);
        let last = events.iter().last().unwrap();
        assert!(matches!(last.kind, EventKind::WatchEnded { .. }), "{last:?}");
    });
}

/// Events beyond the queue's capacity are dropped, and the stream reports that.
#[test]
fn a_slow_watcher_loses_events_and_receives_the_count() {
    struct Slow(EventChannel, std::sync::mpsc::Receiver<()>);
    impl Watcher for Slow {
        fn take(&mut self, event: &Event) -> io::Result<()> {
            // Until the test has emitted more events than the queue holds.
            let _ = self.1.recv();
            self.0.take(event)
        }
    }
    let device = Device::cpu().unwrap();
    let (channel, events) = EventChannel::new(1_000_000);
    let (go, wait) = std::sync::mpsc::channel();
    let watch = device.watch(Slow(channel, wait)).unwrap();
    for _ in 0..50_000 {
        drop(device.buffer(2 << 20).unwrap());
        device.pool().cleanup(true);
    }
    drop(go);
    let report = device.unwatch(watch).unwrap();
    assert!(report.dropped > 0, "{report:?}");
    let counts = events.iter().filter_map(|event| match event.kind {
        EventKind::EventsDropped { count } => Some(count),
        _ => None,
    });
    assert_eq!(counts.sum::<u64>(), report.dropped);
}
