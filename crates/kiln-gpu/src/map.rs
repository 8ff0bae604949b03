//! Host access to blocks: mapped if wgpu can map the buffer, otherwise through a temporary staging buffer.

use crate::block::{Block, HostLock};
use crate::encode::{self, ResolvedCommand};
use crate::scope::{catch, convert};
use crate::timeline::Timeline;
use kiln_device::Usage;
use kiln_ir::{Error, ErrorKind, Result, error};
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The time to wait for a callback that another thread may be running, before polling again.
const CALLBACK_TIMEOUT: Duration = Duration::from_millis(1);

/// Calls `read` with the bytes of `range`.
pub(crate) fn read(timeline: &Timeline, block: &Block, range: Range<u64>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
    timeline.fault.check()?;
    if range.is_empty() {
        read(&[]);
        return Ok(());
    }
    match block.usage {
        Usage::Shared | Usage::Download => map_read(timeline, block, range, read),
        // wgpu maps an upload buffer only for writing. Its memory can be read nevertheless; see `map_write`.
        Usage::Upload => map_write(timeline, block, range, &mut |bytes| read(bytes)),
        _ => {
            let (copy, range) = download(timeline, block, &range)?;
            map_read(timeline, &copy, range, read)
        }
    }
}

/// Calls `write` with the bytes of `range`. Bytes that `write` leaves alone keep their value.
pub(crate) fn write(
    timeline: &Timeline,
    block: &Block,
    range: Range<u64>,
    write: &mut dyn FnMut(&mut [u8]),
) -> Result<()> {
    timeline.fault.check()?;
    if range.is_empty() {
        write(&mut []);
        return Ok(());
    }
    match block.usage {
        Usage::Shared | Usage::Upload => map_write(timeline, block, range, write),
        // wgpu maps a download buffer only for reading, and cannot map a storage buffer.
        _ => {
            // Read, modify, write: copies move whole words, and neither the neighbours in them nor the bytes that
            // `write` skips may change.
            let words = whole_words(&range, wgpu::COPY_BUFFER_ALIGNMENT);
            let mut bytes = Vec::new();
            self::read(timeline, block, words.clone(), &mut |old| bytes.extend_from_slice(old))?;
            write(&mut bytes[offsets_within(&range, &words)]);
            upload(timeline, &bytes, block, words.start)
        }
    }
}

fn map_read(timeline: &Timeline, block: &Block, range: Range<u64>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mapping = Mapping::new(timeline, block, &range, wgpu::MapMode::Read)?;
    let view = block.buffer.get_mapped_range(mapping.words.clone()).map_err(|error| map_range_error(error, &range))?;
    read(&view[offsets_within(&range, &mapping.words)]);
    // The view must be dropped before the buffer is unmapped.
    drop(view);
    mapping.finish()
}

fn map_write(timeline: &Timeline, block: &Block, range: Range<u64>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
    let mapping = Mapping::new(timeline, block, &range, wgpu::MapMode::Write)?;
    let mut view =
        block.buffer.get_mapped_range_mut(mapping.words.clone()).map_err(|error| map_range_error(error, &range))?;
    let mut bytes = view.slice(offsets_within(&range, &mapping.words));
    // SAFETY: the pointer is valid for the lifetime of the view, which outlives the call and is exclusive. wgpu calls
    // the memory write-only because of browsers; on Vulkan, Metal and DX12 it is host-visible memory, which can be
    // read, and wgpu has zeroed the bytes that were never written. Kiln builds with no other backend.
    write(unsafe { bytes.as_raw_ptr().as_mut() });
    drop(view);
    mapping.finish()
}

/// A mapped buffer. It is unmapped on drop, so also if the user's closure panics.
struct Mapping<'a> {
    timeline: &'a Timeline,
    block: &'a Block,
    lock: HostLock<'a>,
    /// The mapped range: the requested range, rounded outwards to whole words.
    words: Range<u64>,
    finished: bool,
}

impl<'a> Mapping<'a> {
    fn new(timeline: &'a Timeline, block: &'a Block, range: &Range<u64>, mode: wgpu::MapMode) -> Result<Self> {
        let lock = block.lock()?;
        // With the lock held, so that no later submission can use the buffer.
        timeline.wait(block.last_submission())?;
        lock.set_mapped(true);
        // From here on, dropping `mapping` unmaps the buffer and clears the flag, also on errors.
        let mapping = Self { timeline, block, lock, words: whole_words(range, wgpu::MAP_ALIGNMENT), finished: false };
        let (done, receiver) = mpsc::sync_channel(1);
        let ((), error) = catch(&timeline.device, || {
            block.buffer.map_async(mode, mapping.words.clone(), move |result| {
                // The receiver is gone if the device was lost first.
                let _ = done.send(result);
            });
        });
        // A refused map is reported twice: by the error scope with its reason, by the callback without. A device loss
        // explains more than both.
        match (error, mapping.wait(&receiver)) {
            (_, Ok(())) => Ok(mapping),
            (Some(error), Err(_)) if timeline.fault.get().is_none() => Err(convert(error, "map a buffer")),
            (_, Err(error)) => Err(error),
        }
    }

    /// Waits until wgpu has mapped the buffer. The callback runs on whichever thread polls first.
    fn wait(&self, receiver: &Receiver<Result<(), wgpu::BufferAsyncError>>) -> Result<()> {
        loop {
            self.timeline.poll(wgpu::PollType::Poll)?;
            match receiver.recv_timeout(CALLBACK_TIMEOUT) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => {
                    // A lost device also fails a map. Draining reports the loss, which is the better error.
                    self.timeline.drain()?;
                    let message = format!("expected to map {} bytes, found that the driver refused", self.len_bytes());
                    return Err(Error::new(ErrorKind::Internal, message).with_source(error));
                }
                // Work that was submitted directly through wgpu still uses the buffer.
                Err(RecvTimeoutError::Timeout) => self.timeline.fault.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.timeline.fault.set_lost("the driver dropped a request to map a buffer"));
                }
            }
        }
    }

    /// Unmaps the buffer and returns an error if the written bytes did not arrive.
    fn finish(mut self) -> Result<()> {
        self.finished = true;
        let error = self.unmap();
        self.timeline.fault.check()?;
        error.map_or(Ok(()), |error| Err(convert(error, "unmap a buffer")))
    }

    fn unmap(&self) -> Option<wgpu::Error> {
        self.lock.set_mapped(false);
        catch(&self.timeline.device, || self.block.buffer.unmap()).1
    }

    fn len_bytes(&self) -> u64 {
        self.words.end - self.words.start
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // After a failed map, wgpu reports here that nothing is mapped; the failure itself was already returned.
            self.unmap();
        }
    }
}

/// Copies the words around `range` into a mappable buffer. Returns the buffer and the position of the range in it.
fn download(timeline: &Timeline, block: &Block, range: &Range<u64>) -> Result<(Block, Range<u64>)> {
    let words = whole_words(range, wgpu::COPY_BUFFER_ALIGNMENT);
    let bytes = words.end - words.start;
    let copy = Block::create(timeline, bytes, Usage::Download)?;
    let command = ResolvedCommand::Copy { from: (block.clone(), words.start), to: (copy.clone(), 0), bytes };
    let submission = encode::run(timeline, &[command])?;
    timeline.wait(submission)?;
    Ok((copy, range.start - words.start..range.end - words.start))
}

/// Copies whole words into a block at `offset` and waits for the copy.
fn upload(timeline: &Timeline, bytes: &[u8], block: &Block, offset: u64) -> Result<()> {
    let len_bytes = bytes.len() as u64;
    let staging = Block::create(timeline, len_bytes, Usage::Upload)?;
    map_write(timeline, &staging, 0..len_bytes, &mut |target| target.copy_from_slice(bytes))?;
    let command = ResolvedCommand::Copy { from: (staging, 0), to: (block.clone(), offset), bytes: len_bytes };
    let submission = encode::run(timeline, &[command])?;
    timeline.wait(submission)
}

/// Rounds a range outwards: its start to `start_alignment`, its end to a whole word. Blocks are whole words long.
fn whole_words(range: &Range<u64>, start_alignment: u64) -> Range<u64> {
    range.start / start_alignment * start_alignment..range.end.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT)
}

/// Returns the position of `range` within `outer`.
fn offsets_within(range: &Range<u64>, outer: &Range<u64>) -> Range<usize> {
    let index = |offset: u64| usize::try_from(offset - outer.start).expect("a mapped range fits the address space");
    index(range.start)..index(range.end)
}

fn map_range_error(error: wgpu::MapRangeError, range: &Range<u64>) -> Error {
    error!(Internal, "expected to access the mapped bytes {range:?}, found that the driver refused").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_rounded_to_whole_words() {
        for start in 0..20 {
            for end in start + 1..40 {
                let words = whole_words(&(start..end), wgpu::MAP_ALIGNMENT);
                assert!(words.start <= start && end <= words.end && start - words.start < 8 && words.end - end < 4);
                assert_eq!((words.start % 8, words.end % 4), (0, 0));
                let place = offsets_within(&(start..end), &words);
                assert_eq!((place.start as u64 + words.start, place.end as u64 + words.start), (start, end));
            }
        }
        assert_eq!(whole_words(&(6..7), wgpu::COPY_BUFFER_ALIGNMENT), 4..8);
    }
}
