//! Asynchronous reads: pending until the device is done, then woken. Blocking reads share their implementation.

use crate::fixture::{WAYS, buffer, counting, device, pages};
use kiln_device::{NullDevice, Usage};
use kiln_ir::ErrorKind;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future with its own waker: a minimal executor.
struct Task<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

impl<F: Future> Task<F> {
    fn new(future: F) -> Self {
        Self { future: Box::pin(future), wakes: Arc::default() }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }
}

/// Pending until the submission completes, then woken and ready, in place and through staging.
#[test]
fn a_read_is_pending_until_its_submission_ends() {
    for usage in WAYS {
        let null = NullDevice::new().manual_completion();
        let device = device(&null);
        let (from, to) = (buffer(&device, 100, usage), buffer(&device, 100, usage));
        from.write(&counting(100)).unwrap();
        from.copy_to(&to).unwrap();
        let mut task = Task::new(to.read_async().unwrap());
        assert!(task.poll().is_pending());
        assert!(task.poll().is_pending());
        assert_eq!(task.wakes(), 0);
        null.complete(u64::MAX);
        assert!(task.wakes() > 0, "the waiting task is woken");
        let Poll::Ready(bytes) = task.poll() else { panic!("the read is ready after it was woken") };
        assert_eq!(bytes.unwrap(), counting(100));
    }
}

/// Only the end of its own submission wakes a read.
#[test]
fn an_earlier_completion_wakes_no_read() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (from, to) = (buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[0]));
    from.zero().unwrap();
    from.copy_to(&to).unwrap();
    let mut task = Task::new(to.read_async().unwrap());
    assert!(task.poll().is_pending());
    null.complete(1);
    assert_eq!(task.wakes(), 0);
    assert!(task.poll().is_pending());
    null.complete(2);
    assert!(task.wakes() > 0 && task.poll().is_ready());
}

/// Without submissions a read is ready at once.
#[test]
fn a_read_without_submissions_is_ready_at_once() {
    let device = device(&NullDevice::new().manual_completion());
    let shared = buffer(&device, 100, Usage::Shared);
    shared.write(&counting(100)).unwrap();
    let mut task = Task::new(shared.read_async().unwrap());
    let Poll::Ready(bytes) = task.poll() else { panic!("nothing to wait for") };
    assert_eq!(bytes.unwrap(), counting(100));
}

/// An empty read is ready at once, on any memory.
#[test]
fn a_read_of_nothing_is_ready_at_once() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    for usage in Usage::ALL {
        let none = buffer(&device, 8, usage).slice(4..4).unwrap();
        let mut task = Task::new(none.read_async().unwrap());
        assert!(matches!(task.poll(), Poll::Ready(Ok(bytes)) if bytes.is_empty()), "{usage}");
        assert!(none.read_async().unwrap().wait().unwrap().is_empty());
    }
}

/// Elements are read as elements.
#[test]
fn elements_are_read_asynchronously() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let options = kiln_device::BufferOptions::of::<u16>(3).unwrap().usage(Usage::Storage);
    let buffer = device.buffer_with(options).unwrap().typed::<u16>().unwrap();
    buffer.write(&[1, 2, 3]).unwrap();
    let mut task = Task::new(buffer.slice(1..).unwrap().read_async().unwrap());
    assert!(task.poll().is_pending());
    null.complete(u64::MAX);
    assert!(matches!(task.poll(), Poll::Ready(Ok(values)) if values == [2, 3]));
}

/// A staged read sees what was submitted before it, not after.
#[test]
fn a_staged_read_sees_earlier_submissions() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let storage = buffer(&device, 64, Usage::Storage);
    storage.write(&[1; 64]).unwrap();
    let early = storage.read_async().unwrap();
    storage.write(&[2; 64]).unwrap();
    let late = storage.read_async().unwrap();
    assert_eq!((late.wait().unwrap(), early.wait().unwrap()), (vec![2; 64], vec![1; 64]));
}

/// A read that is dropped early leaks no staging buffer.
#[test]
fn a_read_that_is_dropped_early_leaks_nothing() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let storage = buffer(&device, 64, Usage::Storage);
    storage.write(&[5; 64]).unwrap();
    let mut task = Task::new(storage.read_async().unwrap());
    assert!(task.poll().is_pending());
    let wakes = Arc::clone(&task.wakes);
    drop(task);
    drop(storage.read_async().unwrap());
    assert_eq!(device.buffer_pool_stats().bytes_pending, 4 * 256 - 256, "one upload and two downloads");
    null.complete(u64::MAX);
    assert!(wakes.0.load(Ordering::SeqCst) > 0, "a waker may be called after its task went");
    assert_eq!(storage.read().unwrap(), [5; 64]);
    drop(storage);
    device.pool().clear().unwrap();
    assert_eq!(null.live_bytes(), 0);
}

/// A lost device wakes pending reads with its fault.
#[test]
fn a_lost_device_wakes_pending_reads_with_its_fault() {
    for usage in WAYS {
        let null = NullDevice::new().manual_completion();
        let device = device(&null);
        let (from, to) = (buffer(&device, 64, usage), buffer(&device, 64, usage));
        null.lose_submission(1);
        from.copy_to(&to).unwrap();
        let mut task = Task::new(to.read_async().unwrap());
        assert!(task.poll().is_pending());
        null.complete(u64::MAX);
        assert!(task.wakes() > 0);
        let Poll::Ready(Err(error)) = task.poll() else { panic!("the fault reaches the read") };
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
    }
}

/// A long read arrives in several pieces.
#[test]
fn a_long_read_arrives_in_pieces() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let bytes = (70 << 20) + 5;
    let storage = buffer(&device, bytes, Usage::Storage);
    let data = pages(bytes);
    storage.write(&data).unwrap();
    let mut task = Task::new(storage.slice(3..).unwrap().read_async().unwrap());
    for piece in 0..3 {
        let wakes = task.wakes();
        assert!(task.poll().is_pending(), "piece {piece}");
        null.complete(u64::MAX);
        assert!(task.wakes() > wakes);
    }
    let Poll::Ready(read) = task.poll() else { panic!("three pieces are all") };
    assert!(read.unwrap() == data[3..]);
    drop(task);
    assert_eq!(device.buffer_pool_stats().live_buffers, 1);
}

/// Several reads of one buffer at once, each woken.
#[test]
fn many_reads_at_once() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let storage = buffer(&device, 256, Usage::Storage);
    storage.write(&counting(256)).unwrap();
    let mut tasks: Vec<_> = (0..10_u64)
        .map(|step| (step, Task::new(storage.slice(step..step + 100).unwrap().read_async().unwrap())))
        .collect();
    assert!(tasks.iter_mut().all(|(_, task)| task.poll().is_pending()));
    null.complete(u64::MAX);
    for (step, task) in &mut tasks {
        let Poll::Ready(bytes) = task.poll() else { panic!("ready") };
        assert_eq!(bytes.unwrap(), counting(256)[*step as usize..*step as usize + 100]);
    }
}
