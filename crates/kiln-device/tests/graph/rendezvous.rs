//! A device that runs commands in `submit`, where it makes two callers wait for each other.

use kiln_device::memory::{MemoryProperties, RawBlock, Region, RegionMut};
use kiln_device::{Command, DeviceApi, DeviceInfo, DeviceKind, NullDevice, RawMemory, Usage};
use kiln_ir::{Error, Result};
use std::sync::Barrier;
use std::task::Waker;

/// A null device of the kind of the CPU device. Every submission of commands waits for a concurrent one.
pub(crate) struct RendezvousDevice {
    null: NullDevice,
    info: DeviceInfo,
    barrier: Barrier,
}

impl RendezvousDevice {
    pub(crate) fn new() -> Self {
        let null = NullDevice::new();
        let info = DeviceInfo { kind: DeviceKind::Cpu, ..null.info().clone() };
        Self { null, info, barrier: Barrier::new(2) }
    }
}

impl DeviceApi for RendezvousDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, commands: &[Command]) -> Result<u64> {
        if !commands.is_empty() {
            self.barrier.wait();
        }
        self.null.submit(commands)
    }

    fn notify(&self, submission: u64, waker: Waker) {
        self.null.notify(submission, waker);
    }

    fn fault(&self) -> Option<Error> {
        self.null.fault()
    }
}

impl RawMemory for RendezvousDevice {
    fn properties(&self) -> MemoryProperties {
        self.null.properties()
    }

    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock> {
        self.null.allocate(bytes, usage)
    }

    fn completed(&self) -> u64 {
        self.null.completed()
    }

    fn wait(&self, submission: u64) -> Result<()> {
        self.null.wait(submission)
    }

    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.null.map(region, read)
    }

    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.null.map_mut(region, write)
    }
}
