//! A block is not reused while submitted work may use it.

use crate::support::{self, pattern};
use kiln_device::{Buffer, CommandList, Device};
use kiln_gpu::{GpuDevice, GpuOptions, HostAccess};
use std::collections::HashMap;

const BYTES: u64 = 20_000;
const ROUNDS: u64 = 400;

/// The last submission that uses each block.
#[derive(Default)]
struct Uses {
    last: HashMap<wgpu::Buffer, u64>,
    /// Buffers in a block that was used before.
    reused: u64,
    /// Buffers allocated while a submission was in flight.
    during_work: u64,
}

impl Uses {
    /// Records that `submission` uses the buffers.
    fn add(&mut self, submission: u64, buffers: &[&Buffer]) {
        for buffer in buffers {
            self.last.insert(GpuDevice::wgpu_buffer(buffer).unwrap().0, submission);
        }
    }

    /// Allocates a buffer. Fails if its block is still in use.
    fn lend(&mut self, device: &Device, submitted: u64) -> Buffer {
        let buffer = device.buffer(BYTES).unwrap();
        let last = self.last.get(&GpuDevice::wgpu_buffer(&buffer).unwrap().0).copied();
        let completed = device.api().completed();
        assert!(last.is_none_or(|last| last <= completed), "lent while {last:?} is in flight, {completed} is done");
        self.reused += u64::from(last.is_some());
        self.during_work += u64::from(completed < submitted);
        buffer
    }
}

/// Copies from buffers that are dropped right after the submission, while new buffers are allocated and written at
/// once.
///
/// A block that is reused too early shows in the recorded uses, or in the copy if the driver does not wait for it.
fn flood(device: &Device) {
    let heavy = [device.buffer(4 << 20).unwrap(), device.buffer(4 << 20).unwrap()];
    let (mut uses, mut results, mut submission) = (Uses::default(), Vec::new(), 0);
    for round in 0..ROUNDS {
        let from = uses.lend(device, submission);
        from.write(&pattern(round, BYTES as usize)).unwrap();
        let to = uses.lend(device, submission);
        let mut commands = CommandList::new();
        // Before the copy, so that it is in flight when the next round begins.
        commands.copy(&heavy[0], &heavy[1]).unwrap();
        commands.copy(&from, &to).unwrap();
        submission = device.submit(commands).unwrap();
        uses.add(submission, &[&from, &to]);
        drop(from);
        results.push((round, to));
        if round % 50 == 49 {
            // Half of the results return to the pool as well; the rest is checked at the end.
            for (round, to) in results.extract_if(.., |(round, _)| *round % 2 == 0) {
                assert_eq!(to.read().unwrap(), pattern(round, BYTES as usize), "result {round}");
            }
        }
    }
    for (round, to) in results {
        assert_eq!(to.read().unwrap(), pattern(round, BYTES as usize), "result {round}");
    }
    assert!(uses.reused > 0, "blocks come back once their work is done");
    assert!(uses.during_work > 0, "buffers are lent while others work");
}

#[test]
fn a_flood_of_copies_from_dropped_buffers_is_right_in_place() {
    let Some(device) = support::open(GpuOptions::new().host_access(HostAccess::InPlace)) else { return };
    flood(&device);
}

#[test]
fn a_flood_of_copies_from_dropped_buffers_is_right_through_staging() {
    let Some(device) = support::open(GpuOptions::new().host_access(HostAccess::Staged)) else { return };
    flood(&device);
}
