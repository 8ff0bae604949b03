//! The block of a request: large enough, of its usage, aligned, from the smallest class that holds it.

use crate::fixture::{Rig, divisible, fill, holds, place};
use kiln_device::pool::{AllocationStrategy, FineClasses};
use kiln_device::{BufferOptions, NullDevice, Pool, PoolConfig, PoolOptions, Usage};
use kiln_ir::ErrorKind;
use kiln_resource_cache::MockClock;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// A block has the smallest class that holds the request, at every boundary of every class.
#[test]
fn a_block_is_the_smallest_class_that_holds_the_request() {
    let classes = FineClasses.class_bytes();
    for rig in [Rig::new(), Rig::divisible()] {
        for (at, &class) in classes.iter().enumerate() {
            let above = classes.get(at + 1).copied();
            for (bytes, expected) in [(class - 1, Some(class)), (class, Some(class)), (class + 1, above)] {
                let block = rig.take(bytes);
                assert_eq!(block.bytes(), bytes);
                match expected {
                    Some(expected) => assert_eq!(block.block_bytes(), expected, "{bytes} bytes"),
                    None => assert!(block.block_bytes() >= bytes, "{bytes} bytes are above the classes"),
                }
                drop(block);
                rig.pool.cleanup(true);
            }
        }
        assert_eq!(rig.numbers().bytes_reserved, 0);
    }
}

/// Classes reach 256 MiB; a larger request is allocated directly and released at once.
#[test]
fn requests_above_256_mib_go_direct() {
    let rig = Rig::new();
    let pooled = rig.take(256 * MIB);
    let direct = rig.take(256 * MIB + 1);
    assert_eq!((pooled.block_bytes(), direct.block_bytes()), (256 * MIB, 256 * MIB + 4096));
    let classes = rig.numbers().classes;
    let flags: Vec<_> = classes.iter().map(|class| (class.class_bytes, class.direct, class.live_blocks)).collect();
    assert_eq!(flags, [(256 * MIB, false, 1), (256 * MIB, true, 1)]);
    drop(direct);
    assert_eq!(rig.numbers().bytes_reserved, 256 * MIB, "a direct block is not cached");
    drop(pooled);
    assert_eq!(rig.numbers().bytes_cached, 256 * MIB);
    drop(rig.take(256 * MIB + 1));
    assert_eq!(rig.numbers().reuse_count, 0);
}

/// A block is never reused for another usage.
#[test]
fn a_block_never_serves_another_usage() {
    for rig in [Rig::new(), Rig::divisible()] {
        for owner in Usage::ALL {
            let free = rig.pool.allocate(BufferOptions::new(1000).usage(owner)).unwrap();
            let freed = place(&free);
            drop(free);
            for other in Usage::ALL {
                let block = rig.pool.allocate(BufferOptions::new(1000).usage(other)).unwrap();
                assert_eq!(block.usage(), other);
                assert_eq!(place(&block) == freed, other == owner, "{other} after a free {owner} block");
            }
            rig.pool.cleanup(true);
        }
    }
}

/// A free block is never used for a larger request.
#[test]
fn a_free_block_never_serves_a_larger_request() {
    let rig = Rig::new();
    rig.warm(1024, 8);
    let larger = rig.take(1025);
    assert_eq!(larger.block_bytes(), 1280);
    assert_eq!(rig.numbers().reuse_count, 0);
    assert_eq!(rig.cached(1024), 8);
}

/// A request takes the block of its class that was returned last.
#[test]
fn the_last_returned_block_is_reused_first() {
    let rig = Rig::new();
    let (first, last) = (rig.take(4096), rig.take(4096));
    let warm = place(&last);
    drop(first);
    drop(last);
    assert_eq!(place(&rig.take(4000)), warm);
}

#[test]
fn the_default_usage_is_that_of_the_memory() {
    let null = NullDevice::new().with_properties(|properties| properties.default_usage = Usage::Storage);
    let rig = Rig::with(null, PoolConfig::default());
    assert_eq!(rig.take(10).usage(), Usage::Storage);
    assert_eq!(rig.pool.allocate(BufferOptions::new(10).usage(Usage::Upload)).unwrap().usage(), Usage::Upload);
}

/// A request of zero bytes gets its own memory, so that it can be distinguished from others.
#[test]
fn a_request_of_nothing_is_served() {
    let rig = Rig::new();
    let (none, other) = (rig.take(0), rig.take(0));
    assert_eq!((none.bytes(), none.block_bytes()), (0, 256));
    assert!(!none.is_same(&other));
    assert_ne!(place(&none), place(&other));
    assert!(holds(&none, 7), "there is no byte that could be wrong");
    assert_eq!(rig.numbers().padding_bytes, 512);
}

/// Slots of a divided raw block are aligned for vector instructions and do not overlap, in every class.
#[test]
fn slots_are_aligned_and_disjoint() {
    let rig = Rig::divisible();
    let mut spans = Vec::new();
    let mut held = Vec::new();
    for class in FineClasses.class_bytes().into_iter().filter(|&class| class <= 40 << 10) {
        for block in rig.take_many(class, 5) {
            let (raw, offset) = place(&block);
            assert_eq!(offset % 64, 0, "a slot of {class} bytes at {offset}");
            spans.push((raw, offset, offset + class));
            held.push(block);
        }
    }
    spans.sort_unstable();
    for pair in spans.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?} overlap");
    }
    drop(held);
    rig.pool.cleanup(true);
    assert_eq!(rig.numbers().bytes_reserved, 0);
}

/// Slots save driver calls: 256 requests of 256 bytes use one raw block.
#[test]
fn small_requests_share_a_raw_block_where_memory_is_divisible() {
    let rig = Rig::divisible();
    let blocks = rig.take_many(256, 256);
    assert_eq!(rig.driver_allocations(), 1);
    let more = rig.take(256);
    assert_eq!(rig.driver_allocations(), 2);
    let numbers = rig.numbers();
    assert_eq!((numbers.driver_request_count, numbers.carved_count), (2, 255));
    let whole = rig.take(33 << 10);
    assert_eq!(place(&whole).1, 0, "larger blocks are whole");
    assert_eq!(rig.driver_allocations(), 3);
    drop((blocks, more, whole));

    let indivisible = Rig::new();
    let _blocks = indivisible.take_many(256, 16);
    assert_eq!(indivisible.driver_allocations(), 16);
}

/// A slab that would take too much of the budget is replaced by a single slot.
#[test]
fn a_small_budget_is_not_spent_on_unused_slots() {
    let config = PoolConfig { budget_bytes: Some(100 << 10), ..PoolConfig::default() };
    let rig = Rig::with(divisible(), config);
    let _block = rig.take(256);
    assert_eq!(rig.numbers().bytes_reserved, 256);

    let null = divisible().with_properties(|properties| properties.max_block_bytes = 32 << 10);
    let rig = Rig::with(null, PoolConfig::default());
    let _block = rig.take(300);
    assert_eq!(rig.numbers().bytes_reserved, 320, "a slab would be above the largest block");
}

/// A request that fits the budget, although its class does not, is allocated directly.
#[test]
fn a_request_whose_class_does_not_fit_is_allocated_directly() {
    let rig = Rig::with_config(PoolConfig { budget_bytes: Some(1100 << 10), ..PoolConfig::default() });
    for (bytes, block) in [(1 << 20, 1 << 20), ((1 << 20) + 1, (1 << 20) + 4096), (1100 << 10, 1100 << 10)] {
        let direct = rig.take(bytes);
        assert_eq!(direct.block_bytes(), block, "{bytes} bytes");
        assert_eq!(rig.numbers().bytes_in_use, block);
    }
    let null = NullDevice::new().with_properties(|properties| properties.max_block_bytes = 1001);
    let rig = Rig::with(null, PoolConfig::default());
    assert_eq!(rig.take(999).block_bytes(), 1000, "as little as copies allow");
    assert_eq!(rig.pool.allocate(1002).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// Memory with an invalid copy alignment is rejected when the pool is created.
#[test]
fn copy_alignments_are_checked() {
    for (alignment, fits) in [(0, false), (1, true), (3, false), (4, true), (64, true), (128, false)] {
        let null = NullDevice::new().with_properties(|properties| properties.copy_alignment = alignment);
        let pool = Pool::new(Arc::new(null), PoolOptions::new().clock(MockClock::new()));
        assert_eq!(pool.is_ok(), fits, "{alignment}");
    }
}

/// Clones are one allocation, which returns to the pool with the last of them.
#[test]
fn a_block_returns_with_its_last_clone() {
    let rig = Rig::new();
    let first = rig.take(100);
    fill(&first, 3);
    let second = first.clone();
    assert!(first.is_same(&second) && !first.is_same(&rig.take(100)));
    drop(first);
    assert_eq!(rig.numbers().live_buffers, 1);
    let other = rig.take(100);
    fill(&other, 9);
    assert!(holds(&second, 3));
    drop(second);
    assert_eq!(rig.cached(256), 1, "one is free, the other is held");
    assert_eq!(format!("{other:?}"), "Allocation { bytes: 100, block_bytes: 256, usage: Shared }");
}

#[test]
#[should_panic(expected = "access to 0..257 of a block of 256 bytes")]
fn access_beyond_the_block_panics() {
    let rig = Rig::new();
    drop(rig.take(1).access(0..257));
}

#[test]
#[should_panic(expected = "access to 4..2 of a block of 256 bytes")]
fn access_to_a_reversed_range_panics() {
    let rig = Rig::new();
    #[expect(clippy::reversed_empty_ranges, reason = "an invalid range is the point of the test")]
    drop(rig.take(1).access_mut(4..2));
}

#[test]
fn element_counts_beyond_64_bits_are_too_large() {
    let error = BufferOptions::of::<u64>(usize::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    insta::assert_snapshot!(error, @"buffer expected a size within 64 bits, found 18446744073709551615 elements of 8 bytes");
    assert_eq!(BufferOptions::of::<u64>(3).unwrap().bytes(), 24);
}
