//! Work that a device runs itself: known to the device by its type, to everyone else by the buffers that it touches.

use crate::buffer::Buffer;
use crate::command::{BoundBuffer, BufferUse};
use crate::memory::{Region, RegionMut};
use crate::pool::{Access, AccessMut};
use crate::rebinding::Rebinding;
use kiln_ir::{Error, ErrorKind, Result};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// One run of native work, with the buffers and numbers that it takes. Recorded by
/// [`CommandList::native`](crate::CommandList::native), which checks it.
#[derive(Clone)]
pub struct NativeCall {
    work: Arc<dyn Any + Send + Sync>,
    name: Arc<str>,
    buffers: Vec<BoundBuffer>,
    words: Vec<u32>,
    /// The buffers in the order in which they are locked; those of one allocation are neighbours.
    lock_order: SmallVec<[u32; 8]>,
}

impl NativeCall {
    pub(crate) fn new(
        work: Arc<dyn Any + Send + Sync>,
        name: Arc<str>,
        buffers: impl IntoIterator<Item = (Buffer, BufferUse)>,
        words: Vec<u32>,
    ) -> Result<Self> {
        let bound = |(slot, (buffer, access))| BoundBuffer { slot, buffer, access };
        let buffers: Vec<BoundBuffer> = (0..).zip(buffers).map(bound).collect();
        let lock_order = check(&buffers).map_err(|error| error.context(format!("native work `{name}`")))?;
        Ok(Self { work, name, buffers, words, lock_order })
    }

    /// What the device looks for by its type.
    pub fn work(&self) -> &(dyn Any + Send + Sync) {
        &*self.work
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The buffers, in order.
    pub fn buffers(&self) -> &[BoundBuffer] {
        &self.buffers
    }

    /// The numbers that the run brings.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Locks all buffers: shared where the work reads, exclusive where it writes; each allocation once, and in an order
    /// that all threads agree on.
    pub fn access(&self) -> NativeAccess<'_> {
        let mut locks: SmallVec<[Lock<'_>; 8]> = SmallVec::new();
        let mut of_buffer: SmallVec<[u32; 8]> = SmallVec::from_elem(0, self.buffers.len());
        let mut last: Option<&Buffer> = None;
        for &index in &self.lock_order {
            let BoundBuffer { buffer, access, .. } = &self.buffers[index as usize];
            if !last.is_some_and(|last| last.shares_allocation_with(buffer)) {
                locks.push(if access.is_write() {
                    Lock::Exclusive(buffer.access_mut())
                } else {
                    Lock::Shared(buffer.allocation().access(0..buffer.allocation().block_bytes()))
                });
                last = Some(buffer);
            }
            of_buffer[index as usize] = locks.len() as u32 - 1;
        }
        NativeAccess { call: self, locks, of_buffer }
    }

    /// The call with other buffers in the place of its own, checked as if it were recorded anew.
    pub(crate) fn rebound(&self, rebinding: &Rebinding) -> Result<Self> {
        let buffers = self.buffers.iter().map(|bound| Ok((rebinding.buffer(&bound.buffer)?, bound.access)));
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        Self::new(Arc::clone(&self.work), Arc::clone(&self.name), buffers, self.words.clone())
    }
}

/// The order in which the buffers are locked, where a device can work on them together.
fn check(buffers: &[BoundBuffer]) -> Result<SmallVec<[u32; 8]>> {
    let invalid = |message| Err(Error::new(ErrorKind::InvalidArgument, message));
    for bound in buffers {
        if !bound.buffer.is_on_device_of(&buffers[0].buffer) {
            let (first, other) = (&buffers[0].buffer.device_info().id, &bound.buffer.device_info().id);
            return invalid(format!("expected buffers of one device, found `{first}` and another `{other}`"));
        }
        if !bound.buffer.usage().is_bindable() {
            let (slot, usage) = (bound.slot, bound.buffer.usage());
            return invalid(format!("expected memory that kernels work on, found {usage} as buffer {slot}"));
        }
    }
    let mut order: SmallVec<[u32; 8]> = (0..buffers.len() as u32).collect();
    order.sort_unstable_by_key(|&index| (buffers[index as usize].buffer.allocation().lock_rank(), index));
    for pair in order.windows(2) {
        let [one, other] = [pair[0], pair[1]].map(|index| &buffers[index as usize]);
        let is_written = one.access.is_write() || other.access.is_write();
        if is_written && one.buffer.shares_allocation_with(&other.buffer) {
            let (one, other) = (one.slot, other.slot);
            return invalid(format!(
                "expected memory of its own for what is written, found buffers {one} and {other} in one allocation"
            ));
        }
    }
    Ok(order)
}

impl fmt::Debug for NativeCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeCall")
            .field("name", &self.name)
            .field("buffers", &self.buffers)
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

/// Access to all buffers of a [`NativeCall`], for as long as it lives.
pub struct NativeAccess<'a> {
    call: &'a NativeCall,
    locks: SmallVec<[Lock<'a>; 8]>,
    /// For each buffer the index of its lock.
    of_buffer: SmallVec<[u32; 8]>,
}

enum Lock<'a> {
    Shared(Access<'a>),
    Exclusive(AccessMut<'a>),
}

impl NativeAccess<'_> {
    /// The region of a buffer that is read.
    ///
    /// # Panics
    /// Where the work writes it, or where there is no such buffer.
    pub fn region(&self, buffer: usize) -> Region<'_> {
        match &self.locks[self.of_buffer[buffer] as usize] {
            Lock::Shared(access) => access.region_at(&self.call.buffers[buffer].buffer.range()),
            Lock::Exclusive(_) => panic!("buffer {buffer} of native work `{}` is written", self.call.name),
        }
    }

    /// The region of a buffer that is written.
    ///
    /// # Panics
    /// Where the work only reads it, or where there is no such buffer.
    pub fn region_mut(&mut self, buffer: usize) -> RegionMut<'_> {
        match &mut self.locks[self.of_buffer[buffer] as usize] {
            // What is written is alone in its allocation, so the lock was taken for exactly this buffer.
            Lock::Exclusive(access) => access.region_mut(),
            Lock::Shared(_) => panic!("buffer {buffer} of native work `{}` is only read", self.call.name),
        }
    }
}

impl fmt::Debug for NativeAccess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeAccess").field("call", &self.call.name).finish_non_exhaustive()
    }
}
