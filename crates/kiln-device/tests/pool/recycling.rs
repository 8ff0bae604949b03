//! Recycling by submission: no block is reused while submitted work may use it.

use crate::fixture::{Rig, buffer_place, divisible, place};
use crate::hooked::HookedDevice;
use kiln_device::{Buffer, BufferOptions, CommandList, Device, NullDevice, PoolConfig, RawMemory, Record, Usage};

const SIZE: u64 = 4096;

fn manual(null: NullDevice) -> Rig {
    Rig::with(null.manual_completion(), PoolConfig::default())
}

fn buffer(rig: &Rig, usage: Usage) -> Buffer {
    rig.device.buffer_with(BufferOptions::new(SIZE).usage(usage)).unwrap()
}

/// A block that is dropped right after a submission is reused only after that submission is done.
#[test]
fn a_block_waits_for_its_submission() {
    for null in [NullDevice::new(), divisible()] {
        let rig = manual(null);
        let block = rig.buffer(SIZE);
        let first = buffer_place(&block);
        let submission = rig.touch(&block);
        drop(block);
        let numbers = rig.numbers();
        assert_eq!((numbers.bytes_cached, numbers.bytes_pending, rig.cached(SIZE)), (SIZE, SIZE, 0));

        let other = rig.take(SIZE);
        assert_ne!(place(&other), first);
        assert_eq!(other.last_use(), 0, "a new holder begins without submissions");
        rig.null.complete(submission);
        assert_eq!((rig.numbers().bytes_pending, rig.cached(SIZE)), (0, 1));
        let again = rig.take(SIZE);
        assert_eq!((place(&again), again.last_use()), (first, 0));
    }
}

/// The newest submission counts.
#[test]
fn the_newest_submission_counts() {
    let rig = manual(NullDevice::new());
    let block = rig.buffer(SIZE);
    let clone = block.clone();
    let early = rig.touch(&block);
    drop(block);
    let late = rig.touch(&clone.slice(4..12).unwrap());
    drop(clone);
    rig.null.complete(early);
    drop(rig.take(SIZE));
    assert_eq!((rig.numbers().reuse_count, rig.numbers().bytes_pending), (0, SIZE));
    rig.null.complete(late);
    assert_eq!(rig.numbers().bytes_pending, 0);
}

/// The newest submission counts, even if an older one is recorded later, because two threads submit at once.
#[test]
fn an_older_submission_recorded_later_does_not_count() {
    let null = NullDevice::new().manual_completion();
    let (hooked, device) = HookedDevice::new(&null);
    let block = device.buffer(SIZE).unwrap();
    let zero = |device: &Device, block: &Buffer| {
        let mut commands = CommandList::new();
        commands.zero(block).unwrap();
        device.submit(commands).unwrap()
    };
    let inner = (device.clone(), block.clone());
    hooked.in_next_submission(move || assert_eq!(zero(&inner.0, &inner.1), 2));
    assert_eq!(zero(&device, &block), 1);
    drop(block);
    null.complete(1);
    assert_eq!(device.buffer_pool_stats().bytes_pending, SIZE);
    null.complete(2);
    assert_eq!(device.buffer_pool_stats().bytes_pending, 0);
}

/// Slots beyond the limit of their class are not reused early either.
#[test]
fn slots_beyond_the_limit_wait_too() {
    let rig = manual(divisible());
    let buffers: Vec<_> = (0..40).map(|_| rig.buffer(256)).collect();
    let places: Vec<_> = buffers.iter().map(buffer_place).collect();
    let submission = rig.touch_all(&buffers);
    drop(buffers);
    let again = rig.take_many(256, 40);
    let early = again.iter().any(|block| places.contains(&place(block)));
    assert!(!early || rig.null.completed() >= submission, "a slot was lent while submitted work may touch it");
    assert_eq!(rig.numbers().bytes_pending, 40 * 256, "pending blocks are no part of the limit");
}

/// Turning pooling off does not make slots reusable early.
#[test]
fn slots_wait_when_pooling_is_turned_off_and_on() {
    let rig = manual(divisible());
    let (block, _neighbour) = (rig.buffer(256), rig.buffer(256));
    let submission = rig.touch(&block);
    let first = buffer_place(&block);
    rig.configure(|config| config.pooling = false);
    drop(block);
    rig.configure(|config| config.pooling = true);
    let again = rig.take(256);
    assert!(place(&again) != first || rig.null.completed() >= submission);
}

/// Nor does closing the pool: buffers still in use allocate their own staging.
#[test]
fn slots_wait_when_the_pool_ends() {
    let rig = manual(divisible());
    let uploads: Vec<_> = (0..3).map(|_| buffer(&rig, Usage::Upload)).collect();
    let (target, other) = (buffer(&rig, Usage::Storage), buffer(&rig, Usage::Storage));
    target.write(&[1; SIZE as usize]).unwrap();
    let null = rig.null.clone();
    drop(rig);
    // The staging buffer of the first write is a slot next to the uploads that are held.
    other.write(&[2; SIZE as usize]).unwrap();
    assert_eq!(target.read().unwrap(), [1; SIZE as usize]);
    assert_eq!(other.read().unwrap(), [2; SIZE as usize]);
    drop((uploads, target, other));
    assert_eq!(null.live_bytes(), 0);
}

/// Limits hold again once the work is done.
#[test]
fn finished_blocks_obey_the_limit() {
    for null in [NullDevice::new(), divisible()] {
        let rig = manual(null);
        let buffers: Vec<_> = (0..100).map(|_| rig.buffer(SIZE)).collect();
        let submission = rig.touch_all(&buffers);
        drop(buffers);
        assert_eq!(rig.numbers().bytes_pending, 100 * SIZE);
        rig.null.complete(submission);
        assert_eq!((rig.numbers().bytes_pending, rig.cached(SIZE)), (0, 32));
    }
}

/// Many copies from buffers that are dropped right after their submission; every result is checked. The null device
/// runs copies late, so that a source that was reused too early would be visible.
#[test]
fn a_flood_of_dropped_buffers_changes_no_result() {
    for usage in [Usage::Shared, Usage::Storage] {
        for null in [NullDevice::new(), divisible()] {
            let rig = manual(null);
            let mut results = Vec::new();
            for step in 0..200_u32 {
                let from = buffer(&rig, usage);
                from.write(&[step as u8; SIZE as usize]).unwrap();
                let to = buffer(&rig, usage);
                let mut commands = CommandList::new();
                commands.copy(&from, &to).unwrap();
                rig.device.submit(commands).unwrap();
                results.push((to, step as u8));
                if step % 50 == 30 {
                    rig.null.complete(u64::from(step));
                }
            }
            for (to, expected) in results {
                assert_eq!(to.read().unwrap(), [expected; SIZE as usize], "{usage}");
            }
            assert_eq!(rig.numbers().live_buffers, 0);
            rig.pool.clear().unwrap();
            assert_eq!(rig.null.live_bytes(), 0);
        }
    }
}

/// Staging buffers are recycled by submission as well.
#[test]
fn staging_is_not_overwritten_before_it_was_copied() {
    let rig = manual(NullDevice::new());
    let targets: Vec<_> = (0..40_u8)
        .map(|step| {
            let target = buffer(&rig, Usage::Storage);
            target.write(&[step; SIZE as usize]).unwrap();
            target
        })
        .collect();
    let ran = rig.null.records().iter().any(|record| matches!(record, Record::Complete { .. }));
    assert!(!ran, "nothing ran yet");
    assert_eq!(rig.numbers().bytes_pending, 40 * SIZE, "all staging waits for its copies");
    for (step, target) in targets.iter().enumerate() {
        assert_eq!(target.read().unwrap(), [step as u8; SIZE as usize]);
    }
}

/// Blocks whose work is done are reused, also those that another thread freed.
#[test]
fn finished_blocks_of_another_thread_serve_again() {
    let rig = manual(NullDevice::new());
    let submission = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let buffers: Vec<_> = (0..8).map(|_| rig.buffer(SIZE)).collect();
            rig.touch_all(&buffers)
        });
        thread.join().unwrap()
    });
    let _own = rig.take(SIZE);
    assert_eq!(rig.numbers().reuse_count, 0);
    rig.null.complete(submission);
    let _others = rig.take_many(SIZE, 8);
    assert_eq!(rig.numbers().reuse_count, 8);
}

/// Closing a pool does not free memory that running work uses.
#[test]
fn a_pool_that_ends_leaves_running_work_alone() {
    for null in [NullDevice::new(), divisible()] {
        let rig = manual(null);
        let (from, to) = (buffer(&rig, Usage::Shared), buffer(&rig, Usage::Shared));
        from.write(&[9; SIZE as usize]).unwrap();
        from.copy_to(&to).unwrap();
        drop(from);
        let null = rig.null.clone();
        drop(rig);
        assert_eq!(to.read().unwrap(), [9; SIZE as usize]);
        drop(to);
        assert_eq!(null.live_bytes(), 0);
    }
}
