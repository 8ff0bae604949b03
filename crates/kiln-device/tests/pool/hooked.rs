//! A null device that runs a hook during a submission: after the device received the commands, before the caller knows
//! the number.

use kiln_device::memory::{MemoryProperties, RawBlock, RawMemory, Region, RegionMut, Usage};
use kiln_device::{Command, Device, DeviceApi, DeviceInfo, NullDevice, PoolOptions};
use kiln_ir::{Error, Result};
use kiln_resource_cache::MockClock;
use std::sync::{Arc, Mutex};
use std::task::Waker;

type Hook = Box<dyn FnOnce() + Send>;

/// The device. The hook runs once, in the next submission.
pub(crate) struct HookedDevice {
    null: NullDevice,
    hook: Mutex<Option<Hook>>,
}

impl HookedDevice {
    pub(crate) fn new(null: &NullDevice) -> (Arc<Self>, Device) {
        let api = Arc::new(Self { null: null.clone(), hook: Mutex::new(None) });
        let device = Device::new(Arc::clone(&api) as Arc<dyn DeviceApi>, PoolOptions::new().clock(MockClock::new()));
        (api, device.unwrap())
    }

    pub(crate) fn in_next_submission(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl RawMemory for HookedDevice {
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

impl DeviceApi for HookedDevice {
    fn info(&self) -> &DeviceInfo {
        self.null.info()
    }

    fn submit(&self, commands: &[Command]) -> Result<u64> {
        let submission = self.null.submit(commands)?;
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(submission)
    }

    fn notify(&self, submission: u64, waker: Waker) {
        self.null.notify(submission, waker);
    }

    fn fault(&self) -> Option<Error> {
        self.null.fault()
    }
}
