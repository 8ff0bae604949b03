//! Converts host time to Unix time.

use super::recorder::nanos;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One moment on the monotonic and the Unix clock. Later times use the monotonic clock, so that setting the system
/// clock has no effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnixClock {
    base: Instant,
    base_ns: u64,
}

impl UnixClock {
    /// Converts a moment to nanoseconds of Unix time.
    pub(super) fn ns(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.base) {
            Some(since) => self.base_ns.saturating_add(nanos(since)),
            None => self.base_ns.saturating_sub(nanos(self.base - at)),
        }
    }
}

impl Default for UnixClock {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { base: Instant::now(), base_ns: nanos(since) }
    }
}
