//! Trimming of the heap, which holds the pool's block descriptions, so that it also returns memory to the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Minimum number of freed blocks that is worth a trim.
const MIN_FREED_BLOCKS: u64 = 64;

/// Tracks when blocks were freed whose descriptions the heap may still hold.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Total number of freed blocks; each block increments it.
    freed: Arc<AtomicU64>,
    /// The counter at the last [`tidy`](Self::tidy), and at the last trim.
    seen: AtomicU64,
    trimmed: AtomicU64,
}

impl Heap {
    /// Returns the counter that a block increments when it is freed.
    pub(crate) fn freed(&self) -> &Arc<AtomicU64> {
        &self.freed
    }

    /// Trims the heap if many blocks were freed, but none since the last call: once after a burst, not during it.
    pub(crate) fn tidy(&self) {
        if self.is_due() {
            trim();
        }
    }

    fn is_due(&self) -> bool {
        // Relaxed: the counters are a heuristic and guard no data.
        let freed = self.freed.load(Ordering::Relaxed);
        let is_quiet = self.seen.swap(freed, Ordering::Relaxed) == freed;
        let is_due = is_quiet && freed.saturating_sub(self.trimmed.load(Ordering::Relaxed)) >= MIN_FREED_BLOCKS;
        if is_due {
            self.trimmed.store(freed, Ordering::Relaxed);
        }
        is_due
    }
}

/// Returns free pages within the heap to the system, if the allocator retains them.
///
/// Otherwise glibc returns only the top of a heap, and one small description that outlives a burst of blocks retains
/// everything below: 10 MiB after 2 GiB of small buffers. Has no effect with other allocators.
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: a function of the C library, which Rust programs link here; it is thread-safe.
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
