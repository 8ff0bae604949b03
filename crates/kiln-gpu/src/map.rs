//! Host access to blocks: in place where wgpu can map the buffer, through temporary staging elsewhere.

use crate::block::{Block, HostLock};
use crate::encode::{self, ResolvedCommand};
use crate::scope::{catch, convert};
use crate::timeline::Timeline;
use kiln_device::Usage;
use kiln_ir::{Error, ErrorKind, Result, error};
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// How long to wait for a callback that another thread is about to run before polling again.
const CALLBACK_SLICE: Duration = Duration::from_millis(1);

/// Calls `read` with the bytes of `range`.
pub(crate) fn read(timeline: &Timeline, block: &Block, range: Range<u64>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
    timeline.fault.check()?;
    if range.is_empty() {
        read(&[]);
        return Ok(());
    }
    match block.usage {
        Usage::Shared | Usage::Download => map_read(timeline, block, range, read),
        Usage::Upload => map_write(timeline, block, range, &mut |bytes| read(bytes)),
        _ => {
            let (copy, inside) = download(timeline, block, &range)?;
            map_read(timeline, &copy, inside, read)
        }
    }
}

/// Calls `write` with the bytes of `range`, which keep what is not overwritten.
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
        // wgpu maps a download buffer for reading only, a storage buffer not at all.
        _ => {
            let words = whole_words(&range, wgpu::COPY_BUFFER_ALIGNMENT);
            let mut bytes = Vec::new();
            self::read(timeline, block, words.clone(), &mut |old| bytes.extend_from_slice(old))?;
            write(&mut bytes[inside(&range, &words)]);
            upload(timeline, &bytes, block, words.start)
        }
    }
}

fn map_read(timeline: &Timeline, block: &Block, range: Range<u64>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mapping = Mapping::new(timeline, block, &range, wgpu::MapMode::Read)?;
    let view = block.buffer.get_mapped_range(mapping.words.clone()).map_err(|error| refused(error, &range))?;
    read(&view[inside(&range, &mapping.words)]);
    drop(view);
    mapping.finish()
}

fn map_write(timeline: &Timeline, block: &Block, range: Range<u64>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
    let mapping = Mapping::new(timeline, block, &range, wgpu::MapMode::Write)?;
    let mut view = block.buffer.get_mapped_range_mut(mapping.words.clone()).map_err(|error| refused(error, &range))?;
    let mut bytes = view.slice(inside(&range, &mapping.words));
    // SAFETY: the pointer is valid for the view, which outlives the call and allows nobody else. wgpu hands it out for
    // writing only because a browser may; on Vulkan, Metal and DX12 it points to host-visible memory, which can be read,
    // and wgpu has written zeros where nobody wrote before. Kiln builds with no other backend.
    write(unsafe { bytes.as_raw_ptr().as_mut() });
    drop(view);
    mapping.finish()
}

/// A buffer that is mapped; unmapped on drop, also where the user's closure panics.
struct Mapping<'a> {
    timeline: &'a Timeline,
    block: &'a Block,
    lock: HostLock<'a>,
    /// What is mapped: the words around the range that was asked for.
    words: Range<u64>,
    finished: bool,
}

impl<'a> Mapping<'a> {
    fn new(timeline: &'a Timeline, block: &'a Block, range: &Range<u64>, mode: wgpu::MapMode) -> Result<Self> {
        let lock = block.lock()?;
        timeline.wait(block.last_submission())?;
        lock.set_mapped(true);
        let mapping = Self { timeline, block, lock, words: whole_words(range, wgpu::MAP_ALIGNMENT), finished: false };
        let (done, receiver) = mpsc::sync_channel(1);
        let ((), error) = catch(&timeline.device, || {
            block.buffer.map_async(mode, mapping.words.clone(), move |result| {
                // The receiver is gone where the device was lost first.
                let _ = done.send(result);
            });
        });
        match (error, mapping.wait(&receiver)) {
            (_, Ok(())) => Ok(mapping),
            (Some(error), Err(_)) if timeline.fault.get().is_none() => Err(convert(error, "map a buffer")),
            (_, Err(error)) => Err(error),
        }
    }

    /// Waits until wgpu has mapped the buffer. Its callback runs on whichever thread polls first.
    fn wait(&self, receiver: &Receiver<Result<(), wgpu::BufferAsyncError>>) -> Result<()> {
        loop {
            self.timeline.poll(wgpu::PollType::Poll)?;
            match receiver.recv_timeout(CALLBACK_SLICE) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => {
                    self.timeline.drain()?;
                    let message = format!("expected to map {} bytes, found the driver to refuse", self.len_bytes());
                    return Err(Error::new(ErrorKind::Internal, message).with_source(error));
                }
                // Work that was submitted through wgpu itself is still using the buffer.
                Err(RecvTimeoutError::Timeout) => self.timeline.fault.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.timeline.fault.lose("the driver dropped a request to map a buffer"));
                }
            }
        }
    }

    /// Unmaps, and says whether what was written has arrived.
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
            // After a failed map wgpu reports that nothing is mapped; the failure itself is already told.
            self.unmap();
        }
    }
}

/// Copies the words around `range` to a buffer that can be mapped. Returns it, and where the range lies in it.
fn download(timeline: &Timeline, block: &Block, range: &Range<u64>) -> Result<(Block, Range<u64>)> {
    let words = whole_words(range, wgpu::COPY_BUFFER_ALIGNMENT);
    let bytes = words.end - words.start;
    let copy = Block::create(timeline, bytes, Usage::Download)?;
    let command = ResolvedCommand::Copy { from: (block.clone(), words.start), to: (copy.clone(), 0), bytes };
    let submission = encode::run(timeline, &[command])?;
    timeline.wait(submission)?;
    Ok((copy, range.start - words.start..range.end - words.start))
}

/// Copies whole words into a block at `offset`, and waits until they are there.
fn upload(timeline: &Timeline, bytes: &[u8], block: &Block, offset: u64) -> Result<()> {
    let len_bytes = bytes.len() as u64;
    let staging = Block::create(timeline, len_bytes, Usage::Upload)?;
    map_write(timeline, &staging, 0..len_bytes, &mut |target| target.copy_from_slice(bytes))?;
    let command = ResolvedCommand::Copy { from: (staging, 0), to: (block.clone(), offset), bytes: len_bytes };
    let submission = encode::run(timeline, &[command])?;
    timeline.wait(submission)
}

/// The range with its start at a multiple of `start_alignment` and its end at that of a word. Blocks end at a word.
fn whole_words(range: &Range<u64>, start_alignment: u64) -> Range<u64> {
    range.start / start_alignment * start_alignment..range.end.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT)
}

/// Where `range` lies in the bytes of `outer`.
fn inside(range: &Range<u64>, outer: &Range<u64>) -> Range<usize> {
    let index = |offset: u64| usize::try_from(offset - outer.start).expect("a mapped range fits the address space");
    index(range.start)..index(range.end)
}

fn refused(error: wgpu::MapRangeError, range: &Range<u64>) -> Error {
    error!(Internal, "expected to see the mapped bytes {range:?}, found the driver to refuse").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_lies_in_whole_words() {
        for start in 0..20 {
            for end in start + 1..40 {
                let words = whole_words(&(start..end), wgpu::MAP_ALIGNMENT);
                assert!(words.start <= start && end <= words.end && start - words.start < 8 && words.end - end < 4);
                assert_eq!((words.start % 8, words.end % 4), (0, 0));
                let place = inside(&(start..end), &words);
                assert_eq!((place.start as u64 + words.start, place.end as u64 + words.start), (start, end));
            }
        }
        assert_eq!(whole_words(&(6..7), wgpu::COPY_BUFFER_ALIGNMENT), 4..8);
    }
}
