//! What a pool tells whoever watches its device.

use super::core::Core;
use super::reserve::Released;
use crate::memory::RawMemory;
use crate::observe::{CleanupReason, Happening, nanos, span};
use std::time::Instant;

impl<M: RawMemory + ?Sized> Core<M> {
    /// Tells watchers of the memory what happened. Only for slow paths: asking for the recorder is a call.
    pub(crate) fn tell(&self, what: impl FnOnce() -> Happening) {
        if let Some(recorder) = self.memory.recorder() {
            recorder.tell(what);
        }
    }

    /// Lets go of free blocks, and tells what went.
    pub(crate) fn told_cleanup(&self, reason: CleanupReason, clean: impl FnOnce() -> Released) -> Released {
        let recorder = self.memory.recorder();
        let began = recorder.filter(|recorder| recorder.is_watched()).map(|recorder| (recorder, Instant::now()));
        let _span = span(recorder, |device| tracing::debug_span!(target: "kiln", "pool_cleanup", device, ?reason));
        let released = clean();
        if let Some((recorder, began)) = began.filter(|_| released != Released::default()) {
            recorder.tell(|| Happening::PoolCleanup {
                reason,
                blocks: released.blocks,
                bytes: released.bytes,
                start_ns: recorder.unix_ns(began),
                duration_ns: nanos(began.elapsed()),
            });
        }
        released
    }
}
