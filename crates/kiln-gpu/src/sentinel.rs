//! Verifies that a submission ran.
//!
//! Some drivers report a submission that ran out of memory as done, and leave zeros in its buffers. Every submission
//! therefore ends with a copy of a token. It counts as done when the token has arrived; a missing token is a device
//! fault.

use crate::scope::buffer;
use crate::timeline::{Completion, Timeline};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const TOKEN_BYTES: u64 = size_of::<u64>() as u64;
/// The maximum number of unused sentinels that are kept.
const MAX_SPARE: usize = 16;

/// The unused sentinels of a device.
#[derive(Debug, Default)]
pub(crate) struct Sentinels {
    spare: Mutex<Vec<Sentinel>>,
    next_token: AtomicU64,
}

/// A pair of buffers: the token is written to `source` and must arrive in `target`.
#[derive(Debug)]
pub(crate) struct Sentinel {
    token: u64,
    source: wgpu::Buffer,
    target: wgpu::Buffer,
}

impl Sentinels {
    /// Returns a sentinel with a token that no earlier submission had.
    pub(crate) fn take(&self, device: &wgpu::Device) -> Sentinel {
        let spare = self.spare.lock().pop();
        let mut sentinel = spare.unwrap_or_else(|| Sentinel {
            token: 0,
            source: buffer(device, TOKEN_BYTES, wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST),
            target: buffer(device, TOKEN_BYTES, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
        });
        // Starts at 1: a buffer that the driver left cleared contains 0, which must not pass as a token.
        sentinel.token = self.next_token.fetch_add(1, Ordering::Relaxed) + 1;
        sentinel
    }
}

impl Sentinel {
    /// Encodes the copy of the token at the end of a submission.
    pub(crate) fn encode(&self, queue: &wgpu::Queue, encoder: &mut wgpu::CommandEncoder) {
        // wgpu performs the write with the next submission of any thread, so at the latest with this one.
        queue.write_buffer(&self.source, 0, &self.token.to_le_bytes());
        encoder.copy_buffer_to_buffer(&self.source, 0, &self.target, 0, TOKEN_BYTES);
    }

    /// Verifies the token once the submission is over, then marks the submission as completed.
    pub(crate) fn verify(self, timeline: &Timeline, completion: Completion) {
        let sentinels = Arc::clone(&timeline.sentinels);
        let target = self.target.clone();
        target.map_async(wgpu::MapMode::Read, .., move |mapped| {
            let (fault, number) = (&completion.fault, completion.number);
            match mapped.map(|()| self.read_token()) {
                Ok(token) if token == self.token => {
                    let mut spare = sentinels.spare.lock();
                    if spare.len() < MAX_SPARE {
                        spare.push(self);
                    }
                }
                Ok(_) => drop(fault.set_lost(&format!("submission {number} ended without having run"))),
                // The device is lost; a reason that was recorded before this one is kept.
                Err(error) => drop(fault.set_lost(&format!("submission {number} left no proof that it ran ({error})"))),
            }
            // Also after a fault, so that waiters do not hang: the fault is set first, and they check it after the
            // count.
            completion.done();
        });
    }

    /// Returns the token in `target`, which is mapped, and unmaps it.
    fn read_token(&self) -> u64 {
        let mut bytes = [0; TOKEN_BYTES as usize];
        // If the range is unavailable, the token stays 0, which no submission has.
        if let Ok(mapped) = self.target.get_mapped_range(..) {
            bytes.copy_from_slice(&mapped);
        }
        self.target.unmap();
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use crate::timeline::Submission;
    use crate::{GpuDevice, GpuOptions};
    use kiln_ir::ErrorKind;

    /// A submission whose token is not copied stands for one that silently did nothing.
    #[test]
    fn a_missing_token_is_a_device_loss() {
        if let Err(error) = crate::probe() {
            assert!(std::env::var_os("CI").is_none(), "no adapter although `CI` is set: {error}");
            println!("skipped: {error}");
            return;
        }
        let device = crate::open(0, GpuOptions::new()).unwrap();
        let buffer = device.buffer_from(&[1u32; 4]).unwrap();
        buffer.zero().unwrap();
        assert_eq!(buffer.read().unwrap(), [0; 4], "the tokens of these submissions arrive");
        let timeline = GpuDevice::of(&device).unwrap().timeline();
        let sentinel = timeline.sentinels.take(&timeline.device);
        let commands = timeline.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()).finish();
        let submitted = timeline.enqueue(Some(Submission { commands, sentinel, profiled: None }));
        let error = submitted.and_then(|number| timeline.wait(number)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        assert!(error.to_string().ends_with("ended without having run"), "{error}");
        for later in [buffer.read().unwrap_err(), buffer.write(&[1; 4]).unwrap_err(), device.synchronize().unwrap_err()]
        {
            assert_eq!(later.to_string(), error.to_string());
        }
    }
}
