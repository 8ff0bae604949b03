//! Asynchronous reads and wakers.

use crate::support::{self, Count, block_on, pattern};
use kiln_device::CommandList;
use kiln_gpu::{GpuDevice, GpuOptions};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

#[test]
fn asynchronous_reads_see_earlier_submissions() {
    for device in support::both() {
        let bytes = pattern(1, 70_001);
        let (from, to) = (device.buffer_from(&bytes).unwrap(), device.buffer_of::<u8>(70_001).unwrap());
        from.copy_to(&to).unwrap();
        let reads: Vec<_> = (0..8).map(|skip| to.slice(skip..).unwrap().read_async().unwrap()).collect();
        to.slice(..0).unwrap().zero().unwrap();
        for (skip, read) in reads.into_iter().enumerate().rev() {
            assert_eq!(block_on(read).unwrap(), bytes[skip..], "{skip}");
        }
    }
}

/// Every waker is woken once: at the end of its submission, or at once if that is done.
#[test]
fn every_waker_is_woken() {
    let Some(device) = support::open(GpuOptions::new()) else { return };
    let (from, to) = (device.buffer(8 << 20).unwrap(), device.buffer(8 << 20).unwrap());
    let count = Arc::<Count>::default();
    for round in 0..3 {
        let mut last = 0;
        for _ in 0..10 {
            let mut commands = CommandList::new();
            commands.copy(&from, &to).unwrap();
            last = device.submit(commands).unwrap();
            device.api().notify(last, Waker::from(Arc::clone(&count)));
        }
        count.wait_for(round * 11 + 10, "wakers of work in flight");
        device.api().wait(last).unwrap();
        device.api().notify(last, Waker::from(Arc::clone(&count)));
        assert_eq!(count.get(), round * 11 + 11, "finished work wakes at once");
    }
    // A number that was never submitted wakes too, because nothing can wait for it.
    device.api().notify(1_000_000, Waker::from(Arc::clone(&count)));
    count.wait_for(34, "waker of a number that was never given out");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("planted");
    }
}

/// A waker that panics does not affect the others.
#[test]
fn a_panicking_waker_does_not_affect_others() {
    let Some(device) = support::open(GpuOptions::new()) else { return };
    let (from, to) = (device.buffer(64 << 20).unwrap(), device.buffer(64 << 20).unwrap());
    let count = Arc::<Count>::default();
    for expected in 1..=2 {
        let mut commands = CommandList::new();
        commands.copy(&from, &to).unwrap();
        let submission = device.submit(commands).unwrap();
        device.api().notify(submission, Waker::from(Arc::new(Panics)));
        device.api().notify(submission, Waker::from(Arc::clone(&count)));
        count.wait_for(expected, "waker queued with one that panics");
    }
}

/// Dropping the device joins the poller thread soon, with or without work in flight, and wakes all wakers.
#[test]
fn dropping_a_device_ends_its_thread_soon() {
    for idle in [true, false] {
        let Some(device) = support::open(GpuOptions::new()) else { return };
        let count = Arc::<Count>::default();
        for number in 0..10 {
            // Through wgpu directly, because buffers of the device would keep it alive. Repeated, so that the last
            // wakers are not due yet when the thread has to end.
            if number % 5 == 0 {
                occupy(GpuDevice::of(&device).unwrap());
            }
            let submission = device.submit(CommandList::new()).unwrap();
            device.api().notify(submission, Waker::from(Arc::clone(&count)));
        }
        if idle {
            count.wait_for(10, "wakers before the drop");
        }
        let begin = Instant::now();
        drop(device);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!(count.get(), 10, "idle: {idle}");
    }
}

/// Keeps the device busy for a while.
fn occupy(gpu: &GpuDevice) {
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 32 << 20, usage, mapped_at_creation: false };
    let [from, to] = [(); 2].map(|()| gpu.wgpu_device().create_buffer(&descriptor));
    let mut encoder = gpu.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    for _ in 0..10 {
        encoder.copy_buffer_to_buffer(&from, 0, &to, 0, descriptor.size);
    }
    gpu.wgpu_queue().submit([encoder.finish()]);
}
