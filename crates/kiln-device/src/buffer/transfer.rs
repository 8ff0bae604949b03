//! How bytes get from the host to a buffer, back, and between buffers.
//!
//! Memory that the host reaches is written and read in place, after the submitted work that touches it. Other memory is
//! reached through pooled staging buffers and copies in the order of submissions. Devices copy whole words; what is not
//! aligned to them takes the longer way through the host.

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

/// The largest staging buffer. Longer transfers go in several submissions, with at most two of them in flight.
const STAGING_BYTES: u64 = 32 << 20;
const MIN_STAGING_BYTES: u64 = 64 << 10;

impl Buffer {
    /// Writes the whole buffer. A staged write may return before the device has the bytes; later submissions see them.
    ///
    /// # Errors
    /// `InvalidArgument` where `data` is not as long as the buffer; the device's fault; `OutOfMemory` for staging.
    pub fn write(&self, data: &[u8]) -> Result<()> {
        self.check_length(data.len())?;
        self.check_fault()?;
        if data.is_empty() {
            return Ok(());
        }
        if self.usage().is_host_visible() {
            return self.map_in_place(|bytes| bytes.copy_from_slice(data));
        }
        let words = self.whole_words();
        let (head, rest) = data.split_at((words.offset - self.offset) as usize);
        let (middle, tail) = rest.split_at(words.bytes.min(rest.len() as u64) as usize);
        self.write_part_of_word(self.offset, head)?;
        words.write_staged(middle)?;
        self.write_part_of_word(words.offset + words.bytes, tail)
    }

    /// Reads the whole buffer, waiting for everything submitted before.
    ///
    /// # Errors
    /// The device's fault; `OutOfMemory` for staging.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.read_async()?.wait()
    }

    /// Begins to read the whole buffer: a future, which sees at least what everything submitted before this call leaves.
    /// Later writes may show as well: in memory that the host reaches, and beyond the first 32 MiB of other memory.
    ///
    /// # Errors
    /// The device's fault; `OutOfMemory` for staging.
    pub fn read_async(&self) -> Result<PendingRead<u8>> {
        PendingRead::begin(self, self.bytes as usize)
    }

    /// Lets `read` see the bytes: in place where the host reaches them, in a copy elsewhere.
    ///
    /// In place the buffer is locked meanwhile: using it inside `read` waits for ever.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn map_read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        if !self.usage().is_host_visible() {
            return Ok(read(&self.read()?));
        }
        self.check_fault()?;
        self.api().wait(self.allocation.last_use())?;
        let (mut read, mut result) = (Some(read), None);
        let access = self.access();
        self.api().map(access.region(), &mut |bytes| result = read.take().map(|read| read(bytes)))?;
        result.ok_or_else(not_mapped)
    }

    /// Lets `write` change the bytes: in place where the host reaches them, in a copy that is written back elsewhere.
    ///
    /// In place the buffer is locked meanwhile: using it inside `write` waits for ever.
    ///
    /// # Errors
    /// As [`read`](Self::read) and [`write`](Self::write).
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

    /// Copies the whole buffer to one of the same length, on any device; both may be slices of one allocation, and overlap.
    ///
    /// # Errors
    /// `InvalidArgument` where the lengths differ; the device's fault; `OutOfMemory` for staging.
    pub fn copy_to(&self, to: &Self) -> Result<()> {
        if self.bytes != to.bytes {
            bail!(InvalidArgument, "copy expected equal lengths, found {} and {} bytes", self.bytes, to.bytes);
        }
        if self.bytes == 0 || (self.shares_allocation_with(to) && self.offset == to.offset) {
            return self.check_fault();
        }
        let direct = self.is_on_device_of(to) && self.is_aligned() && to.is_aligned();
        if !direct || !self.usage().is_copied_from() || !to.usage().is_copied_to() {
            return to.write(&self.read()?);
        }
        if self.shares_allocation_with(to) {
            return self.copy_within(to);
        }
        let mut commands = CommandList::new();
        commands.copy(self, to)?;
        self.submit_transfer(&commands).map(drop)
    }

    /// Copies to another slice of the same allocation, piece by piece through a buffer between them; the far end first
    /// where the near end would overwrite it.
    fn copy_within(&self, to: &Self) -> Result<()> {
        let between = self.staging(self.bytes, self.usage())?;
        let pieces = self.bytes.div_ceil(between.bytes);
        for piece in 0..pieces {
            let piece = if to.offset > self.offset { pieces - 1 - piece } else { piece };
            let range = piece * between.bytes..self.bytes.min((piece + 1) * between.bytes);
            let between = between.slice(..range.end - range.start)?;
            let mut commands = CommandList::new();
            commands.copy(&self.slice(range.clone())?, &between)?;
            commands.copy(&between, &to.slice(range)?)?;
            self.submit_transfer(&commands)?;
        }
        Ok(())
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// The device's fault; `OutOfMemory` for staging.
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

    /// Writes through staging to an aligned range; `data` may end before it, where the rest is nobody's.
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
            // While one chunk is on its way the next is filled, but no third.
            self.api().wait(before)?;
            (start, before) = (end, submission);
        }
        Ok(())
    }

    /// Records a write through staging that is filled now.
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

    /// Writes a part of one word through staging: reads the word, changes it and writes it back, one thread at a time.
    fn write_part_of_word(&self, offset: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let block = self.allocation.block();
        let _edges = block.word_edges.lock();
        let alignment = self.api().properties().copy_alignment;
        let skip = (offset % alignment) as usize;
        let word = Self { allocation: self.allocation.clone(), offset: offset - offset % alignment, bytes: alignment };
        let mut bytes = word.read()?;
        bytes[skip..skip + data.len()].copy_from_slice(data);
        word.write_staged(&bytes)
    }

    /// A buffer for a transfer of `bytes` bytes, or for a part of it: at most [`STAGING_BYTES`], less where memory is short.
    fn staging(&self, bytes: u64, usage: Usage) -> Result<Self> {
        let mut size = bytes.min(STAGING_BYTES);
        loop {
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

    /// The smallest aligned range around the buffer. Blocks are multiples of every alignment, so it is inside.
    fn grow_to_alignment(&self) -> Self {
        let alignment = self.api().properties().copy_alignment;
        let offset = self.offset - self.offset % alignment;
        let end = (self.offset + self.bytes).next_multiple_of(alignment);
        Self { allocation: self.allocation.clone(), offset, bytes: end - offset }
    }

    /// The words that can be overwritten whole: those inside the buffer, and the last of the allocation, padding included.
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
    error!(Internal, "device expected to map the memory, found that it did not and reported success")
}

/// A read that was begun: await it, or [`wait`](Self::wait) for it.
#[must_use = "a read does nothing until it is awaited or waited for"]
pub struct PendingRead<T> {
    buffer: Buffer,
    /// The piece that is on its way: what the host can read, and where its bytes are in that.
    source: Buffer,
    piece: Range<usize>,
    submission: u64,
    /// What was read so far; `None` once the read has ended.
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

    /// Blocks until the bytes are there.
    ///
    /// # Errors
    /// The device's fault.
    pub fn wait(mut self) -> Result<Vec<T>> {
        loop {
            self.source.api().wait(self.submission)?;
            if let Some(data) = self.step()? {
                return Ok(data);
            }
        }
    }

    /// Copies the next piece to staging that the host can read.
    fn download(&mut self) -> Result<()> {
        // The piece that was read goes first: one staging buffer at a time.
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

    /// Takes the piece that has arrived and begins the next; the data once all is there. Serves blocking and async reads.
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
        self.source.api().fault().is_some() || self.source.api().completed() >= self.submission
    }
}

impl<T: Pod> Future for PendingRead<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if !self.is_done() {
                self.source.api().notify(self.submission, context.waker().clone());
                // The end may have come before the waker was known.
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

/// The elements are owned, so a read may move between polls.
impl<T> Unpin for PendingRead<T> {}
