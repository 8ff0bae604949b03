//! Workloads with changing sizes: reserved bytes stay bounded, and alternating workloads stop reaching the driver.

use crate::fixture::{Rig, divisible};
use kiln_device::{NullDevice, PoolConfig};

const MIB: u64 = 1 << 20;

/// Every request is a little larger than the last; reserved bytes follow the bytes in use, not the history.
#[test]
fn drifting_sizes_reach_a_plateau() {
    for null in [NullDevice::new(), divisible()] {
        let rig = Rig::with(null, PoolConfig::default());
        let mut live = std::collections::VecDeque::new();
        let mut worst_ratio: f64 = 0.0;
        for step in 0..400_u64 {
            live.push_back(rig.take(100_000 + step * 5_000));
            if live.len() > 16 {
                live.pop_front();
            }
            let numbers = rig.numbers();
            let allowed = numbers.peak_bytes as f64 * 1.5 + 8.0 * MIB as f64 + 2.5 * MIB as f64;
            worst_ratio = worst_ratio.max(numbers.bytes_reserved as f64 / allowed);
        }
        assert!(worst_ratio <= 1.0, "reserved bytes reach {worst_ratio:.2} of what headroom allows");
        assert!(worst_ratio > 0.5, "the pool does keep free blocks: {worst_ratio:.2}");
    }
}

/// The headroom limits the drift; without it the pool keeps blocks of every class it ever used.
#[test]
fn the_plateau_comes_from_the_headroom() {
    let reserved = |headroom| {
        let rig = Rig::with_config(PoolConfig { headroom, ..PoolConfig::default() });
        (0..400).for_each(|step| drop(rig.take(100_000 + step * 50_000)));
        rig.numbers().bytes_reserved / MIB
    };
    let (bounded, unbounded) = (reserved(0.5), reserved(1e6));
    assert!(bounded < 60 && unbounded > 100, "{bounded} and {unbounded} MiB");
}

/// The class that served no request for the longest time is displaced first, and no more than needed.
#[test]
fn the_longest_unused_class_is_displaced_first() {
    let rig = Rig::with_config(PoolConfig { headroom: 0.0, ..PoolConfig::default() });
    for mib in [4, 5, 6, 4] {
        rig.warm(mib * MIB, 1);
    }
    // 15 MiB are free. The peak of 6 MiB plus 8 MiB are allowed, so one block must be released.
    rig.warm(7 * MIB, 1);
    let cached = [4, 5, 6, 7].map(|mib| rig.cached(mib * MIB));
    assert_eq!(cached, [1, 0, 1, 1], "the block of 4 MiB is older, but was used again");
}

/// Serves one request of each class in turn, and checks after each which free blocks the headroom allows.
fn check_displacement(rig: &Rig, headroom: f64) {
    let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20].map(|mib| mib * MIB);
    let (mut kept, mut peak) = (Vec::new(), 0);
    for (at, size) in sizes.into_iter().enumerate() {
        rig.warm(size, 1);
        let allowed = (peak as f64 * (1.0 + headroom)) as u64 + 8 * MIB;
        while kept.iter().sum::<u64>() > allowed {
            kept.remove(0);
        }
        kept.push(size);
        peak = peak.max(size);
        for size in &sizes[..=at] {
            let expected = u64::from(kept.contains(size));
            assert_eq!(rig.cached(*size), expected, "{} MiB with a headroom of {headroom}", size / MIB);
        }
    }
    rig.numbers();
}

/// The headroom is the free memory that a new allocation does not displace, as a share of the peak in use.
#[test]
fn headroom_is_the_free_memory_that_new_memory_leaves_alone() {
    for headroom in [0.0, 0.5, 1.0, 3.0] {
        check_displacement(&Rig::with_config(PoolConfig { headroom, ..PoolConfig::default() }), headroom);
    }
}

/// A peak counts in its own interval and in the next, so that a quiet moment does not release needed memory.
#[test]
fn a_peak_is_remembered_for_two_intervals() {
    let rig = Rig::with_config(PoolConfig { headroom: 0.0, ..PoolConfig::default() });
    drop(rig.take(40 * MIB));
    for (interval, expected) in [(1, 1), (2, 0)] {
        rig.pass_interval();
        rig.pool.cleanup(true);
        for mib in [5, 6, 7] {
            rig.warm(mib * MIB, 1);
        }
        rig.warm(8 * MIB, 1);
        assert_eq!(rig.cached(5 * MIB), expected, "interval {interval} after the peak");
    }
}

/// Two alternating workloads need the blocks of both. The pool first displaces them, then raises the headroom.
#[test]
fn alternating_workloads_settle_without_driver_calls() {
    let rig = Rig::new();
    let round = |rig: &Rig| {
        rig.warm(MIB, 24);
        rig.warm(5 * MIB, 6);
        rig.warm(11 * MIB, 3);
    };
    let calls: Vec<usize> = (0..12)
        .map(|_| {
            let before = rig.driver_allocations();
            round(&rig);
            rig.driver_allocations() - before
        })
        .collect();
    assert!(calls[1] > 0, "the second round finds some of its blocks displaced: {calls:?}");
    assert_eq!(calls[6..], [0; 6], "{calls:?}");
    rig.numbers();
}

/// The raised headroom decreases after alternating workloads end.
#[test]
fn headroom_returns_when_displacing_ends() {
    let rig = Rig::new();
    for _ in 0..12 {
        rig.warm(MIB, 24);
        rig.warm(5 * MIB, 6);
        rig.warm(11 * MIB, 3);
    }
    for _ in 0..6 {
        rig.pass_interval();
    }
    assert_eq!(rig.numbers().bytes_reserved, 0);
    check_displacement(&rig, 0.5);
}
