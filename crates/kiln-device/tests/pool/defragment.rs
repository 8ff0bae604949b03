//! `defragment` compacts live buffers, so that a large request succeeds that failed before.

use crate::fixture::{Block, Rig, buffer_place, divisible, fill, holds, place, with_budget};
use crate::hooked::HookedDevice;
use kiln_device::pool::Defragmented;
use kiln_device::{BufferOptions, PoolConfig};
use kiln_ir::ErrorKind;
use std::sync::Barrier;

const KIB: u64 = 1 << 10;

/// Sixteen full raw blocks of 64 slots each.
fn full_rig() -> (Rig, Vec<Block>) {
    let rig = Rig::with(divisible().manual_completion(), with_budget(1024 * KIB));
    let blocks = rig.take_many(KIB, 1024);
    assert_eq!((rig.driver_allocations(), rig.numbers().bytes_reserved), (16, 1024 * KIB));
    for (at, block) in blocks.iter().enumerate() {
        fill(block, at as u8);
    }
    (rig, blocks)
}

/// Frees every second block, in the given order, and returns the others with their patterns.
fn checkerboard(blocks: Vec<Block>, reverse: bool) -> Vec<(Block, u8)> {
    let (mut freed, mut held) = (Vec::new(), Vec::new());
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 2 == 0 { freed.push(block) } else { held.push((block, at as u8)) }
    }
    if reverse {
        freed.reverse();
    }
    drop(freed);
    held
}

/// A request that fails before succeeds after, and no byte is lost.
#[test]
fn a_large_request_succeeds_after_defragmenting() {
    for reverse in [false, true] {
        let (rig, blocks) = full_rig();
        let held = checkerboard(blocks, reverse);
        assert_eq!(rig.numbers().bytes_in_use, 512 * KIB, "half of the budget is unused");
        assert_eq!(rig.pool.allocate(512 * KIB).unwrap_err().kind(), ErrorKind::OutOfMemory);

        let done = rig.pool.defragment().unwrap();
        let expected = Defragmented { moved_blocks: 256, moved_bytes: 256 * KIB, released_bytes: 512 * KIB };
        assert_eq!(done, expected, "freed in reverse: {reverse}");
        let numbers = rig.numbers();
        assert_eq!((numbers.bytes_reserved, numbers.bytes_unused_slots), (512 * KIB, 0));

        let large = rig.take(512 * KIB);
        fill(&large, 0xAA);
        assert!(held.iter().all(|(block, seed)| holds(block, *seed)), "contents moved with the buffers");
        assert_eq!(rig.pool.defragment().unwrap(), Defragmented::default(), "there is nothing more to do");
    }
}

/// Cached blocks are released first, and count as released.
#[test]
fn free_blocks_are_released_before_live_ones_move() {
    for rig in [Rig::new(), Rig::divisible()] {
        rig.warm(100 * KIB, 3);
        let _held = rig.take(100 * KIB);
        let done = rig.pool.defragment().unwrap();
        assert_eq!(done, Defragmented { released_bytes: 2 * 112 * KIB, ..Defragmented::default() });
    }
}

/// Undivided raw blocks are not moved.
#[test]
fn whole_blocks_do_not_move() {
    let rig = Rig::new();
    let blocks = rig.take_many(KIB, 100);
    let held = checkerboard(blocks, false);
    let places: Vec<_> = held.iter().map(|(block, _)| place(block)).collect();
    rig.pool.defragment().unwrap();
    assert!(held.iter().zip(places).all(|((block, _), before)| place(block) == before));
    assert_eq!(rig.numbers().bytes_reserved, 50 * KIB);
}

/// Only a raw block that can be emptied completely is worth the copies.
#[test]
fn nothing_moves_where_no_raw_block_would_become_free() {
    let (rig, mut blocks) = full_rig();
    // Two of 64 slots are free in each of two raw blocks.
    for at in [200, 100, 90, 10] {
        drop(blocks.swap_remove(at));
    }
    rig.pool.cleanup(true);
    let done = rig.pool.defragment().unwrap();
    assert_eq!(done, Defragmented::default());
}

/// A raw block whose live slots do not all fit elsewhere is left alone.
#[test]
fn nothing_moves_where_there_is_not_room_for_all() {
    let rig = Rig::divisible();
    let mut blocks = rig.take_many(KIB, 128);
    // Ten live slots in the second raw block, five free ones in the first.
    blocks.truncate(74);
    blocks.drain(..5);
    rig.pool.cleanup(true);
    assert_eq!(rig.numbers().bytes_unused_slots, (54 + 5) * KIB);
    assert_eq!(rig.pool.defragment().unwrap(), Defragmented::default());
    blocks.drain(..5);
    rig.pool.cleanup(true);
    let done = rig.pool.defragment().unwrap();
    assert_eq!((done.moved_blocks, done.released_bytes), (10, 64 * KIB), "now there is room for ten");
}

/// A buffer that was moved can be moved again.
#[test]
fn a_moved_buffer_moves_again() {
    let rig = Rig::divisible();
    let mut first = rig.take_many(KIB, 64);
    let mut second = rig.take_many(KIB, 64);
    first.truncate(3);
    second.truncate(50);
    first.iter().for_each(|block| fill(block, 9));
    rig.pool.cleanup(true);
    assert_eq!(rig.pool.defragment().unwrap().moved_blocks, 3);
    let mut third = rig.take_many(KIB, 64);
    third.truncate(40);
    second.clear();
    rig.pool.cleanup(true);
    let before = rig.numbers().bytes_reserved;
    let done = rig.pool.defragment().unwrap();
    assert!(done.released_bytes >= 64 * KIB && done.moved_blocks >= 3, "{done:?} of {before} bytes");
    assert_eq!(rig.numbers().bytes_reserved, 64 * KIB);
    assert!(first.iter().all(|block| holds(block, 9)));
}

/// A buffer is not moved between the time when a device reads its location and the time when the pool learns the number
/// of the submission.
#[test]
fn a_buffer_does_not_move_while_it_is_submitted() {
    let null = divisible().manual_completion();
    let (hooked, device) = HookedDevice::new(&null);
    let source = device.buffer_from(&[7_u8; 1024]).unwrap();
    let mut buffers: Vec<_> = (0..127).map(|_| device.buffer(KIB).unwrap()).collect();
    // Three live slots in the second raw block, the others in the first.
    buffers.truncate(66);
    device.pool().cleanup(true);
    drop(buffers.drain(..20));
    device.pool().cleanup(true);
    let target = buffers.pop().unwrap();
    let pool = device.pool().clone();
    hooked.in_next_submission(move || assert_eq!(pool.defragment().unwrap().moved_blocks, 2));
    source.as_bytes().copy_to(&target).unwrap();
    null.complete(u64::MAX);
    assert_eq!(target.read().unwrap(), [7; 1024], "the copy went where the buffer is");
    assert_eq!(device.pool().defragment().unwrap().moved_blocks, 1, "now it moves");
    assert_eq!(target.read().unwrap(), [7; 1024]);
}

/// The emptiest raw blocks are emptied into the fullest, for few copies, separately for each class.
#[test]
fn the_emptiest_raw_block_moves() {
    let rig = Rig::divisible();
    let mut small = rig.take_many(KIB, 128);
    let other = rig.take_many(2 * KIB, 3);
    for (at, block) in small.iter().enumerate() {
        fill(block, at as u8);
    }
    // Three live slots in the first raw block, 50 in the second.
    let mut second = small.split_off(64);
    small.truncate(3);
    second.truncate(50);
    rig.pool.cleanup(true);
    let done = rig.pool.defragment().unwrap();
    assert_eq!((done.moved_blocks, done.released_bytes), (3, 64 * KIB));
    assert!(small.iter().enumerate().all(|(at, block)| holds(block, at as u8)));
    assert!(second.iter().enumerate().all(|(at, block)| holds(block, at as u8 + 64)));
    assert_eq!(rig.numbers().bytes_in_use, 53 * KIB + 6 * KIB);
    drop(other);
}

/// A moved buffer is still one allocation: clones see its bytes, and it returns to the pool once.
#[test]
fn a_moved_buffer_keeps_its_identity() {
    let (rig, blocks) = full_rig();
    let held = checkerboard(blocks, false);
    let clones: Vec<_> = held.iter().map(|(block, _)| block.clone()).collect();
    let before: Vec<_> = held.iter().map(|(block, _)| place(block)).collect();
    rig.pool.defragment().unwrap();
    let moved = held.iter().zip(&before).filter(|((block, _), before)| place(block) != **before).count();
    assert_eq!(moved, 256);
    for ((block, seed), clone) in held.iter().zip(&clones) {
        assert!(block.is_same(clone) && holds(clone, *seed));
        fill(clone, seed.wrapping_add(1));
        assert!(holds(block, seed.wrapping_add(1)));
    }
    drop(held);
    assert_eq!(rig.numbers().live_buffers, 512);
    drop(clones);
    rig.pool.cleanup(true);
    assert_eq!(rig.numbers().bytes_reserved, 0);
}

/// Buffers that submitted work may use are not moved.
#[test]
fn buffers_that_submitted_work_touches_stay() {
    let rig = Rig::with(divisible().manual_completion(), PoolConfig::default());
    let mut buffers: Vec<_> = (0..128).map(|_| rig.buffer(KIB)).collect();
    // Five live slots in the first raw block, 40 in the second.
    let mut second = buffers.split_off(64);
    buffers.truncate(5);
    second.truncate(40);
    buffers[0].write(&[7; 1024]).unwrap();
    let submission = rig.touch_all(&buffers);
    let before: Vec<_> = buffers.iter().map(buffer_place).collect();
    assert_eq!(rig.pool.defragment().unwrap().moved_blocks, 0);
    assert!(buffers.iter().zip(&before).all(|(buffer, before)| buffer_place(buffer) == *before));
    rig.null.complete(submission);
    let done = rig.pool.defragment().unwrap();
    assert_eq!((done.moved_blocks, done.released_bytes), (5, 64 * KIB));
    assert_eq!(buffers[0].read().unwrap()[..8], [0, 0, 0, 0, 7, 7, 7, 7], "the work ran where the buffer was");
}

/// A buffer that is being read is skipped without waiting; the others are moved.
#[test]
fn buffers_in_use_by_another_thread_are_skipped() {
    let device = divisible().into_device().unwrap();
    let mut buffers: Vec<_> = (0..128).map(|_| device.buffer(KIB).unwrap()).collect();
    for (at, buffer) in buffers.iter().enumerate() {
        buffer.write(&[at as u8; 1024]).unwrap();
    }
    // Five live slots in the first raw block, 40 in the second.
    let mut second = buffers.split_off(64);
    buffers.truncate(5);
    second.truncate(40);
    device.pool().cleanup(true);
    let (reading, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = &buffers[0];
            first
                .map_read(|bytes| {
                    reading.wait();
                    done.wait();
                    assert_eq!(bytes, [0; 1024]);
                })
                .unwrap();
        });
        reading.wait();
        let moved = device.pool().defragment().unwrap();
        assert_eq!((moved.moved_blocks, moved.released_bytes), (4, 0), "one slot holds its raw block");
        done.wait();
    });
    let moved = device.pool().defragment().unwrap();
    assert_eq!((moved.moved_blocks, moved.released_bytes), (1, 64 * KIB));
    for (at, buffer) in buffers.iter().enumerate() {
        assert_eq!(buffer.read().unwrap(), [at as u8; 1024]);
    }
}

/// A fault during a copy is returned; the buffer stays where it was and no slot is lost.
#[test]
fn a_fault_while_moving_is_reported() {
    for failing_map in [1, 2, 101, 102] {
        let (rig, blocks) = full_rig();
        let held = checkerboard(blocks, false);
        rig.pool.cleanup(true);
        rig.null.fail_map(failing_map);
        assert_eq!(rig.pool.defragment().unwrap_err().kind(), ErrorKind::Internal);
        rig.numbers();
        assert!(held.iter().all(|(block, seed)| holds(block, *seed)));
        rig.pool.defragment().unwrap();
        assert_eq!(rig.numbers().bytes_reserved, 512 * KIB);
        drop(held);
        rig.pool.cleanup(true);
        assert_eq!(rig.numbers().bytes_reserved, 0);
    }
}

/// Freed slots are reused, and a moved buffer can be moved again.
#[test]
fn moving_again_and_again_loses_nothing() {
    let rig =
        Rig::with(divisible(), PoolConfig { max_cached_per_class: 0, min_kept_per_class: 0, ..Default::default() });
    let mut held: Vec<(Block, u8)> = Vec::new();
    for round in 0..30_u8 {
        for step in 0..100_u8 {
            let block = rig.pool.allocate(BufferOptions::new(600)).unwrap();
            fill(&block, round ^ step);
            held.push((block, round ^ step));
        }
        let mut at = 0;
        held.retain(|_| {
            at += 1;
            at % 3 != usize::from(round % 3)
        });
        rig.pool.defragment().unwrap();
        let numbers = rig.numbers();
        let sparse = numbers.bytes_unused_slots;
        assert!(sparse <= 2 * 64 * KIB, "{sparse} bytes in unused slots after defragmenting");
        assert!(held.iter().all(|(block, seed)| holds(block, *seed)), "round {round}");
    }
}
