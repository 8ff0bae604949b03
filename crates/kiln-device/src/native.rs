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

/// Native work with the buffers and numbers of one run, as a device sees it.
pub struct NativeRun<'a> {
    work: &'a (dyn Any + Send + Sync),
    name: &'a str,
    buffers: SmallVec<[(&'a Buffer, BufferUse); 8]>,
    words: &'a [u32],
    /// The buffers in the order in which they are locked; those of one allocation are neighbours.
    lock_order: SmallVec<[u32; 8]>,
}

impl<'a> NativeRun<'a> {
    /// A run of work that a device knows by its type. It finds the buffers in the order in which they are given here, and the
    /// words as they are.
    ///
    /// # Errors
    /// `InvalidArgument` where the buffers are of several devices, where memory that the work writes is also in another of
    /// its buffers, or where a buffer is staging, which no kernel works on.
    pub fn new(
        work: &'a (dyn Any + Send + Sync),
        name: &'a str,
        buffers: impl IntoIterator<Item = (&'a Buffer, BufferUse)>,
        words: &'a [u32],
    ) -> Result<Self> {
        let buffers: SmallVec<[(&Buffer, BufferUse); 8]> = buffers.into_iter().collect();
        let lock_order = check(&buffers).map_err(|error| error.context(format!("native work `{name}`")))?;
        Ok(Self { work, name, buffers, words, lock_order })
    }

    /// What the device looks for by its type.
    pub fn work(&self) -> &'a (dyn Any + Send + Sync) {
        self.work
    }

    /// The name in messages.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The buffers, in order.
    pub fn buffers(&self) -> &[(&'a Buffer, BufferUse)] {
        &self.buffers
    }

    /// The numbers that the run brings.
    pub fn words(&self) -> &'a [u32] {
        self.words
    }

    /// Locks all buffers: shared where the work reads, exclusive where it writes; each allocation once, and in an order
    /// that all threads agree on.
    pub fn access<'s>(&'s self) -> NativeAccess<'s> {
        // Locks live no longer than this borrow.
        let buffers: &'s [(&'s Buffer, BufferUse)] = &self.buffers;
        let mut locks: SmallVec<[Lock<'_>; 8]> = SmallVec::new();
        let mut of_buffer: SmallVec<[u32; 8]> = SmallVec::from_elem(0, buffers.len());
        let mut last: Option<&Buffer> = None;
        for &index in &self.lock_order {
            let (buffer, access) = buffers[index as usize];
            if !last.is_some_and(|last| last.shares_allocation_with(buffer)) {
                let whole = 0..buffer.allocation().block_bytes();
                locks.push(if access.is_write() {
                    Lock::Exclusive(buffer.allocation().access_mut(whole))
                } else {
                    Lock::Shared(buffer.allocation().access(whole))
                });
                last = Some(buffer);
            }
            of_buffer[index as usize] = locks.len() as u32 - 1;
        }
        NativeAccess { name: self.name, buffers, locks, of_buffer }
    }
}

/// Native work as a command, which owns what a [`NativeRun`] borrows. Recorded by
/// [`CommandList::native`](crate::CommandList::native), which checks it.
#[derive(Clone)]
pub struct NativeCall {
    work: Arc<dyn Any + Send + Sync>,
    name: Arc<str>,
    buffers: Vec<BoundBuffer>,
    words: Vec<u32>,
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
        let lock_order = NativeRun::new(&*work, &name, uses(&buffers), &words)?.lock_order;
        Ok(Self { work, name, buffers, words, lock_order })
    }

    /// What a device runs.
    pub fn as_run(&self) -> NativeRun<'_> {
        let (buffers, lock_order) = (uses(&self.buffers).collect(), self.lock_order.clone());
        NativeRun { work: &*self.work, name: &self.name, buffers, words: &self.words, lock_order }
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The buffers, in order.
    pub fn buffers(&self) -> &[BoundBuffer] {
        &self.buffers
    }

    /// The call with other buffers in the place of its own, checked as if it were recorded anew.
    pub(crate) fn rebound(&self, rebinding: &Rebinding) -> Result<Self> {
        let buffers = self.buffers.iter().map(|bound| Ok((rebinding.buffer(&bound.buffer)?, bound.access)));
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        Self::new(Arc::clone(&self.work), Arc::clone(&self.name), buffers, self.words.clone())
    }
}

fn uses(buffers: &[BoundBuffer]) -> impl Iterator<Item = (&Buffer, BufferUse)> {
    buffers.iter().map(|bound| (&bound.buffer, bound.access))
}

/// The order in which the buffers are locked, where a device can work on them together.
fn check(buffers: &[(&Buffer, BufferUse)]) -> Result<SmallVec<[u32; 8]>> {
    let invalid = |message| Err(Error::new(ErrorKind::InvalidArgument, message));
    for (slot, (buffer, _)) in buffers.iter().enumerate() {
        if !buffer.is_on_device_of(buffers[0].0) {
            let (first, other) = (&buffers[0].0.device_info().id, &buffer.device_info().id);
            return invalid(format!("expected buffers of one device, found `{first}` and another `{other}`"));
        }
        if !buffer.usage().is_bindable() {
            let usage = buffer.usage();
            return invalid(format!("expected memory that kernels work on, found {usage} as buffer {slot}"));
        }
    }
    let place = |(index, &(buffer, _)): (u32, &(&Buffer, _))| (buffer.allocation().lock_rank(), buffer.offset(), index);
    let mut places: SmallVec<[_; 8]> = (0..).zip(buffers).map(place).collect();
    places.sort_unstable();
    let order: SmallVec<[u32; 8]> = places.iter().map(|&(_, _, index)| index).collect();
    for pair in order.windows(2) {
        let [(one, one_use), (other, other_use)] = [pair[0], pair[1]].map(|index| buffers[index as usize]);
        let is_apart =
            one_use == BufferUse::Write && other_use == BufferUse::Write && one.range().end <= other.offset();
        let is_written = one_use.is_write() || other_use.is_write();
        if is_written && !is_apart && one.shares_allocation_with(other) {
            let [one, other] = [pair[0], pair[1]];
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

/// Access to all buffers of a [`NativeRun`], for as long as it lives.
pub struct NativeAccess<'a> {
    name: &'a str,
    buffers: &'a [(&'a Buffer, BufferUse)],
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
            Lock::Shared(access) => access.region_at(&self.buffers[buffer].0.range()),
            Lock::Exclusive(_) => panic!("buffer {buffer} of native work `{}` is written", self.name),
        }
    }

    /// The region of a buffer that is written.
    ///
    /// # Panics
    /// Where the work only reads it, or where there is no such buffer.
    pub fn region_mut(&mut self, buffer: usize) -> RegionMut<'_> {
        match &mut self.locks[self.of_buffer[buffer] as usize] {
            // What else is in the allocation is written by the same work, and lies apart.
            Lock::Exclusive(access) => access.region_mut_at(&self.buffers[buffer].0.range()),
            Lock::Shared(_) => panic!("buffer {buffer} of native work `{}` is only read", self.name),
        }
    }
}

impl fmt::Debug for NativeAccess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeAccess").field("name", &self.name).finish_non_exhaustive()
    }
}
