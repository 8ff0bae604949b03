//! Failing callbacks: the error has the node's name, dependents do not run, and nothing hangs.

use crate::fixture::{cpu, device, fill, graph_of, planted, within_a_minute};
use kiln_device::{BufferUse, Graph, NullDevice};
use kiln_ir::ErrorKind;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier, Mutex};

/// Dependents of a failed node do not run: host nodes, commands, and their dependents.
#[test]
fn nothing_that_depends_on_a_failed_node_runs() {
    for workers in [1, 4] {
        for device in [cpu(), device(&NullDevice::new())] {
            let (x, y, z) = (device.buffer(64).unwrap(), device.buffer(64).unwrap(), device.buffer(64).unwrap());
            for buffer in [&x, &y, &z] {
                buffer.write(&[7; 64]).unwrap();
            }
            let mut graph = graph_of([("x", &x), ("y", &y), ("z", &z)]);
            graph.host("load", [(&x, BufferUse::Write)], |_| Err(planted())).unwrap();
            graph.copy("copy", &x, &y).unwrap();
            fill(&mut graph, "after", &y, 1);
            fill(&mut graph, "declared", &z, 1);
            graph.after("declared", "load").unwrap();
            let plan = graph.compile().unwrap().with_workers(workers).unwrap();
            for _ in 0..3 {
                let error = plan.run().unwrap_err();
                assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Io, "node `load`: planted"));
                assert_eq!([&y, &z].map(|buffer| buffer.read().unwrap()), [[7; 64], [7; 64]]);
            }
        }
    }
}

/// A panic is an error of the run with its message, and the plan remains usable.
#[test]
fn a_panic_is_an_error_with_its_text() {
    let fail = Arc::new(AtomicUsize::new(0));
    let texts = [
        "node `a`: expected a result, found a panic: planted 1",
        "node `a`: expected a result, found a panic: planted",
        "node `a`: expected a result, found a panic: no text",
    ];
    let mut graph = Graph::new();
    let fails = Arc::clone(&fail);
    graph
        .host("a", [], move |[]| match fails.load(Ordering::SeqCst) {
            0 => panic!("planted {}", 1),
            1 => panic!("planted"),
            2 => std::panic::panic_any(3),
            _ => Ok(()),
        })
        .unwrap();
    let plan = graph.compile().unwrap();
    for text in texts {
        let error = plan.run().unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Internal, text));
        fail.fetch_add(1, Ordering::SeqCst);
    }
    plan.run().unwrap();
}

/// Nodes that are running when another fails finish before the run returns; no further node starts.
#[test]
fn running_nodes_end_and_no_other_begins() {
    // Dropped when its thread ends, which a worker does after it has recorded a failure.
    thread_local!(static OF_WORKER: RefCell<Option<Sender<()>>> = const { RefCell::new(None) });

    within_a_minute(|| {
        for fail in [|| (), || panic!("planted")] as [fn(); 2] {
            let (barrier, finished, began) = (Arc::new(Barrier::new(2)), Arc::default(), Arc::default());
            let (sender, receiver) = mpsc::channel::<()>();
            let (sender, receiver) = (Mutex::new(Some(sender)), Mutex::new(receiver));
            let mut graph = Graph::new();
            let (meet, finish) = (Arc::clone(&barrier), Arc::<AtomicBool>::clone(&finished));
            // The caller takes the first node and leaves the second to a worker.
            graph
                .host("goes on", [], move |[]| {
                    meet.wait();
                    assert!(receiver.lock().unwrap().recv().is_err(), "the other worker ends");
                    finish.store(true, Ordering::SeqCst);
                    Ok(())
                })
                .unwrap();
            graph
                .host("fails", [], move |[]| {
                    OF_WORKER.set(sender.lock().unwrap().take());
                    barrier.wait();
                    fail();
                    Err(planted())
                })
                .unwrap();
            let begin = Arc::<AtomicBool>::clone(&began);
            graph
                .host("later", [], move |[]| {
                    begin.store(true, Ordering::SeqCst);
                    Ok(())
                })
                .unwrap();
            graph.after("later", "goes on").unwrap();
            let plan = graph.compile().unwrap().with_workers(2).unwrap();
            let error = plan.run().unwrap_err().to_string();
            assert!(error.starts_with("node `fails`: "), "{error}");
            assert!(finished.load(Ordering::SeqCst));
            assert!(!began.load(Ordering::SeqCst), "it follows a node that ended after the failure");
        }
    });
}

/// Of several failures the first in the order of the plan is returned, whichever occurred first.
#[test]
fn of_two_failures_the_first_in_order_is_returned() {
    within_a_minute(|| {
        let barrier = Arc::new(Barrier::new(2));
        let mut graph = Graph::new();
        for name in ["first", "second"] {
            let barrier = Arc::clone(&barrier);
            let fail = move |[]: [&kiln_device::Buffer; 0]| {
                barrier.wait();
                Err(planted())
            };
            graph.host(name, [], fail).unwrap();
        }
        let plan = graph.compile().unwrap().with_workers(2).unwrap();
        for _ in 0..50 {
            assert_eq!(plan.run().unwrap_err().to_string(), "node `first`: planted");
        }
    });
}
