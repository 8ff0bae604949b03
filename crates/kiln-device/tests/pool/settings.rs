//! The effect of every setting.

use crate::fixture::{Rig, divisible, with_budget};
use kiln_device::{NullDevice, Pool, PoolConfig, PoolOptions};
use kiln_ir::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

const SIZE: u64 = 4096;

/// The documented defaults.
#[test]
fn the_defaults_are_those_of_the_contract() {
    let config = PoolConfig::default();
    assert!(config.pooling && config.adaptive);
    assert_eq!((config.max_cached_per_class, config.min_kept_per_class), (32, 4));
    assert_eq!(config.maintenance_interval, Duration::from_secs(60));
    assert!((config.cleanup_pressure - 0.7).abs() < f64::EPSILON);
    assert_eq!((config.budget_bytes, config.max_adaptive_cached), (None, 16384));
    assert!((config.headroom - 0.5).abs() < f64::EPSILON);
    assert_eq!(Rig::new().pool.config(), config);
}

/// The default budget is that of the device.
#[test]
fn the_budget_comes_from_the_device_unless_set() {
    let null = NullDevice::new().with_properties(|properties| properties.default_budget_bytes = 77 << 10);
    let rig = Rig::with(null, PoolConfig::default());
    assert_eq!(rig.numbers().budget_bytes, 77 << 10);
    rig.configure(|config| config.budget_bytes = Some(1 << 20));
    assert_eq!(rig.numbers().budget_bytes, 1 << 20);
    rig.configure(|config| config.budget_bytes = None);
    assert_eq!(rig.numbers().budget_bytes, 77 << 10);
}

/// Without pooling, every request reaches the driver and every freed block is released.
#[test]
fn pooling_off_keeps_nothing() {
    for rig in [Rig::new(), Rig::divisible()] {
        rig.configure(|config| config.pooling = false);
        for _ in 0..10 {
            drop(rig.take(SIZE));
            assert_eq!(rig.null.live_bytes(), 0);
        }
        let numbers = rig.numbers();
        assert_eq!((numbers.allocation_count, numbers.reuse_count, numbers.driver_allocation_count), (10, 0, 10));
        assert_eq!(rig.pool.pre_allocate(SIZE, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

/// Turning pooling off releases cached blocks, also those that are in use or pending at that moment.
#[test]
fn turning_pooling_off_releases_cached_blocks() {
    let rig = Rig::with(NullDevice::new().manual_completion(), PoolConfig::default());
    rig.warm(SIZE, 5);
    let lent = rig.take(SIZE);
    let submission = rig.leave_pending(SIZE);
    rig.configure(|config| config.pooling = false);
    assert_eq!(rig.numbers().bytes_cached, SIZE, "only what submitted work may touch");
    drop(lent);
    assert_eq!(rig.numbers().bytes_cached, SIZE);
    rig.null.complete(submission);
    drop(rig.take(SIZE));
    let numbers = rig.numbers();
    assert_eq!((numbers.bytes_reserved, numbers.reuse_count), (0, 2), "the two that were lent before");

    rig.configure(|config| config.pooling = true);
    drop(rig.take(SIZE));
    assert_eq!(rig.cached(SIZE), 1);
}

/// A class caches `max_cached_per_class` free blocks, and releases further ones at once.
#[test]
fn max_cached_per_class_bounds_each_class() {
    for max in [0, 1, 5, 32, 100] {
        for rig in [Rig::new(), Rig::divisible()] {
            rig.configure(|config| {
                config.max_cached_per_class = max;
                config.min_kept_per_class = max.min(4);
            });
            rig.warm(SIZE, 120);
            rig.warm(2 * SIZE, 3);
            assert_eq!(rig.cached(SIZE), u64::from(max));
            assert_eq!(rig.cached(2 * SIZE), u64::from(max.min(3)), "each class for itself");
            rig.numbers();
        }
    }
}

/// A lower limit takes effect at once, for free blocks and for blocks that return later.
#[test]
fn a_lower_limit_applies_to_blocks_in_use() {
    let rig = Rig::with_config(PoolConfig { adaptive: false, ..PoolConfig::default() });
    rig.warm(SIZE, 32);
    let lent = rig.take_many(SIZE, 20);
    rig.configure(|config| config.max_cached_per_class = 6);
    assert_eq!(rig.cached(SIZE), 6);
    drop(lent);
    assert_eq!(rig.cached(SIZE), 6);
    rig.configure(|config| config.max_cached_per_class = 9);
    rig.warm(SIZE, 20);
    assert_eq!(rig.cached(SIZE), 9, "a higher limit too");
}

/// An ordinary cleanup keeps `min_kept_per_class`.
#[test]
fn min_kept_per_class_is_kept_by_a_cleanup() {
    for min in [0, 1, 4, 20] {
        let rig = Rig::new();
        rig.configure(|config| config.min_kept_per_class = min);
        rig.warm(SIZE, 25);
        rig.warm(256, 2);
        rig.pool.cleanup(false);
        assert_eq!((rig.cached(SIZE), rig.cached(256)), (u64::from(min), u64::from(min.min(2))));
    }
}

/// Nothing happens before the interval has passed; a new interval takes effect at once.
#[test]
fn maintenance_waits_for_its_interval() {
    let rig = Rig::new();
    rig.warm(SIZE, 10);
    rig.clock.advance(Duration::from_secs(60) - Duration::from_nanos(1));
    assert_eq!(rig.pool.maintain(), None);
    rig.clock.advance(Duration::from_nanos(1));
    assert!(rig.pool.maintain().is_some());
    assert_eq!(rig.pool.maintain(), None, "once per interval");

    rig.clock.advance(Duration::from_secs(5));
    assert_eq!(rig.pool.maintain(), None);
    rig.configure(|config| config.maintenance_interval = Duration::from_secs(5));
    assert_eq!(rig.pool.maintain().unwrap().blocks, 10);
}

/// A request that reaches the driver runs due maintenance, so that a pool without a thread shrinks too.
#[test]
fn a_request_that_reaches_the_driver_maintains_the_pool() {
    let rig = Rig::new();
    rig.warm(SIZE, 10);
    for _ in 0..2 {
        rig.clock.advance(Duration::from_secs(60));
        drop(rig.take(1 << 20));
        rig.pool.cleanup(true);
        rig.warm(256, 1);
    }
    assert_eq!(rig.cached(SIZE), 0);
}

/// The pressure from which the pool cleans up automatically.
#[test]
fn cleanup_pressure_is_where_cleaning_begins() {
    for (pressure, expected) in [(0.5, 4), (0.69, 4), (0.7, 10), (1.0, 10)] {
        let rig = Rig::with_config(PoolConfig { cleanup_pressure: pressure, ..with_budget(SIZE * 20) });
        rig.pool.pre_allocate(SIZE, 10).unwrap();
        let _held = rig.take(SIZE * 4);
        assert_eq!(rig.cached(SIZE), expected, "14 of 20 blocks with a pressure of {pressure}");
    }
}

/// Under pressure at most half of the memory not in use may be free, or `min_kept_per_class` blocks.
#[test]
fn a_pressured_pool_keeps_less() {
    let rig = |pressure| Rig::with_config(PoolConfig { cleanup_pressure: pressure, ..with_budget(SIZE * 20) });
    let (pressured, calm) = (rig(0.7), rig(1.0));
    for rig in [&pressured, &calm] {
        rig.warm(SIZE, 18);
    }
    assert_eq!(calm.cached(SIZE), 18);
    assert!((4..=11).contains(&pressured.cached(SIZE)), "{} of 20", pressured.cached(SIZE));

    let rig = rig(0.7);
    let _held = rig.take(SIZE * 14);
    rig.warm(SIZE, 6);
    assert_eq!(rig.cached(SIZE), 4, "the minimum, although that is more than half of six");
}

/// A lower threshold takes effect at once.
#[test]
fn a_lower_cleanup_pressure_holds_at_once() {
    let rig = Rig::with_config(with_budget(SIZE * 20));
    rig.warm(SIZE, 12);
    rig.configure(|config| config.cleanup_pressure = 0.5);
    assert_eq!(rig.cached(SIZE), 4);
}

/// Without `adaptive` a limit stays as configured, however the workload thrashes.
#[test]
fn adaptive_off_keeps_limits_fixed() {
    for adaptive in [false, true] {
        let rig = Rig::with_config(PoolConfig { adaptive, ..PoolConfig::default() });
        for _ in 0..6 {
            rig.warm(SIZE, 200);
        }
        let limit = rig.class(SIZE).cached_limit;
        assert_eq!(limit, if adaptive { 256 } else { 32 });
        assert_eq!(rig.cached(SIZE), limit.min(200));
    }
}

/// Turning `adaptive` off resets the limits.
#[test]
fn turning_adaptive_off_brings_limits_back() {
    let rig = Rig::new();
    for _ in 0..6 {
        rig.warm(SIZE, 200);
    }
    rig.configure(|config| config.adaptive = false);
    assert_eq!((rig.class(SIZE).cached_limit, rig.cached(SIZE)), (32, 32));
}

/// The highest limit that adaptation reaches.
#[test]
fn max_adaptive_cached_bounds_adapting() {
    let rig = Rig::with_config(PoolConfig { max_adaptive_cached: 50, ..PoolConfig::default() });
    for _ in 0..6 {
        rig.warm(SIZE, 200);
    }
    assert_eq!((rig.class(SIZE).cached_limit, rig.cached(SIZE)), (50, 50));

    let budgeted = Rig::with_config(with_budget(SIZE * 400));
    for _ in 0..6 {
        budgeted.warm(SIZE, 200);
    }
    assert_eq!(budgeted.class(SIZE).cached_limit, 200, "half of the budget");
}

/// A smaller budget releases free memory beyond it, and refuses requests that do not fit.
#[test]
fn a_smaller_budget_holds_at_once() {
    for rig in [Rig::new(), Rig::divisible()] {
        rig.warm(64 << 10, 30);
        let held = rig.take(64 << 10);
        rig.configure(|config| config.budget_bytes = Some(128 << 10));
        assert_eq!(rig.numbers().bytes_reserved, 64 << 10);
        let second = rig.take(64 << 10);
        assert_eq!(rig.pool.allocate(64 << 10).unwrap_err().kind(), ErrorKind::OutOfMemory);
        rig.configure(|config| {
            config.budget_bytes = Some(64 << 10);
            config.cleanup_pressure = 1.0;
        });
        assert!(rig.pool.memory_pressure() >= 1.0);
        drop(second);
        assert_eq!(rig.numbers().bytes_reserved, 64 << 10, "nothing is kept above the budget");
        drop(held);
        drop(rig.take(64 << 10));
        assert_eq!((rig.numbers().bytes_reserved, rig.cached(64 << 10)), (64 << 10, 1));
    }
}

/// Contradictory settings are rejected with what is expected and found; nothing changes then.
#[test]
fn settings_that_contradict_each_other_are_refused() {
    let base = PoolConfig::default();
    let messages: Vec<String> = [
        PoolConfig { min_kept_per_class: 33, ..base },
        PoolConfig { max_cached_per_class: 20_000, ..base },
        PoolConfig { cleanup_pressure: 1.5, ..base },
        PoolConfig { cleanup_pressure: f64::NAN, ..base },
        PoolConfig { headroom: -0.1, ..base },
        PoolConfig { headroom: f64::INFINITY, ..base },
        PoolConfig { maintenance_interval: Duration::ZERO, ..base },
        PoolConfig { budget_bytes: Some(0), ..base },
    ]
    .into_iter()
    .map(|wrong| {
        let rig = Rig::new();
        let error = rig.pool.set_config(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(rig.pool.config(), base, "nothing changed");
        let new = Pool::new(Arc::new(divisible()), PoolOptions::new().config(wrong));
        assert_eq!(new.unwrap_err().to_string(), error.to_string());
        error.to_string()
    })
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
}
