//! Sets of buffers that the host uses together: checked once, then locked in a global order.

use super::Buffer;
use crate::command::BufferUse;
use crate::memory::{Region, RegionMut};
use crate::pool::{Access, AccessMut};
use kiln_ir::{Error, ErrorKind, Result};
use smallvec::SmallVec;
use std::fmt;

/// Buffers of one device that the host uses at the same time, each with its access.
///
/// ```
/// use kiln_device::{BufferSet, BufferUse, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let (input, output) = (device.buffer(64)?, device.buffer(64)?);
/// let set = BufferSet::new([(&input, BufferUse::Read), (&output, BufferUse::Write)])?;
/// let mut locked = set.lock();
/// assert_eq!(locked.region(0).bytes(), 64);
/// assert_eq!(locked.region_mut(1).bytes(), 64);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub struct BufferSet<'a> {
    buffers: SmallVec<[(&'a Buffer, BufferUse); 8]>,
    /// Indices in lock order. Buffers of one allocation are adjacent.
    lock_order: SmallVec<[u32; 8]>,
}

impl<'a> BufferSet<'a> {
    /// Creates a set, checking that the buffers can be used together.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the buffers belong to several devices, if memory that is written overlaps another
    /// of the buffers, or if a buffer is staging memory, which kernels cannot use.
    pub fn new(buffers: impl IntoIterator<Item = (&'a Buffer, BufferUse)>) -> Result<Self> {
        let buffers: SmallVec<[(&Buffer, BufferUse); 8]> = buffers.into_iter().collect();
        let lock_order = check(&buffers)?;
        Ok(Self { buffers, lock_order })
    }

    /// Returns the buffers, in the order in which they were given.
    pub fn buffers(&self) -> &[(&'a Buffer, BufferUse)] {
        &self.buffers
    }

    /// Locks all buffers: shared for reading, exclusive for writing. Each allocation is locked once, in the order of
    /// its rank, so that threads do not deadlock.
    pub fn lock<'s>(&'s self) -> LockedBuffers<'s> {
        // Shortens the lifetime, so that the locks live no longer than this borrow.
        let buffers: &'s [(&'s Buffer, BufferUse)] = &self.buffers;
        let mut locks: SmallVec<[Lock<'_>; 8]> = SmallVec::new();
        let mut lock_of_buffer: SmallVec<[u32; 8]> = SmallVec::from_elem(0, buffers.len());
        let mut last: Option<&Buffer> = None;
        for &index in &self.lock_order {
            let (buffer, access) = buffers[index as usize];
            if !last.is_some_and(|last| last.shares_allocation_with(buffer)) {
                // One lock covers all slices of the allocation.
                let whole = 0..buffer.allocation().block_bytes();
                locks.push(if access.is_write() {
                    Lock::Exclusive(buffer.allocation().access_mut(whole))
                } else {
                    Lock::Shared(buffer.allocation().access(whole))
                });
                last = Some(buffer);
            }
            lock_of_buffer[index as usize] = locks.len() as u32 - 1;
        }
        LockedBuffers { buffers, locks, lock_of_buffer }
    }
}

/// Checks the buffers and returns their lock order.
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
    // By rank, so that all threads lock in the same order; then by offset, so that neighbours can be compared.
    places.sort_unstable();
    let order: SmallVec<[u32; 8]> = places.iter().map(|&(_, _, index)| index).collect();
    for pair in order.windows(2) {
        let [(one, one_use), (other, other_use)] = [pair[0], pair[1]].map(|index| buffers[index as usize]);
        // Only slices that are written without being read may share an allocation: both use its exclusive lock.
        let are_disjoint =
            one_use == BufferUse::Write && other_use == BufferUse::Write && one.range().end <= other.offset();
        let is_written = one_use.is_write() || other_use.is_write();
        if is_written && !are_disjoint && one.shares_allocation_with(other) {
            let [one, other] = [pair[0], pair[1]];
            return invalid(format!(
                "expected a separate allocation for each written buffer, found buffers {one} and {other} in one allocation"
            ));
        }
    }
    Ok(order)
}

/// Locked access to all buffers of a [`BufferSet`].
///
/// Returned by [`BufferSet::lock`]; see [`BufferSet`] for an example.
pub struct LockedBuffers<'a> {
    buffers: &'a [(&'a Buffer, BufferUse)],
    locks: SmallVec<[Lock<'a>; 8]>,
    /// The index of each buffer's lock.
    lock_of_buffer: SmallVec<[u32; 8]>,
}

enum Lock<'a> {
    Shared(Access<'a>),
    Exclusive(AccessMut<'a>),
}

impl LockedBuffers<'_> {
    /// Returns the region of a buffer for reading.
    ///
    /// # Panics
    /// Panics if the set writes the buffer, or if there is no such buffer.
    pub fn region(&self, buffer: usize) -> Region<'_> {
        match &self.locks[self.lock_of_buffer[buffer] as usize] {
            Lock::Shared(access) => access.region_at(&self.buffers[buffer].0.range()),
            Lock::Exclusive(_) => panic!("buffer {buffer} is locked for writing"),
        }
    }

    /// Returns the region of a buffer for writing.
    ///
    /// # Panics
    /// Panics if the set only reads the buffer, or if there is no such buffer.
    pub fn region_mut(&mut self, buffer: usize) -> RegionMut<'_> {
        match &mut self.locks[self.lock_of_buffer[buffer] as usize] {
            // Other ranges of the allocation are written through the same lock; `check` verified that they do not
            // overlap.
            Lock::Exclusive(access) => access.region_mut_at(&self.buffers[buffer].0.range()),
            Lock::Shared(_) => panic!("buffer {buffer} is locked for reading"),
        }
    }
}

impl fmt::Debug for LockedBuffers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedBuffers").field("buffers", &self.buffers).finish_non_exhaustive()
    }
}
