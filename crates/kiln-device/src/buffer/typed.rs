//! Buffers of elements.

use super::{Buffer, PendingRead, resolve};
use bytemuck::Pod;
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// A [`Buffer`] of elements of type `T`. Clones and slices share its memory.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::NullDevice;
///
/// let device = NullDevice::new().into_device()?;
/// let buffer = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
/// buffer.map_write(|values| values[1] = 20.0)?;
/// assert_eq!(buffer.slice(1..)?.read()?, [20.0, 3.0]);
/// # Ok(())
/// # }
/// ```
pub struct TypedBuffer<T> {
    buffer: Buffer,
    element: PhantomData<fn() -> T>,
}

/// The alignment of mapped memory on every device, in bytes.
const MAPPED_ALIGNMENT: usize = 8;

impl<T: Pod> TypedBuffer<T> {
    pub(super) fn new(buffer: Buffer) -> Result<Self> {
        let (size, alignment) = (size_of::<T>() as u64, align_of::<T>());
        let fits = size > 0
            && alignment <= MAPPED_ALIGNMENT
            && buffer.bytes.is_multiple_of(size)
            && buffer.offset.is_multiple_of(alignment as u64);
        if fits {
            return Ok(Self { buffer, element: PhantomData });
        }
        let message = format!(
            "typed buffer expected an offset in multiples of the alignment (at most {MAPPED_ALIGNMENT}) and a length in multiples \
             of the element, found offset {} and length {} for elements of {size} bytes aligned to {alignment}",
            buffer.offset, buffer.bytes
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        (self.buffer.bytes / size_of::<T>() as u64) as usize
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.buffer.bytes == 0
    }

    /// Returns the buffer as bytes, sharing its memory.
    pub fn as_bytes(&self) -> &Buffer {
        &self.buffer
    }

    /// Converts the buffer to bytes.
    pub fn into_bytes(self) -> Buffer {
        self.buffer
    }

    /// Returns a range of elements, which shares the memory of the buffer.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the range is outside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let size = size_of::<T>() as u64;
        let bounds = (range.start_bound().map(|&at| at as u64), range.end_bound().map(|&at| at as u64));
        let (start, end) = resolve(bounds, self.len() as u64);
        let buffer = self.buffer.slice(start.saturating_mul(size)..end.saturating_mul(size));
        let buffer = buffer.map_err(|error| error.context(format!("elements of {size} bytes")))?;
        Ok(Self { buffer, element: PhantomData })
    }

    /// Writes all elements; see [`Buffer::write`].
    ///
    /// # Errors
    /// Returns the same errors as [`Buffer::write`].
    pub fn write(&self, data: &[T]) -> Result<()> {
        self.buffer.write(bytemuck::cast_slice(data))
    }

    /// Reads all elements, after waiting for everything submitted before.
    ///
    /// # Errors
    /// Returns the same errors as [`Buffer::read`].
    pub fn read(&self) -> Result<Vec<T>> {
        self.read_async()?.wait()
    }

    /// Starts to read all elements; see [`Buffer::read_async`].
    ///
    /// # Errors
    /// Returns the same errors as [`Buffer::read_async`].
    pub fn read_async(&self) -> Result<PendingRead<T>> {
        PendingRead::begin(&self.buffer, self.len())
    }

    /// Calls `read` with the elements; see [`Buffer::map_read`].
    ///
    /// # Errors
    /// Returns the same errors as [`Buffer::map_read`].
    pub fn map_read<R>(&self, read: impl FnOnce(&[T]) -> R) -> Result<R> {
        if self.is_empty() || !self.buffer.usage().is_host_visible() {
            return Ok(read(&self.read()?));
        }
        self.buffer.map_read(|bytes| read(bytemuck::cast_slice(bytes)))
    }

    /// Calls `write` with the elements to change; see [`Buffer::map_write`].
    ///
    /// # Errors
    /// Returns the same errors as [`Buffer::map_write`].
    pub fn map_write<R>(&self, write: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        if self.is_empty() || !self.buffer.usage().is_host_visible() {
            let mut elements = self.read()?;
            let result = write(&mut elements);
            self.write(&elements)?;
            return Ok(result);
        }
        self.buffer.map_write(|bytes| write(bytemuck::cast_slice_mut(bytes)))
    }

    /// Copies all elements to another buffer of the same length; see [`Buffer::copy_to`].
    ///
    /// # Errors
    /// Returns the same errors as [`Buffer::copy_to`].
    pub fn copy_to(&self, to: &Self) -> Result<()> {
        self.buffer.copy_to(&to.buffer)
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// Returns the same errors as [`Buffer::zero`].
    pub fn zero(&self) -> Result<()> {
        self.buffer.zero()
    }
}

impl<T> Clone for TypedBuffer<T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), element: PhantomData }
    }
}

impl<T> fmt::Debug for TypedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypedBuffer<{}>({:?})", std::any::type_name::<T>(), self.buffer)
    }
}
