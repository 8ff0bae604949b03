//! Independent branches run in parallel, shown by nodes that wait for each other and not by time.

use crate::fixture::{cpu, device, graph_of, within_a_minute};
use crate::rendezvous::RendezvousDevice;
use kiln_device::{BufferUse, Device, Graph, NullDevice, PoolOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, ThreadId};

/// Two host nodes that wait for each other both complete.
#[test]
fn independent_host_nodes_run_at_once() {
    within_a_minute(|| {
        let barrier = Arc::new(Barrier::new(2));
        let mut graph = Graph::new();
        for name in ["left", "right"] {
            let barrier = Arc::clone(&barrier);
            graph
                .host(name, [], move |[]| {
                    barrier.wait();
                    Ok(())
                })
                .unwrap();
        }
        let plan = graph.compile().unwrap().with_workers(2).unwrap();
        for _ in 0..50 {
            let report = plan.run().unwrap();
            assert_eq!(report.workers, 2);
            assert_ne!(report.nodes[0].worker, report.nodes[1].worker);
            assert!(report.nodes[0].end_ns >= report.nodes[1].start_ns, "they overlap");
        }
    });
}

/// A device that runs its commands in `submit` does so in parallel to a host node, on another worker.
#[test]
fn branches_of_the_cpu_device_run_at_once() {
    within_a_minute(|| {
        let device = cpu();
        let (x, y, z) = (device.buffer(64).unwrap(), device.buffer(64).unwrap(), device.buffer(64).unwrap());
        x.write(&[5; 64]).unwrap();
        z.write(&[0; 64]).unwrap();
        let mut graph = graph_of([("x", &x), ("y", &y), ("z", &z)]);
        // The host node occupies the first worker until the copy, which is inserted after it, has run.
        let seen = y.clone();
        y.write(&[0; 64]).unwrap();
        graph
            .host("watch", [(&z, BufferUse::Write)], move |[z]| {
                while seen.read()? != [5; 64] {
                    thread::yield_now();
                }
                z.write(&[1; 64])
            })
            .unwrap();
        graph.copy("copy", &x, &y).unwrap();
        graph.compile().unwrap().with_workers(2).unwrap().run().unwrap();
        assert_eq!(z.read().unwrap(), [1; 64]);
    });
}

/// Independent command nodes of such a device are in `submit` at the same time.
#[test]
fn nodes_of_a_device_that_runs_on_the_caller_run_at_once() {
    within_a_minute(|| {
        let pool = PoolOptions::new().clock(kiln_resource_cache::MockClock::new());
        let device = Device::new(Arc::new(RendezvousDevice::new()), pool).unwrap();
        let buffers = [1_u8, 2, 0, 0].map(|byte| {
            let buffer = device.buffer(64).unwrap();
            buffer.write(&[byte; 64]).unwrap();
            buffer
        });
        let [a, b, c, d] = &buffers;
        let mut graph = graph_of([("a", a), ("b", b), ("c", c), ("d", d)]);
        graph.copy("left", a, c).unwrap();
        graph.copy("right", b, d).unwrap();
        let report = graph.compile().unwrap().with_workers(2).unwrap().run().unwrap();
        assert_ne!(report.nodes[0].submission, report.nodes[1].submission);
        assert_eq!([c, d].map(|buffer| buffer.read().unwrap()[0]), [1, 2]);
    });
}

/// A node that would wait for a device runs after other ready nodes.
#[test]
fn waiting_for_a_device_comes_last() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (x, y) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
    let mut graph = graph_of([("x", &x), ("y", &y)]);
    graph.copy("copy", &x, &y).unwrap();
    graph.host("wait", [(&y, BufferUse::Read)], |_| Ok(())).unwrap();
    graph.host("compute", [], |[]| Ok(())).unwrap();
    let report = graph.compile().unwrap().with_workers(1).unwrap().run().unwrap();
    assert_eq!(report.nodes.iter().map(|node| &node.name[..]).collect::<Vec<_>>(), ["copy", "compute", "wait"]);
}

/// The number of threads is bounded; they start only if there is work for them, and end with the run.
#[test]
fn workers_are_bounded_and_end_with_the_run() {
    within_a_minute(|| {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // A thread-local that is dropped when its thread ends.
        thread_local!(static GUARD: std::cell::RefCell<Option<Arc<()>>> = const { std::cell::RefCell::new(None) });
        let alive = Arc::new(());
        let caller = thread::current().id();
        let mut graph = Graph::new();
        for index in 0..64 {
            let (running, most, alive) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&alive));
            graph
                .host(format!("{index}"), [], move |[]| {
                    if thread::current().id() != caller {
                        GUARD.set(Some(Arc::clone(&alive)));
                    }
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                })
                .unwrap();
        }
        let plan = graph.compile().unwrap().with_workers(3).unwrap();
        let held = Arc::strong_count(&alive);
        for _ in 0..20 {
            let report = plan.run().unwrap();
            assert!((1..=3).contains(&report.workers) && report.nodes.iter().all(|node| node.worker < report.workers));
            assert!(most.load(Ordering::SeqCst) <= 3);
            assert_eq!(Arc::strong_count(&alive), held, "no thread of the run is left");
        }
    });
}

/// A chain uses no second thread.
#[test]
fn a_chain_stays_on_the_caller() {
    let device = cpu();
    let x = device.buffer(8).unwrap();
    let mut graph = graph_of([("x", &x)]);
    let caller: ThreadId = thread::current().id();
    for index in 0..20 {
        let check = move |_: [&kiln_device::Buffer; 1]| {
            assert_eq!(thread::current().id(), caller);
            Ok(())
        };
        graph.host(format!("{index}"), [(&x, BufferUse::ReadWrite)], check).unwrap();
    }
    let report = graph.compile().unwrap().with_workers(4).unwrap().run().unwrap();
    assert_eq!(report.workers, 1);
}
