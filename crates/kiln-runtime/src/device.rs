//! A device as users hold it, and the trait behind it.

use crate::buffer::{Buffer, TypedBuffer};
use crate::command::{Command, CommandList};
use crate::info::DeviceInfo;
use crate::memory::RawMemory;
use crate::pool::{BufferOptions, Pool, PoolOptions, PoolStatistics};
use bytemuck::Pod;
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

/// What a device must be able to do. It speaks of memory and command lists, never of ops.
///
/// Submissions are numbered from 1 and end in that order.
pub trait DeviceApi: RawMemory {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Runs the commands, or hands them to the driver, and returns the number of the submission. The regions of the
    /// buffers stay untouched by the pool until that submission is [completed](RawMemory::completed).
    ///
    /// # Errors
    /// The device's fault; then none of the commands takes effect.
    fn submit(&self, commands: &[Command]) -> Result<u64>;

    /// Wakes `waker` once `submission` is done or will never be, at once where that is already so.
    fn notify(&self, submission: u64, waker: Waker);

    /// The fault that ended the device, where one did. It stays.
    fn fault(&self) -> Option<Error>;
}

/// A device with its memory pool. Clones are the same device; when the last one goes, cached memory goes back, and
/// buffers that are still held keep working.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    api: Arc<dyn DeviceApi>,
    pool: Pool,
}

impl Device {
    /// Puts a pool on a device. Users get devices from the `kiln` crate; this is for crates that bring a device.
    ///
    /// # Errors
    /// `InvalidArgument` where the pool's settings contradict each other.
    pub fn new(api: Arc<dyn DeviceApi>, pool: PoolOptions) -> Result<Self> {
        let pool = Pool::new(Arc::clone(&api), pool)?;
        Ok(Self(Arc::new(Inner { api, pool })))
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        self.0.api.info()
    }

    /// The pool that all buffers of this device come from.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// The pool's numbers now.
    pub fn buffer_pool_stats(&self) -> PoolStatistics {
        self.0.pool.statistics()
    }

    /// The device as its crate knows it.
    pub fn api(&self) -> &Arc<dyn DeviceApi> {
        &self.0.api
    }

    /// A buffer of `bytes` bytes with unspecified contents, of the usage that is fastest on this device.
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` as the [pool](Pool::allocate) tells them.
    #[inline]
    pub fn buffer(&self, bytes: u64) -> Result<Buffer> {
        self.buffer_with(BufferOptions::new(bytes))
    }

    /// A buffer with a label or a usage of its own.
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` as the [pool](Pool::allocate) tells them.
    #[inline]
    pub fn buffer_with(&self, options: BufferOptions<'_>) -> Result<Buffer> {
        if let Some(fault) = self.0.api.fault() {
            return Err(fault);
        }
        Ok(Buffer::new(self.0.pool.allocate(options)?))
    }

    /// A buffer of `len` elements with unspecified contents.
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` as the [pool](Pool::allocate) tells them.
    pub fn buffer_of<T: Pod>(&self, len: usize) -> Result<TypedBuffer<T>> {
        self.buffer_with(BufferOptions::of::<T>(len)?)?.typed()
    }

    /// A buffer that holds a copy of `data`.
    ///
    /// # Errors
    /// As [`buffer_of`](Self::buffer_of) and [`TypedBuffer::write`].
    pub fn buffer_from<T: Pod>(&self, data: &[T]) -> Result<TypedBuffer<T>> {
        let buffer = self.buffer_of(data.len())?;
        buffer.write(data)?;
        Ok(buffer)
    }

    /// Runs the commands, and returns the number of the submission. It does not wait for them.
    ///
    /// # Errors
    /// `InvalidArgument` where a buffer is of another device; the device's fault.
    pub fn submit(&self, commands: CommandList) -> Result<u64> {
        if let Some(fault) = self.0.api.fault() {
            return Err(fault);
        }
        for buffer in commands.buffers() {
            if !std::ptr::addr_eq(Arc::as_ptr(&self.0.api), std::ptr::from_ref(buffer.api())) {
                let (own, other) = (&self.info().id, &buffer.device_info().id);
                let message =
                    format!("submission to device `{own}` expected its own buffers, found one of another `{other}`");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        submit_to(&*self.0.api, commands)
    }

    /// Blocks until everything submitted so far is done.
    ///
    /// # Errors
    /// The device's fault, where something submitted did not run.
    pub fn synchronize(&self) -> Result<()> {
        let last = submit_to(&*self.0.api, CommandList::new())?;
        self.0.api.wait(last)?;
        self.0.api.fault().map_or(Ok(()), Err)
    }
}

/// Submits and marks every buffer with the submission, so that the pool neither moves nor reuses it before that is done.
/// The list, and with it the buffers, lives until they are marked.
pub(crate) fn submit_to(api: &dyn DeviceApi, commands: CommandList) -> Result<u64> {
    commands.buffers().for_each(|buffer| buffer.allocation().pin());
    let submitted = api.submit(commands.commands());
    for buffer in commands.buffers() {
        if let Ok(submission) = submitted {
            buffer.allocation().mark_used(submission);
        }
        buffer.allocation().unpin();
    }
    drop(commands);
    submitted
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("id", &self.info().id).field("name", &self.info().name).finish()
    }
}
