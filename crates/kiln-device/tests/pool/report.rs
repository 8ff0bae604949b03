//! Holders of memory, by label.

use crate::fixture::{Rig, divisible};
use kiln_device::PoolConfig;
use kiln_device::pool::Holder;

fn holders(rig: &Rig) -> Vec<(String, u64, u64)> {
    rig.pool.report().holders.into_iter().map(|Holder { label, buffers, bytes }| (label, buffers, bytes)).collect()
}

/// The largest holder comes first, equal ones by name; labels without memory are omitted.
#[test]
fn holders_are_listed_by_size() {
    let rig = Rig::new();
    assert_eq!(holders(&rig), []);
    let weights = [rig.take_labelled(4000, "weights"), rig.take_labelled(4000, "weights")];
    let _b = rig.take_labelled(1000, "b");
    let _a = rig.take_labelled(1000, "a");
    let _none = rig.take(10);
    drop(rig.take_labelled(1 << 20, "gone"));
    let expected = [("weights", 2, 8192), ("a", 1, 1024), ("b", 1, 1024), ("(unlabelled)", 1, 256)];
    assert_eq!(holders(&rig), expected.map(|(label, buffers, bytes)| (label.to_owned(), buffers, bytes)));
    drop(weights);
    assert_eq!(holders(&rig)[0].0, "a");
}

/// A reused block belongs to its new holder.
#[test]
fn a_reused_block_belongs_to_its_new_holder() {
    let rig = Rig::new();
    drop(rig.take_labelled(4096, "first"));
    let block = rig.take_labelled(4096, "second");
    let clone = block.clone();
    assert_eq!(holders(&rig), [("second".to_owned(), 1, 4096)]);
    drop(block);
    assert_eq!(holders(&rig).len(), 1);
    drop(clone);
    assert_eq!(holders(&rig), []);
}

/// Memory that one thread allocates and another frees has no holder afterwards.
#[test]
fn labels_add_up_over_threads() {
    let rig = Rig::new();
    let blocks: Vec<_> = std::thread::scope(|scope| {
        let lend =
            |label: &'static str| scope.spawn(|| (0..5).map(|_| rig.take_labelled(256, label)).collect::<Vec<_>>());
        [lend("a"), lend("b"), lend("a")].into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(holders(&rig), [("a".to_owned(), 10, 2560), ("b".to_owned(), 5, 1280)]);
    drop(blocks);
    assert_eq!(holders(&rig), []);
}

/// Generated labels are bounded: beyond 4096 they are merged.
#[test]
fn labels_are_bounded() {
    let rig = Rig::new();
    for step in 0..5000 {
        drop(rig.take_labelled(256, &format!("step {step}")));
    }
    let held =
        [rig.take_labelled(256, "step 4093"), rig.take_labelled(256, "step 4094"), rig.take_labelled(256, "new")];
    assert_eq!(holders(&rig), [("(other)".to_owned(), 2, 512), ("step 4093".to_owned(), 1, 256)]);
    drop(held);
    assert_eq!(holders(&rig), []);
}

/// The report as text: holders, then free memory by kind.
#[test]
fn the_report_is_rendered() {
    let rig = Rig::with(divisible().manual_completion(), PoolConfig::default());
    let _weights = rig.take_labelled(3 << 20, "weights");
    let _masks = [rig.take_labelled(256, "masks"), rig.take_labelled(256, "masks")];
    rig.warm(40 << 10, 2);
    rig.leave_pending(64 << 10);
    let report = rig.pool.report();
    insta::assert_snapshot!(report);
    let sum = report.bytes_cached + report.bytes_unused_slots;
    let held: u64 = report.holders.iter().map(|holder| holder.bytes).sum();
    assert_eq!(sum + held, report.bytes_reserved);
    insta::assert_snapshot!(serde_json::to_string(&report).unwrap());
}

/// The report of an empty pool.
#[test]
fn the_report_of_an_empty_pool() {
    insta::assert_snapshot!(Rig::new().pool.report());
}
