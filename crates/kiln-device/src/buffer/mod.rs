//! Buffers: ranges of pooled memory that the host reads, writes, slices and copies.

mod set;
mod transfer;
mod typed;

pub use set::{BufferSet, LockedBuffers};
pub use transfer::PendingRead;
pub use typed::TypedBuffer;

use crate::device::DeviceApi;
use crate::info::DeviceInfo;
use crate::memory::Usage;
use crate::pool::{Access, AccessMut, Allocation};
use bytemuck::Pod;
use kiln_ir::{Error, ErrorKind, Result, bail};
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

/// A range of bytes on a device. Clones and slices share its memory, which returns to the pool with the last of them.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::NullDevice;
///
/// let device = NullDevice::new().into_device()?;
/// let buffer = device.buffer(8)?;
/// buffer.write(&[1, 2, 3, 4, 5, 6, 7, 8])?;
/// buffer.slice(4..)?.copy_to(&buffer.slice(..4)?)?;
/// assert_eq!(buffer.read()?, [5, 6, 7, 8, 5, 6, 7, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Buffer {
    allocation: Allocation<dyn DeviceApi>,
    offset: u64,
    bytes: u64,
}

impl Buffer {
    #[inline]
    pub(crate) fn new(allocation: Allocation<dyn DeviceApi>) -> Self {
        let bytes = allocation.bytes();
        Self { allocation, offset: 0, bytes }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of the last submission that uses the buffer's allocation, or 0 if there is none.
    pub fn last_submission(&self) -> u64 {
        self.allocation.last_use()
    }

    /// Returns the offset of the buffer in its allocation, in bytes; zero unless it is a slice.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the usage of the memory.
    #[inline]
    pub fn usage(&self) -> Usage {
        self.allocation.usage()
    }

    /// Returns the description of the buffer's device.
    pub fn device_info(&self) -> &DeviceInfo {
        self.api().info()
    }

    /// Returns whether both buffers belong to the same device.
    #[inline]
    pub fn is_on_device_of(&self, other: &Self) -> bool {
        // Addresses only: the vtable pointers of one type may differ between codegen units.
        std::ptr::addr_eq(std::ptr::from_ref(self.api()), std::ptr::from_ref(other.api()))
    }

    /// Returns whether both buffers are slices of the same allocation.
    #[inline]
    pub fn shares_allocation_with(&self, other: &Self) -> bool {
        self.allocation.is_same(&other.allocation)
    }

    /// Returns whether only padding follows the buffer in its allocation.
    pub(crate) fn is_end_of_allocation(&self) -> bool {
        self.range().end == self.allocation.bytes()
    }

    /// Returns whether the buffers have a byte in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.range(), other.range());
        self.shares_allocation_with(other) && a.start.max(b.start) < a.end.min(b.end)
    }

    /// Returns the range of `part` in this buffer, or `None` if it is not entirely inside.
    pub(crate) fn position_of(&self, part: &Self) -> Option<Range<u64>> {
        let (whole, part_range) = (self.range(), part.range());
        let is_inside = whole.start <= part_range.start && part_range.end <= whole.end;
        (is_inside && self.shares_allocation_with(part))
            .then(|| part_range.start - whole.start..part_range.end - whole.start)
    }

    /// Returns a part of the buffer, which shares its memory.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the range is outside the buffer.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self> {
        let (start, end) = resolve(range, self.bytes);
        if start > end || end > self.bytes {
            bail!(InvalidArgument, "slice expected a range within 0..{}, found {start}..{end}", self.bytes);
        }
        Ok(Self { allocation: self.allocation.clone(), offset: self.offset + start, bytes: end - start })
    }

    /// Converts the buffer to elements of type `T`.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the length or the offset is not a multiple of the element size or alignment, or if
    /// the alignment of `T` exceeds eight bytes.
    pub fn typed<T: Pod>(self) -> Result<TypedBuffer<T>> {
        TypedBuffer::new(self)
    }

    /// Locks the buffer for shared access, for a device that runs commands or code that uses the device's own
    /// interface.
    pub fn access(&self) -> Access<'_> {
        self.allocation.access(self.range())
    }

    /// Locks the buffer for exclusive access, for a device that runs commands.
    pub fn access_mut(&self) -> AccessMut<'_> {
        self.allocation.access_mut(self.range())
    }

    pub(crate) fn api(&self) -> &dyn DeviceApi {
        self.allocation.memory()
    }

    pub(crate) fn allocation(&self) -> &Allocation<dyn DeviceApi> {
        &self.allocation
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }

    fn is_aligned(&self) -> bool {
        let alignment = self.api().properties().copy_alignment;
        self.offset.is_multiple_of(alignment) && self.bytes.is_multiple_of(alignment)
    }

    pub(crate) fn check_alignment(&self, what: &str) -> Result<()> {
        if self.is_aligned() {
            return Ok(());
        }
        let Self { offset, bytes, .. } = self;
        let alignment = self.api().properties().copy_alignment;
        let message =
            format!("{what} expected offset and length in multiples of {alignment}, found {offset} and {bytes}");
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("device", &self.device_info().id)
            .field("offset", &self.offset)
            .field("bytes", &self.bytes)
            .field("usage", &self.usage())
            .finish()
    }
}

/// Returns the start and end of a range in a buffer of length `len`. They may be out of bounds.
fn resolve(range: impl RangeBounds<u64>, len: u64) -> (u64, u64) {
    // A bound that overflows saturates to the end of the address space, which the callers reject as out of range.
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    (start, end)
}

/// Locks `from` for shared and `to` for exclusive access.
///
/// The locks are taken in the order of their rank, so that two threads that copy in opposite directions do not
/// deadlock.
///
/// ```
/// use kiln_device::{NullDevice, access_pair};
///
/// let device = NullDevice::new().into_device()?;
/// let (from, to) = (device.buffer(64)?, device.buffer(64)?);
/// let (read, mut write) = access_pair(&from, &to);
/// assert_eq!((read.region().bytes(), write.region_mut().bytes()), (64, 64));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// # Panics
/// Panics if both are slices of one allocation.
pub fn access_pair<'a>(from: &'a Buffer, to: &'a Buffer) -> (Access<'a>, AccessMut<'a>) {
    assert!(!from.shares_allocation_with(to), "access to a pair of buffers in one allocation");
    // In the order of rank: two threads that copy in opposite directions would otherwise deadlock.
    if from.allocation.lock_rank() < to.allocation.lock_rank() {
        let from = from.access();
        (from, to.access_mut())
    } else {
        let to = to.access_mut();
        (from.access(), to)
    }
}
