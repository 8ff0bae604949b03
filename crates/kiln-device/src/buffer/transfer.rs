//! Transfers staging host and buffers, and staging buffers.
//!
//! Host-visible memory is accessed in place, after waiting for the submissions that use it. Other memory is accessed
//! through pooled staging buffers and copies, in submission order. Devices copy whole words; unaligned ends are read,
//! modified and written back by the host.

use super::Buffer;
use crate::command::CommandList;
use crate::device::submit_pinned;
use crate::memory::Usage;
use crate::pool::BufferOptions;
use bytemuck::Pod;
use kiln_ir::{Error, ErrorKind, Result, bail, error};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The size of the largest staging buffer. Longer transfers use several submissions, at most two of them in flight.
const STAGING_BYTES: u64 = 32 << 20;
const MIN_STAGING_BYTES: u64 = 64 << 10;

impl Buffer {
    /// Writes the whole buffer. A staged write may return before the device has the bytes; later submissions see them.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if `data` is not as long as the buffer; `OutOfMemory` if there is no memory for
    /// staging; the device's fault.
    pub fn write(&self, data: &[u8]) -> Result<()> {
        self.check_length(data.len())?;
        self.check_fault()?;
        if data.is_empty() {
            return Ok(());
        }
        if self.usage().is_host_visible() {
            return self.map_in_place(|bytes| bytes.copy_from_slice(data));
        }
        // The device copies whole words. Partial words at the ends are read, modified and written back.
        let words = self.whole_words();
        let (head, rest) = data.split_at((words.offset - self.offset) as usize);
        // At the end of the allocation `words` includes padding and is longer than the data.
        let (middle, tail) = rest.split_at(words.bytes.min(rest.len() as u64) as usize);
        self.write_part_of_word(self.offset, head)?;
        words.write_staged(middle)?;
        self.write_part_of_word(words.offset + words.bytes, tail)
    }

    /// Reads the whole buffer, after waiting for everything submitted before.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if there is no memory for staging; the device's fault.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.read_async()?.wait()
    }

    /// Starts to read the whole buffer and returns a future.
    ///
    /// The result contains everything submitted before this call. Later writes may be visible as well: in host-visible
    /// memory, and beyond the first 32 MiB of other memory.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if there is no memory for staging; the device's fault.
    pub fn read_async(&self) -> Result<PendingRead<u8>> {
        PendingRead::begin(self, self.bytes as usize)
    }

    /// Calls `read` with the bytes: in place in host-visible memory, otherwise with a copy.
    ///
    /// In place, the buffer is locked during the call: using it in `read` is a deadlock.
    ///
    /// # Errors
    /// Returns the same errors as [`read`](Self::read).
    pub fn map_read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        if !self.usage().is_host_visible() {
            return Ok(read(&self.read()?));
        }
        self.check_fault()?;
        self.api().wait(self.allocation.last_use())?;
        // `map` takes a `FnMut`, so the `FnOnce` is taken out at the first call.
        let (mut read, mut result) = (Some(read), None);
        let access = self.access();
        self.api().map(access.region(), &mut |bytes| result = read.take().map(|read| read(bytes)))?;
        result.ok_or_else(not_mapped)
    }

    /// Calls `write` with the bytes to change: in place in host-visible memory, otherwise with a copy that is written
    /// back.
    ///
    /// In place, the buffer is locked during the call: using it in `write` is a deadlock.
    ///
    /// # Errors
    /// Returns the same errors as [`read`](Self::read) and [`write`](Self::write).
    pub fn map_write<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if self.usage().is_host_visible() {
            self.check_fault()?;
            return self.map_in_place(write);
        }
        let mut bytes = self.read()?;
        let result = write(&mut bytes);
        self.write(&bytes)?;
        Ok(result)
    }

    /// Copies the buffer to another one of the same length, on any device. Both may be overlapping slices of one
    /// allocation.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the lengths differ; `OutOfMemory` if there is no memory for staging; the device's
    /// fault.
    pub fn copy_to(&self, to: &Self) -> Result<()> {
        if self.bytes != to.bytes {
            bail!(InvalidArgument, "copy expected equal lengths, found {} and {} bytes", self.bytes, to.bytes);
        }
        // Nothing changes, but a lost device is still reported.
        if self.bytes == 0 || (self.shares_allocation_with(to) && self.offset == to.offset) {
            return self.check_fault();
        }
        // Copies between devices, or with unaligned ends, go through the host.
        let direct = self.is_on_device_of(to) && self.is_aligned() && to.is_aligned();
        if !direct || !self.usage().is_copied_from() || !to.usage().is_copied_to() {
            return to.write(&self.read()?);
        }
        if self.shares_allocation_with(to) {
            // wgpu does not copy within one buffer.
            return self.copy_within(to);
        }
        let mut commands = CommandList::new();
        commands.copy(self, to)?;
        self.submit_transfer(&commands).map(drop)
    }

    /// Copies to another slice of the same allocation, in pieces through a staging buffer. Starts at the end if `to`
    /// begins after the source, so that no piece is overwritten before it is copied.
    fn copy_within(&self, to: &Self) -> Result<()> {
        let staging = self.staging(self.bytes, self.usage())?;
        let pieces = self.bytes.div_ceil(staging.bytes);
        for piece in 0..pieces {
            let piece = if to.offset > self.offset { pieces - 1 - piece } else { piece };
            let range = piece * staging.bytes..self.bytes.min((piece + 1) * staging.bytes);
            let staging = staging.slice(..range.end - range.start)?;
            let mut commands = CommandList::new();
            commands.copy(&self.slice(range.clone())?, &staging)?;
            commands.copy(&staging, &to.slice(range)?)?;
            self.submit_transfer(&commands)?;
        }
        Ok(())
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if there is no memory for staging; the device's fault.
    pub fn zero(&self) -> Result<()> {
        if !self.is_aligned() || !self.usage().is_copied_to() {
            return self.write(&vec![0; self.bytes as usize]);
        }
        let mut commands = CommandList::new();
        commands.zero(self)?;
        self.submit_transfer(&commands).map(drop)
    }

    fn map_in_place<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.api().wait(self.allocation.last_use())?;
        let (mut write, mut result) = (Some(write), None);
        let mut access = self.access_mut();
        self.api().map_mut(access.region_mut(), &mut |bytes| result = write.take().map(|write| write(bytes)))?;
        result.ok_or_else(not_mapped)
    }

    /// Writes to an aligned range through staging. `data` may be shorter than the range if the rest is padding.
    fn write_staged(&self, data: &[u8]) -> Result<()> {
        let (mut rest, mut start, mut before) = (data, 0, 0);
        while !rest.is_empty() {
            let words = (rest.len() as u64).next_multiple_of(self.api().properties().copy_alignment);
            let staging = self.staging(words, Usage::Upload)?;
            let chunk;
            (chunk, rest) = rest.split_at(rest.len().min(staging.bytes as usize));
            staging.map_in_place(|bytes| bytes[..chunk.len()].copy_from_slice(chunk))?;
            let end = start + staging.bytes;
            let mut commands = CommandList::new();
            commands.copy(&staging, &self.slice(start..end)?)?;
            let submission = self.submit_transfer(&commands)?;
            // At most two chunks in flight: while one is copied, the next is filled.
            self.api().wait(before)?;
            (start, before) = (end, submission);
        }
        Ok(())
    }

    /// Records a write through a staging buffer that is filled now.
    pub(crate) fn record_write(&self, data: &[u8], commands: &mut CommandList) -> Result<()> {
        self.check_length(data.len())?;
        self.check_fault()?;
        self.check_alignment("write")?;
        let mut rest = data;
        while !rest.is_empty() {
            let staging = self.staging(rest.len() as u64, Usage::Upload)?;
            let chunk;
            let start = (data.len() - rest.len()) as u64;
            (chunk, rest) = rest.split_at(rest.len().min(staging.bytes as usize));
            staging.map_in_place(|bytes| bytes[..chunk.len()].copy_from_slice(chunk))?;
            commands.copy_staged(&staging, &self.slice(start..start + staging.bytes)?)?;
        }
        Ok(())
    }

    /// Writes a part of a word through staging: reads the word, modifies it and writes it back.
    fn write_part_of_word(&self, offset: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let block = self.allocation.block();
        // Two threads that write different bytes of one word would otherwise overwrite each other's change.
        let _lock = block.partial_word_lock.lock();
        let alignment = self.api().properties().copy_alignment;
        let skip = (offset % alignment) as usize;
        let word = Self { allocation: self.allocation.clone(), offset: offset - offset % alignment, bytes: alignment };
        let mut bytes = word.read()?;
        bytes[skip..skip + data.len()].copy_from_slice(data);
        word.write_staged(&bytes)
    }

    /// Allocates a staging buffer for up to `bytes` bytes: at most [`STAGING_BYTES`], less if memory is short.
    fn staging(&self, bytes: u64, usage: Usage) -> Result<Self> {
        let mut size = bytes.min(STAGING_BYTES);
        loop {
            // Halves the size until it fits, because a small staging buffer only costs more submissions.
            let is_short = |error: &Error| matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::TooLarge);
            let request = BufferOptions::new(size).usage(usage).label("(staging)");
            match self.allocation.block().core.allocate(&request).map(Self::new) {
                Err(error) if size > MIN_STAGING_BYTES && is_short(&error) => {
                    size = (size / 2).next_multiple_of(self.api().properties().copy_alignment);
                }
                result => return result,
            }
        }
    }

    fn submit_transfer(&self, commands: &CommandList) -> Result<u64> {
        submit_pinned(self.api(), commands.commands())
    }

    fn check_fault(&self) -> Result<()> {
        self.api().fault().map_or(Ok(()), Err)
    }

    fn check_length(&self, found: usize) -> Result<()> {
        if found as u64 == self.bytes {
            return Ok(());
        }
        Err(error!(InvalidArgument, "write expected {} bytes, as long as the buffer, found {found}", self.bytes))
    }

    /// Returns the smallest aligned range that contains the buffer. Blocks are multiples of every alignment, so it is
    /// within the block.
    fn grow_to_alignment(&self) -> Self {
        let alignment = self.api().properties().copy_alignment;
        let offset = self.offset - self.offset % alignment;
        let end = (self.offset + self.bytes).next_multiple_of(alignment);
        Self { allocation: self.allocation.clone(), offset, bytes: end - offset }
    }

    /// Returns the words that can be overwritten entirely: those within the buffer and, at the end of the allocation,
    /// the last word including padding.
    fn whole_words(&self) -> Self {
        let alignment = self.api().properties().copy_alignment;
        let own_end = self.offset + self.bytes;
        let is_last = own_end == self.allocation.bytes();
        let end = if is_last { own_end.next_multiple_of(alignment) } else { own_end - own_end % alignment };
        let offset = self.offset.next_multiple_of(alignment).min(own_end);
        Self { allocation: self.allocation.clone(), offset, bytes: end.saturating_sub(offset) }
    }
}

fn not_mapped() -> Error {
    error!(Internal, "device expected to map the memory, found success without a mapping")
}

/// A read in progress: await it, or [`wait`](Self::wait) for it.
///
/// ```
/// use kiln_device::NullDevice;
///
/// let device = NullDevice::new().into_device()?;
/// let pending = device.buffer_from(&[1u32, 2, 3])?.read_async()?;
/// assert_eq!(pending.wait()?, [1, 2, 3]);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[must_use = "a read does nothing until it is awaited or waited for"]
pub struct PendingRead<T> {
    buffer: Buffer,
    /// The host-visible buffer of the current piece, and the position of the piece in it.
    source: Buffer,
    piece: Range<usize>,
    submission: u64,
    /// The elements read so far; `None` after the read has ended.
    data: Option<Vec<T>>,
    read_bytes: usize,
}

impl<T: Pod> PendingRead<T> {
    pub(super) fn begin(buffer: &Buffer, len: usize) -> Result<Self> {
        buffer.check_fault()?;
        let data = Some(vec![T::zeroed(); len]);
        let submission = if buffer.bytes == 0 { 0 } else { buffer.allocation.last_use() };
        let (source, buffer) = (buffer.clone(), buffer.clone());
        let mut read = Self { piece: 0..buffer.bytes as usize, buffer, source, submission, data, read_bytes: 0 };
        if !read.buffer.usage().is_host_visible() && read.buffer.bytes > 0 {
            read.download()?;
        }
        Ok(read)
    }

    /// Blocks until the data has arrived, and returns it.
    ///
    /// # Errors
    /// Returns the device's fault.
    pub fn wait(mut self) -> Result<Vec<T>> {
        loop {
            self.source.api().wait(self.submission)?;
            if let Some(data) = self.step()? {
                return Ok(data);
            }
        }
    }

    /// Copies the next piece to a host-visible staging buffer.
    fn download(&mut self) -> Result<()> {
        // Releases the staging buffer of the previous piece first, so that only one exists at a time.
        self.source = self.buffer.clone();
        let rest = self.buffer.slice(self.read_bytes as u64..)?;
        let words = rest.grow_to_alignment();
        self.source = self.buffer.staging(words.bytes, Usage::Download)?;
        let skip = (rest.offset - words.offset) as usize;
        self.piece = skip..(skip + rest.bytes as usize).min(self.source.bytes as usize);
        let mut commands = CommandList::new();
        let part = Buffer { bytes: self.source.bytes, ..words };
        commands.copy(&part, &self.source)?;
        self.submission = self.buffer.submit_transfer(&commands)?;
        Ok(())
    }

    /// Takes the piece that has arrived and starts the next. Returns the data when complete. Used by blocking and async
    /// reads.
    fn step(&mut self) -> Result<Option<Vec<T>>> {
        let mut data = self.data.take().expect("a read is polled until it is ready, and not after");
        self.source.check_fault()?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut data);
        let total = bytes.len();
        if total > 0 {
            let access = self.source.access();
            let (piece, mut mapped) = (self.piece.clone(), false);
            let to = &mut bytes[self.read_bytes..self.read_bytes + piece.len()];
            self.source.api().map(access.region(), &mut |from| {
                to.copy_from_slice(&from[piece.clone()]);
                mapped = true;
            })?;
            if !mapped {
                return Err(not_mapped());
            }
            self.read_bytes += self.piece.len();
        }
        if self.read_bytes == total {
            return Ok(Some(data));
        }
        self.download()?;
        self.data = Some(data);
        Ok(None)
    }

    fn is_done(&self) -> bool {
        // A lost device may never complete the submission; `step` then returns the fault.
        self.source.api().fault().is_some() || self.source.api().completed() >= self.submission
    }
}

impl<T: Pod> Future for PendingRead<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if !self.is_done() {
                self.source.api().notify(self.submission, context.waker().clone());
                // The submission may have ended before the waker was registered.
                if !self.is_done() {
                    return Poll::Pending;
                }
            }
            match self.step() {
                Ok(None) => {}
                Ok(Some(data)) => return Poll::Ready(Ok(data)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// The elements are owned and not self-referential, so moving a read staging polls is fine.
impl<T> Unpin for PendingRead<T> {}
