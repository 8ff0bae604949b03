//! Uniform buffers for the values of dispatches.
//!
//! All values of a submission are written to one page; each dispatch binds its own offsets.

use crate::scope::buffer;
use crate::timeline::Timeline;
use kiln_device::Dispatch;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const MIN_PAGE_BYTES: u64 = 16 << 10;
/// The maximum number of unused pages that are kept.
const MAX_SPARE_PAGES: usize = 8;
/// The size of the largest page that is kept, in bytes.
const MAX_SPARE_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Pages that are not being filled, the most recently used last.
    spare: Mutex<Vec<Page>>,
    next_id: AtomicU64,
}

/// A uniform buffer with the values of one submission.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) id: u64,
    pub(crate) buffer: wgpu::Buffer,
    /// The newest submission that reads the page.
    submission: u64,
}

/// The concatenated values of a submission's dispatches.
#[derive(Debug, Default)]
pub(crate) struct Values {
    bytes: Vec<u8>,
}

impl Values {
    /// Appends the values of a dispatch and returns their offsets.
    pub(crate) fn add(&mut self, dispatch: &Dispatch, alignment: u32) -> Vec<u32> {
        let mut offsets = Vec::with_capacity(dispatch.values().len());
        for value in dispatch.values() {
            // Dynamic offsets must be multiples of the adapter's alignment.
            self.bytes.resize(self.bytes.len().next_multiple_of(alignment as usize), 0);
            // A submission carries at most 64 MiB of host data, or one dispatch, so the offset fits.
            offsets.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
            self.bytes.extend_from_slice(&value.bytes);
        }
        offsets
    }
}

impl Pages {
    /// Returns a page that contains the values, or `None` if there are no values.
    pub(crate) fn fill(&self, timeline: &Timeline, values: &Values) -> Option<Page> {
        if values.bytes.is_empty() {
            return None;
        }
        // Padding after the last value, because a binding may extend beyond it.
        let needed = values.bytes.len() as u64 + 256;
        let page = self.take(timeline, needed).unwrap_or_else(|| self.create(timeline, needed));
        let mut bytes = std::borrow::Cow::Borrowed(&values.bytes);
        if !bytes.len().is_multiple_of(4) {
            bytes.to_mut().resize(values.bytes.len().next_multiple_of(4), 0);
        }
        // wgpu performs the write before the commands of the next submission. No submission in flight reads the page.
        timeline.queue.write_buffer(&page.buffer, 0, &bytes);
        Some(page)
    }

    /// Returns a page for reuse after `submission`.
    pub(crate) fn recycle(&self, mut page: Page, submission: u64) {
        // Large pages are rare and would keep memory that is seldom used again.
        if page.buffer.size() > MAX_SPARE_BYTES {
            return;
        }
        page.submission = submission;
        let mut spare = self.spare.lock();
        // The dropped page may still be in flight: wgpu keeps its buffer until the submission is done.
        if spare.len() >= MAX_SPARE_PAGES {
            spare.remove(0);
        }
        spare.push(page);
    }

    fn take(&self, timeline: &Timeline, needed: u64) -> Option<Page> {
        // Queried before the lock is taken, because it may poll the driver.
        let completed = timeline.completed();
        let mut spare = self.spare.lock();
        let fits = |page: &Page| page.submission <= completed && page.buffer.size() >= needed;
        // The most recently used page first, because kernels cache bind groups by page.
        let position = spare.iter().rposition(fits)?;
        Some(spare.remove(position))
    }

    fn create(&self, timeline: &Timeline, needed: u64) -> Page {
        let size = needed.next_power_of_two().max(MIN_PAGE_BYTES);
        let buffer = buffer(&timeline.device, size, wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST);
        Page { id: self.next_id.fetch_add(1, Ordering::Relaxed), buffer, submission: 0 }
    }
}
