//! Limits that adapt to the workload, and user-defined strategies.

use crate::fixture::{Rig, place};
use kiln_device::pool::{AllocationStrategy, ClassDemand, PowersOfTwo};
use kiln_device::{NullDevice, Pool, PoolConfig, PoolOptions};
use kiln_ir::ErrorKind;
use kiln_resource_cache::MockClock;
use std::sync::{Arc, Mutex};

const SIZE: u64 = 4096;

/// A workload that frees 200 blocks at once and allocates them again stops reaching the driver.
#[test]
fn a_burst_that_repeats_stops_reaching_the_driver() {
    for rig in [Rig::new(), Rig::divisible()] {
        for _ in 0..5 {
            rig.warm(SIZE, 200);
        }
        let before = rig.driver_allocations();
        for _ in 0..10 {
            rig.warm(SIZE, 200);
        }
        assert_eq!(rig.driver_allocations(), before);
        assert_eq!((rig.cached(SIZE), rig.class(SIZE).cached_limit), (200, 256));
        rig.numbers();
    }
}

/// After the burst, the limit returns to the configured one, and the blocks are released.
#[test]
fn the_limit_returns_when_the_burst_is_over() {
    let rig = Rig::new();
    for _ in 0..5 {
        rig.warm(SIZE, 200);
    }
    let mut limits = Vec::new();
    for _ in 0..6 {
        rig.warm(SIZE, 10);
        rig.pass_interval();
        limits.push(rig.class(SIZE).cached_limit);
    }
    assert!(limits.is_sorted_by(|a, b| a >= b), "{limits:?}");
    assert_eq!((limits[5], rig.cached(SIZE)), (32, 10), "{limits:?}");
    rig.warm(SIZE, 60);
    assert_eq!(rig.cached(SIZE), 32);
}

/// Releasing alone or allocating alone does not raise a limit: only both together are thrashing.
#[test]
fn a_limit_grows_only_while_a_class_thrashes() {
    let rig = Rig::new();
    rig.warm(SIZE, 200);
    assert_eq!(rig.class(SIZE).cached_limit, 32, "200 requested, 168 released, none requested again");
    rig.pass_interval();
    assert_eq!(rig.class(SIZE).cached_limit, 64, "in one interval it did both, so the next burst may find more");
    let calm = Rig::new();
    let _held = calm.take_many(SIZE, 200);
    calm.pass_interval();
    assert_eq!(calm.class(SIZE).cached_limit, 32);
}

/// Other classes keep their limits.
#[test]
fn each_class_adapts_for_itself() {
    let rig = Rig::new();
    rig.warm(256, 40);
    for _ in 0..5 {
        rig.warm(SIZE, 200);
    }
    assert_eq!((rig.class(256).cached_limit, rig.class(SIZE).cached_limit), (32, 256));
}

/// A strategy receives the actual demand.
#[test]
fn a_strategy_learns_the_demand() {
    #[derive(Clone, Debug, Default)]
    struct Listening(Arc<Mutex<Vec<ClassDemand>>>);
    impl AllocationStrategy for Listening {
        fn name(&self) -> &str {
            "listening"
        }
        fn class_bytes(&self) -> Vec<u64> {
            vec![1024, SIZE]
        }
        fn cached_limit(&self, demand: &ClassDemand) -> u32 {
            self.0.lock().unwrap().push(*demand);
            demand.current_limit + 1
        }
    }
    let listening = Listening::default();
    let config = PoolConfig {
        max_cached_per_class: 5,
        max_adaptive_cached: 6,
        budget_bytes: Some(1 << 20),
        ..PoolConfig::default()
    };
    let rig = Rig::from_options(NullDevice::new(), PoolOptions::new().config(config).strategy(listening.clone()));
    let demands = || std::mem::take(&mut *listening.0.lock().unwrap());
    rig.warm(SIZE, 5);
    rig.pass_interval();
    let of_class = |demands: Vec<ClassDemand>| {
        // Shared memory comes first, with its classes in ascending order.
        assert_eq!(demands.len(), 8, "two classes of four usages");
        demands[1]
    };
    let demand = of_class(demands());
    let expected = ClassDemand {
        class_bytes: SIZE,
        configured_limit: 5,
        highest_limit: 6,
        current_limit: 5,
        overflowed: 0,
        missed: 5,
        idle_blocks: 0,
    };
    assert_eq!(demand, expected);

    rig.warm(SIZE, 2);
    rig.pass_interval();
    let demand = of_class(demands());
    assert_eq!(demand, ClassDemand { current_limit: 6, missed: 0, idle_blocks: 4, ..expected });
    // Three of five were free, and the sixth never existed.

    let held = rig.take_many(SIZE, 9);
    drop(held);
    rig.pass_interval();
    let demand = of_class(demands());
    // Four were still free, and the limit stayed six whatever the strategy returned.
    assert_eq!(demand, ClassDemand { current_limit: 6, missed: 5, overflowed: 3, idle_blocks: 0, ..expected });
}

/// Without `adaptive` the strategy is not called.
#[test]
fn a_strategy_is_not_asked_where_limits_are_fixed() {
    let config = PoolConfig { adaptive: false, ..PoolConfig::default() };
    let rig = Rig::from_options(NullDevice::new(), PoolOptions::new().config(config).strategy(Greedy));
    rig.warm(SIZE, 100);
    rig.pass_interval();
    assert_eq!((rig.cached(SIZE), rig.class(SIZE).cached_limit), (32, 32));
}

/// Returns a limit that is too high, and allows blocks of up to four times the size.
#[derive(Debug)]
struct Greedy;

impl AllocationStrategy for Greedy {
    fn name(&self) -> &str {
        "greedy"
    }
    fn class_bytes(&self) -> Vec<u64> {
        vec![64, 1024, SIZE, 1 << 20]
    }
    fn cached_limit(&self, _: &ClassDemand) -> u32 {
        u32::MAX
    }
    fn largest_fit_bytes(&self, class_bytes: u64) -> u64 {
        class_bytes * 4
    }
}

/// User-defined classes are used, and a strategy cannot exceed the limits of the settings.
#[test]
fn a_strategy_brings_its_own_classes_within_the_settings() {
    let rig = Rig::from_options(NullDevice::new(), PoolOptions::new().strategy(Greedy));
    for (bytes, class) in [(1, 64), (65, 1024), (1025, SIZE), (SIZE + 1, 1 << 20)] {
        assert_eq!(rig.take(bytes).block_bytes(), class);
    }
    let direct = rig.take((1 << 20) + 1);
    assert!(rig.numbers().classes.iter().any(|class| class.direct), "above the last class it goes direct");
    assert_eq!(rig.numbers().strategy, "greedy");
    drop(direct);
    rig.pass_interval();
    let highest = u64::from(rig.pool.config().max_adaptive_cached);
    assert_eq!(rig.class(SIZE).cached_limit, highest);
    assert_eq!(rig.class(1 << 20).cached_limit, 512, "half of the budget");
}

/// A larger free block may serve a request if the strategy allows it, and counts as a reuse.
#[test]
fn a_larger_free_block_serves_where_the_strategy_allows_it() {
    let rig = Rig::from_options(NullDevice::new(), PoolOptions::new().strategy(Greedy));
    let block = rig.take(SIZE);
    let free = place(&block);
    drop(block);
    let small = rig.take(100);
    assert_eq!((place(&small), small.bytes(), small.block_bytes()), (free, 100, SIZE));
    let numbers = rig.numbers();
    assert_eq!((numbers.reuse_count, numbers.padding_bytes), (1, SIZE - 100));
    drop(small);
    assert_eq!(rig.cached(SIZE), 1, "it returns to its own class");
    let tiny = rig.take(10);
    assert_eq!(tiny.block_bytes(), 64, "64 bytes times four are less than 4096");
    let larger = rig.take(SIZE);
    rig.warm(1024, 1);
    drop(larger);
    assert_eq!(rig.take(1000).block_bytes(), 1024, "the own class comes first");
}

/// `PowersOfTwo` can be selected.
#[test]
fn powers_of_two_can_be_chosen() {
    let rig = Rig::from_options(NullDevice::new(), PoolOptions::new().strategy(PowersOfTwo));
    for (bytes, class) in [(0, 256), (257, 512), (5000, 8192), ((128 << 20) + 1, 256 << 20)] {
        assert_eq!(rig.take(bytes).block_bytes(), class);
    }
    assert_eq!(rig.numbers().strategy, "powers-of-two");
}

/// Invalid classes are rejected when the pool is created.
#[test]
fn a_strategy_with_unusable_classes_is_refused() {
    #[derive(Debug)]
    struct Wrong(Vec<u64>);
    impl AllocationStrategy for Wrong {
        fn name(&self) -> &str {
            "wrong"
        }
        fn class_bytes(&self) -> Vec<u64> {
            self.0.clone()
        }
        fn cached_limit(&self, demand: &ClassDemand) -> u32 {
            demand.configured_limit
        }
    }
    let make = |classes| {
        let options = PoolOptions::new().strategy(Wrong(classes)).clock(MockClock::new());
        Pool::new(Arc::new(NullDevice::new()), options)
    };
    for classes in [vec![], vec![0, 64], vec![64, 100], vec![128, 64], (1..=1025).map(|n| n * 64).collect()] {
        assert_eq!(make(classes).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    insta::assert_snapshot!(make(vec![64, 100]).unwrap_err(), @"strategy `wrong` expected 1 to 1024 ascending classes, multiples of 64 bytes, found [64, 100]");
    assert!(make((1..=1024).map(|n| n * 64).collect()).is_ok());
}
