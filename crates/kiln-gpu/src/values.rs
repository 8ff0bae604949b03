//! Values of dispatches: all of a submission in one page, each dispatch with its offsets into it.

use crate::scope::buffer;
use crate::timeline::Timeline;
use kiln_device::Dispatch;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const MIN_PAGE_BYTES: u64 = 16 << 10;
/// The most pages that are kept while no submission uses them.
const MAX_SPARE_PAGES: usize = 8;
/// The largest page that is kept.
const MAX_SPARE_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Those that are not being filled. The most recently used last.
    spare: Mutex<Vec<Page>>,
    next_id: AtomicU64,
}

/// A uniform buffer that holds the values of one submission.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) id: u64,
    pub(crate) buffer: wgpu::Buffer,
    /// The newest submission that reads it.
    submission: u64,
}

/// The values of a submission's dispatches, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Values {
    bytes: Vec<u8>,
}

impl Values {
    /// Adds the values of a dispatch and returns their offsets.
    pub(crate) fn add(&mut self, dispatch: &Dispatch, alignment: u32) -> Vec<u32> {
        let mut offsets = Vec::with_capacity(dispatch.values().len());
        for value in dispatch.values() {
            self.bytes.resize(self.bytes.len().next_multiple_of(alignment as usize), 0);
            // A submission brings at most 64 MiB from the host, or one dispatch.
            offsets.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
            self.bytes.extend_from_slice(&value.bytes);
        }
        offsets
    }
}

impl Pages {
    /// A page that holds the values; `None` where there are none.
    pub(crate) fn fill(&self, timeline: &Timeline, values: &Values) -> Option<Page> {
        if values.bytes.is_empty() {
            return None;
        }
        // Room behind the last value: a binding may be longer than what is bound there.
        let needed = values.bytes.len() as u64 + 256;
        let page = self.take(timeline, needed).unwrap_or_else(|| self.create(timeline, needed));
        let mut bytes = std::borrow::Cow::Borrowed(&values.bytes);
        if !bytes.len().is_multiple_of(4) {
            bytes.to_mut().resize(values.bytes.len().next_multiple_of(4), 0);
        }
        // Lands before everything in the next submission. No submission that is under way reads the page.
        timeline.queue.write_buffer(&page.buffer, 0, &bytes);
        Some(page)
    }

    /// Gives a page back that a submission reads.
    pub(crate) fn put_back(&self, mut page: Page, submission: u64) {
        if page.buffer.size() > MAX_SPARE_BYTES {
            return;
        }
        page.submission = submission;
        let mut spare = self.spare.lock();
        if spare.len() >= MAX_SPARE_PAGES {
            spare.remove(0);
        }
        spare.push(page);
    }

    fn take(&self, timeline: &Timeline, needed: u64) -> Option<Page> {
        let completed = timeline.completed();
        let mut spare = self.spare.lock();
        let fits = |page: &Page| page.submission <= completed && page.buffer.size() >= needed;
        let position = spare.iter().rposition(fits)?;
        Some(spare.remove(position))
    }

    fn create(&self, timeline: &Timeline, needed: u64) -> Page {
        let size = needed.next_power_of_two().max(MIN_PAGE_BYTES);
        let buffer = buffer(&timeline.device, size, wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST);
        Page { id: self.next_id.fetch_add(1, Ordering::Relaxed), buffer, submission: 0 }
    }
}
