//! Buffers of elements.

use super::{Buffer, PendingRead, resolve};
use bytemuck::Pod;
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// A [`Buffer`] whose bytes are elements of `T`. Clones and slices are the same memory.
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

/// What every device's mapped memory is aligned to.
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

    /// The number of elements.
    pub fn len(&self) -> usize {
        (self.buffer.bytes / size_of::<T>() as u64) as usize
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.buffer.bytes == 0
    }

    /// The same memory as bytes.
    pub fn as_bytes(&self) -> &Buffer {
        &self.buffer
    }

    /// The same memory as bytes.
    pub fn into_bytes(self) -> Buffer {
        self.buffer
    }

    /// A part of the buffer, by elements: the same memory, without a copy.
    ///
    /// # Errors
    /// `InvalidArgument` where the range is outside the buffer.
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
    /// As [`Buffer::write`].
    pub fn write(&self, data: &[T]) -> Result<()> {
        self.buffer.write(bytemuck::cast_slice(data))
    }

    /// Reads all elements, waiting for everything submitted before.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn read(&self) -> Result<Vec<T>> {
        self.read_async()?.wait()
    }

    /// Begins to read all elements; see [`Buffer::read_async`].
    ///
    /// # Errors
    /// As [`Buffer::read_async`].
    pub fn read_async(&self) -> Result<PendingRead<T>> {
        PendingRead::begin(&self.buffer, self.len())
    }

    /// Lets `read` see the elements; see [`Buffer::map_read`].
    ///
    /// # Errors
    /// As [`Buffer::map_read`].
    pub fn map_read<R>(&self, read: impl FnOnce(&[T]) -> R) -> Result<R> {
        if self.is_empty() || !self.buffer.usage().is_host_visible() {
            return Ok(read(&self.read()?));
        }
        self.buffer.map_read(|bytes| read(bytemuck::cast_slice(bytes)))
    }

    /// Lets `write` change the elements; see [`Buffer::map_write`].
    ///
    /// # Errors
    /// As [`Buffer::map_write`].
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
    /// As [`Buffer::copy_to`].
    pub fn copy_to(&self, to: &Self) -> Result<()> {
        self.buffer.copy_to(&to.buffer)
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// As [`Buffer::zero`].
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
