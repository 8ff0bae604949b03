//! The heap, where the pool describes its blocks: it goes back to the system as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fewer freed blocks leave less in the heap than a look at it is worth.
const MIN_FREED_BLOCKS: u64 = 64;

/// Knows when blocks were freed whose descriptions the heap may still hold.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Blocks that were freed, ever; each counts itself.
    freed: Arc<AtomicU64>,
    /// That number at the last [`tidy`](Self::tidy), and when the heap was trimmed last.
    seen: AtomicU64,
    trimmed: AtomicU64,
}

impl Heap {
    /// Where a block counts itself when it is freed.
    pub(crate) fn freed(&self) -> &Arc<AtomicU64> {
        &self.freed
    }

    /// Trims the heap, where many blocks were freed and none since the last call: once after a burst, not during one.
    pub(crate) fn tidy(&self) {
        if self.is_due() {
            trim();
        }
    }

    fn is_due(&self) -> bool {
        let freed = self.freed.load(Ordering::Relaxed);
        let is_quiet = self.seen.swap(freed, Ordering::Relaxed) == freed;
        let is_due = is_quiet && freed - self.trimmed.load(Ordering::Relaxed) >= MIN_FREED_BLOCKS;
        if is_due {
            self.trimmed.store(freed, Ordering::Relaxed);
        }
        is_due
    }
}

/// Gives free pages inside of the heap back to the system, where the system's allocator keeps them.
///
/// glibc by itself gives back the end of a heap only, and one small description that outlives a burst of blocks holds
/// everything below: 10 MiB after 2 GiB of small buffers. Programs with another allocator get nothing from this.
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: a function of the C library that Rust programs link to here; any thread may call it at any time.
        unsafe { malloc_trim(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_trimmed_once_when_a_burst_has_ended() {
        let heap = Heap::default();
        let free = |blocks| heap.freed().fetch_add(blocks, Ordering::Relaxed);
        assert!(!heap.is_due(), "nothing was freed");
        free(MIN_FREED_BLOCKS);
        assert!(!heap.is_due(), "more may be freed right now");
        free(1);
        assert!(!heap.is_due(), "more was freed");
        assert!(heap.is_due(), "quiet");
        assert!(!heap.is_due(), "done");
        free(MIN_FREED_BLOCKS - 1);
        assert!(!heap.is_due() && !heap.is_due(), "too little");
        free(1);
        assert!(!heap.is_due() && heap.is_due(), "little by little it is enough");
    }
}
