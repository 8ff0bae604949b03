//! Faults at every point of a graph and of a captured sequence: each is returned by the run, or by the next read or
//! sync. Results of work that did not run are never returned.

use crate::fixture::{device, graph_of, planted, storage, within_a_minute};
use kiln_device::{Buffer, BufferUse, CommandList, Device, DeviceApi, Graph, NullDevice, Record};
use kiln_ir::{ErrorKind, Result};

/// A device with a graph that has submissions before, in parallel with and after host nodes, staged and in place.
struct Bench {
    null: NullDevice,
    device: Device,
    graph: Graph,
    results: Vec<Buffer>,
}

/// The content of every result after a run.
const EXPECTED: [u8; 64] = [42; 64];
const STALE: [u8; 64] = [9; 64];

fn bench(null: NullDevice) -> Bench {
    let device = device(&null);
    let shared = [0; 4].map(|_| device.buffer(64).unwrap());
    let staged = [0; 3].map(|_| storage(&device, 64));
    let ([a, b, c, d], [e, f, g]) = (&shared, &staged);
    let mut graph = graph_of([("a", a), ("b", b), ("c", c), ("d", d), ("e", e), ("f", f), ("g", g)]);
    graph.host("load", [(a, BufferUse::Write)], |[a]| a.write(&[40; 64])).unwrap();
    graph.copy("stage", a, b).unwrap();
    let add_one = |[from, to]: [&Buffer; 2]| to.write(&from.read()?.iter().map(|byte| byte + 1).collect::<Vec<_>>());
    graph.host("first", [(b, BufferUse::Read), (c, BufferUse::Write)], add_one).unwrap();
    graph.host("second", [(c, BufferUse::Read), (e, BufferUse::Write)], add_one).unwrap();
    let mut commands = CommandList::new();
    commands.zero(d).unwrap();
    commands.copy(e, d).unwrap();
    graph.commands("spread", commands).unwrap();
    graph.copy("store", e, f).unwrap();
    graph.copy("last", f, g).unwrap();
    for buffer in shared.iter().chain(&staged) {
        buffer.write(&STALE).unwrap();
    }
    device.synchronize().unwrap();
    let results = vec![d.clone(), f.clone(), g.clone()];
    Bench { null, device, graph, results }
}

impl Bench {
    fn count(&self, is_counted: impl Fn(&Record) -> bool) -> u64 {
        self.null.records().iter().filter(|record| is_counted(record)).count() as u64
    }

    /// Checks that a fault was returned, or that everything is as without it.
    fn check(&self, run: &Result<()>, what: &str) -> bool {
        if run.is_err() {
            return true;
        }
        let mut is_reported = false;
        for result in &self.results {
            match result.read() {
                Ok(bytes) => assert_eq!(bytes, EXPECTED, "{what}: a read that is no error is right"),
                Err(_) => is_reported = true,
            }
        }
        is_reported
    }
}

fn nulls() -> [fn() -> NullDevice; 2] {
    [NullDevice::new, || NullDevice::new().manual_completion()]
}

/// The device is lost in each submission of a graph in turn, with immediate and deferred completion.
#[test]
fn each_submission_of_a_graph_lost_in_turn() {
    within_a_minute(|| {
        for (null, ends_at_once) in nulls().into_iter().zip([true, false]) {
            let whole = bench(null());
            whole.null.clear_records();
            whole.graph.compile().unwrap().run().unwrap();
            let submissions = whole.count(|record| matches!(record, Record::Submit { .. }));
            assert!(submissions >= 3, "{submissions}: before, between and after host nodes");
            assert!(!whole.check(&Ok(()), "no fault"));
            for workers in [1, 3] {
                for lost in 1..=submissions {
                    let what = format!("submission {lost} of {submissions} lost, {workers} workers");
                    let bench = bench(null());
                    let plan = bench.graph.compile().unwrap().with_workers(workers).unwrap();
                    bench.null.lose_submission(lost);
                    let run = plan.run().map(drop);
                    if let Err(error) = &run {
                        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{what}");
                    }
                    assert!(run.is_err() || !ends_at_once, "{what}: known before the run ended, and it did not say so");
                    assert!(bench.check(&run, &what), "{what} without an error");
                    // The loss is permanent: reads, syncs and runs return it from now on.
                    assert_eq!(bench.device.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost, "{what}");
                    for result in &bench.results {
                        assert_eq!(result.read().unwrap_err().kind(), ErrorKind::DeviceLost, "{what}");
                    }
                    assert_eq!(plan.run().unwrap_err().kind(), ErrorKind::DeviceLost, "{what}");
                }
            }
        }
    });
}

/// A run that can already know of the loss returns it, with the nodes where it was found.
#[test]
fn the_loss_is_returned_with_the_nodes() {
    let messages = [NullDevice::new(), NullDevice::new().manual_completion()].map(|null| {
        let bench = bench(null);
        bench.null.lose_submission(1);
        bench.graph.compile().unwrap().with_workers(1).unwrap().run().unwrap_err().to_string()
    });
    insta::assert_snapshot!(messages.join("\n"));
}

/// Each map of a run fails in turn: the error names the node, and the plan works again.
#[test]
fn each_map_of_a_graph_fails_in_turn() {
    within_a_minute(|| {
        let whole = bench(NullDevice::new());
        whole.null.clear_records();
        whole.graph.compile().unwrap().run().unwrap();
        let maps = whole.count(|record| matches!(record, Record::Map { .. }));
        assert!(maps >= 5, "{maps}");
        for failing in 1..=maps {
            let bench = bench(NullDevice::new());
            let plan = bench.graph.compile().unwrap();
            bench.null.fail_map(failing);
            let error = plan.run().unwrap_err().to_string();
            assert!(error.starts_with("node `") && error.contains("injected fault of a map"), "{error}");
            let results: Vec<_> = bench.results.iter().map(|result| result.read().unwrap()).collect();
            assert!(
                results.iter().all(|bytes| *bytes == STALE),
                "map {failing} failed: what depends on it did not run"
            );
            plan.run().unwrap();
            assert!(!bench.check(&Ok(()), "after the fault"));
        }
    });
}

/// Each allocation of a run fails permanently in turn: the error names the node, or the allocation was not needed; the
/// plan works again.
#[test]
fn each_allocation_of_a_graph_fails_in_turn() {
    within_a_minute(|| {
        let mut reported = 0;
        let whole = bench(NullDevice::new());
        whole.device.pool().clear().unwrap();
        whole.null.clear_records();
        whole.graph.compile().unwrap().run().unwrap();
        let allocations = whole.count(|record| matches!(record, Record::Allocate { .. }));
        assert!(allocations >= 1, "staging");
        for failing in 1..=allocations {
            let bench = bench(NullDevice::new());
            let plan = bench.graph.compile().unwrap();
            bench.device.pool().clear().unwrap();
            // The pool retries, so the next allocations must fail too.
            (0..4).for_each(|next| bench.null.fail_allocation(failing + next));
            let run = plan.run().map(drop);
            if let Err(error) = &run {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory);
                assert!(error.to_string().starts_with("node `"), "{error}");
            }
            reported += u64::from(bench.check(&run, "allocation failed"));
            // Injected faults that were not needed fire here.
            (0..4).for_each(|_| drop(bench.device.buffer(1 << 20)));
            plan.run().unwrap();
            assert!(!bench.check(&Ok(()), "after the fault"));
        }
        assert_eq!(reported, allocations);
    });
}

/// Each submission of a series of replays is lost in turn; reads after it return the loss, those before it are right.
#[test]
fn each_replay_of_a_captured_sequence_lost_in_turn() {
    within_a_minute(|| {
        for null in nulls() {
            for lost in 1..=5_u64 {
                let null = null();
                let device = device(&null);
                let (a, b) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
                a.write(&STALE).unwrap();
                let captured = device.capture(|commands| commands.copy(&a, &b)).unwrap();
                let inputs = [1_u8, 2, 3, 4, 5].map(|byte| {
                    let input = device.buffer(64).unwrap();
                    input.write(&[byte; 64]).unwrap();
                    input
                });
                null.lose_submission(lost);
                for (number, input) in (1_u64..).zip(&inputs) {
                    let replay = captured.replay_with(&[(&a, input)]);
                    let read = b.read();
                    if number < lost {
                        replay.unwrap();
                        assert_eq!(read.unwrap(), [number as u8; 64]);
                    } else {
                        assert_eq!(read.unwrap_err().kind(), ErrorKind::DeviceLost, "{number} of {lost}");
                        assert!(number == lost || replay.unwrap_err().kind() == ErrorKind::DeviceLost);
                    }
                }
                assert!(null.fault().is_some());
                assert_eq!(captured.replay().unwrap_err().kind(), ErrorKind::DeviceLost);
            }
        }
    });
}

/// After a series of replays without a read, the final sync returns a loss anywhere in it.
#[test]
fn a_sync_after_many_replays_returns_a_loss() {
    for null in nulls() {
        for lost in 1..=6_u64 {
            let null = null();
            let device = device(&null);
            let (a, b) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
            let captured = device.capture(|commands| commands.copy(&a, &b)).unwrap();
            null.lose_submission(lost);
            let replays = (0..5).map_while(|_| captured.replay().ok()).count() as u64;
            assert!(replays >= lost.min(5));
            assert_eq!(device.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost, "{lost}");
            assert_eq!(b.read().unwrap_err().kind(), ErrorKind::DeviceLost);
        }
    }
}

/// After a failed node the device is usable and no buffer stays in use.
#[test]
fn a_failed_node_leaves_the_device_as_it_was() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (a, b) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
    let mut graph = graph_of([("a", &a), ("b", &b)]);
    graph.copy("copy", &a, &b).unwrap();
    graph.host("fails", [(&b, BufferUse::Read)], |_| Err(planted())).unwrap();
    let plan = graph.compile().unwrap();
    a.write(&[3; 64]).unwrap();
    assert_eq!(plan.run().unwrap_err().to_string(), "node `fails`: planted");
    assert_eq!(b.read().unwrap(), [3; 64], "what was submitted before has run");
    device.synchronize().unwrap();
    drop((plan, graph, a, b));
    assert_eq!(device.buffer_pool_stats().live_buffers, 0);
}
