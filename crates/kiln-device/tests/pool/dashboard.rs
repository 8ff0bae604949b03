//! The dashboard of pools in each state, as golden files. All numbers are real except times, which are replaced by
//! fixed values.

use crate::fixture::{Rig, divisible, with_budget};
use crate::unprotected::{RawAccess, UnprotectedMemory};
use kiln_device::memory::RawMemory;
use kiln_device::pool::{AllocationStrategy, FineClasses, Health, PoolReport, PowersOfTwo, dashboard};
use kiln_device::{NullDevice, Pool, PoolConfig, PoolOptions, PoolStatistics};
use kiln_resource_cache::MockClock;
use std::sync::Arc;

const KIB: u64 = 1 << 10;

fn timed<M: RawMemory + ?Sized>(pool: &Pool<M>) -> (PoolStatistics, PoolReport) {
    let mut statistics = pool.statistics();
    statistics.mean_hit_nanos = 42.4;
    statistics.mean_miss_nanos = 1234.5;
    (statistics, pool.report())
}

fn text<M: RawMemory + ?Sized>(pool: &Pool<M>) -> String {
    let (statistics, report) = timed(pool);
    format!("{}\n{}", statistics.summary_line(), dashboard(&statistics, &report))
}

#[test]
fn an_empty_pool() {
    let rig = Rig::new();
    assert_eq!(rig.pool.statistics().health(), Health::Healthy);
    insta::assert_snapshot!(text(&rig.pool));
}

#[test]
fn a_healthy_pool() {
    let rig = Rig::with(NullDevice::new().manual_completion(), PoolConfig::default());
    let _weights = [rig.take_labelled(100 * KIB, "weights"), rig.take_labelled(60 * KIB, "weights")];
    let _masks = rig.take_labelled(5 * KIB, "masks");
    for _ in 0..9 {
        rig.warm(4 * KIB, 10);
    }
    rig.leave_pending(64 * KIB);
    assert_eq!(rig.numbers().health(), Health::Healthy);
    insta::assert_snapshot!(text(&rig.pool));
}

#[test]
fn a_pressured_pool() {
    let rig = Rig::with_config(with_budget(1024 * KIB));
    let _weights = rig.take_labelled(896 * KIB, "weights");
    let _late = rig.take_labelled(64 * KIB, "activations");
    rig.pool.allocate(512 * KIB).unwrap_err();
    assert_eq!(rig.numbers().health(), Health::Pressured);
    insta::assert_snapshot!(text(&rig.pool));
}

/// The same pressure with free blocks in the pool has another recommendation.
#[test]
fn a_pressured_pool_with_free_blocks() {
    let rig = Rig::with_config(PoolConfig { cleanup_pressure: 1.0, ..with_budget(1024 * KIB) });
    let _weights = rig.take_labelled(640 * KIB, "weights");
    rig.warm(64 * KIB, 5);
    let numbers = rig.numbers();
    assert_eq!(numbers.health(), Health::Pressured);
    assert_eq!(numbers.recommendations(), ["`cleanup(true)` releases 320 KiB"]);
    rig.pool.cleanup(true);
    assert_eq!(rig.numbers().recommendations(), Vec::<String>::new());
}

#[test]
fn a_fragmented_pool() {
    let rig = Rig::with(divisible(), PoolConfig { max_cached_per_class: 4, ..PoolConfig::default() });
    let mut blocks: Vec<_> = (0..1024).map(|_| Some(rig.take_labelled(KIB, "embeddings"))).collect();
    for (at, block) in blocks.iter_mut().enumerate() {
        if at % 8 != 3 {
            drop(block.take());
        }
    }
    assert_eq!(rig.numbers().health(), Health::Fragmented);
    insta::assert_snapshot!(text(&rig.pool));
    rig.pool.defragment().unwrap();
    assert_eq!(rig.numbers().health(), Health::Healthy, "what the dashboard recommends helps");
}

#[test]
fn a_thrashing_pool() {
    let config =
        PoolConfig { max_cached_per_class: 2, min_kept_per_class: 2, adaptive: false, ..PoolConfig::default() };
    let rig = Rig::with_config(config);
    for _ in 0..4 {
        rig.warm(16 * KIB, 50);
    }
    assert_eq!(rig.numbers().health(), Health::Thrashing);
    insta::assert_snapshot!(text(&rig.pool));
    rig.configure(|config| {
        config.adaptive = true;
        config.max_cached_per_class = 64;
    });
    rig.warm(16 * KIB, 50);
    rig.pass_interval();
    rig.warm(16 * KIB, 50);
    rig.warm(16 * KIB, 50);
    assert_eq!(rig.numbers().health(), Health::Healthy, "what the dashboard recommends helps");
}

#[test]
fn a_violated_pool() {
    let options = PoolOptions::new().clock(MockClock::new()).debug_checks(true);
    let pool = Pool::new(Arc::new(UnprotectedMemory::default()), options).unwrap();
    let block = pool.allocate(100).unwrap();
    RawAccess::to(&block).write(100..101, 1);
    drop(block);
    assert_eq!(pool.statistics().health(), Health::Violated);
    insta::assert_snapshot!(text(&pool));
}

/// Long lists are truncated: the twelve busiest classes, the eight largest holders.
#[test]
fn a_pool_of_many_classes_and_holders() {
    let rig = Rig::new();
    let mut held = Vec::new();
    for (step, class) in FineClasses.class_bytes().into_iter().take(20).enumerate() {
        for _ in 0..=step {
            drop(rig.take(class - 10));
        }
        held.push(rig.take_labelled(class - 10, &format!("holder {step}")));
    }
    held.push(rig.take_labelled((256 << 20) + 1, "huge"));
    insta::assert_snapshot!(text(&rig.pool));
}

/// Padding is reported if it is a large part of much memory.
#[test]
fn padding_is_recommended_against() {
    let rig = Rig::from_options(NullDevice::new(), PoolOptions::new().strategy(PowersOfTwo));
    let _block = rig.take((1 << 20) + 1);
    let advice = rig.numbers().recommendations();
    assert_eq!(advice, ["1024 KiB of padding: a strategy with classes for these sizes would save it"]);
    let small = Rig::from_options(NullDevice::new(), PoolOptions::new().strategy(PowersOfTwo));
    let _block = small.take(129 * KIB);
    assert_eq!(small.numbers().recommendations(), Vec::<String>::new(), "little memory");
}

/// The summary line and the dashboard of the pool use its current numbers.
#[test]
fn the_pool_shows_its_own_numbers() {
    let rig = Rig::new();
    let _held = rig.take_labelled(4096, "x");
    assert_eq!(rig.pool.summary_line(), rig.pool.statistics().summary_line());
    assert_eq!(rig.pool.dashboard(), dashboard(&rig.pool.statistics(), &rig.pool.report()));
    assert_eq!(format!("{:?}", rig.pool), format!("Pool({})", rig.pool.summary_line()));
    insta::assert_snapshot!(rig.pool.summary_line());
}

/// Thrashing requires enough requests, requests that reach the driver, and releases; each alone does not count.
#[test]
fn thrashing_is_distinguished_from_start_and_end() {
    let health = |requests, driver, releases| {
        let mut numbers = Rig::new().numbers();
        numbers.recent.allocation_count = requests;
        numbers.recent.driver_request_count = driver;
        numbers.recent.driver_release_count = releases;
        numbers.health()
    };
    assert_eq!(health(64, 17, 17), Health::Thrashing);
    for (requests, driver, releases) in [(63, 60, 60), (64, 16, 60), (64, 60, 16), (1000, 200, 1000)] {
        assert_eq!(health(requests, driver, releases), Health::Healthy, "{requests} {driver} {releases}");
    }
}
