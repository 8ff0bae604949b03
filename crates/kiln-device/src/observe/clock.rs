//! Where the host's clock is in Unix time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One moment on both clocks. Differences are those of the monotonic one: a clock that is set meanwhile moves nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnixClock {
    base: Instant,
    base_ns: u64,
}

impl UnixClock {
    pub(super) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { base: Instant::now(), base_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// The moment in nanoseconds of Unix time.
    pub(super) fn ns(&self, at: Instant) -> u64 {
        let nanos = |from: Instant, to: Instant| u64::try_from((to - from).as_nanos()).unwrap_or(u64::MAX);
        match at.checked_duration_since(self.base) {
            Some(_) => self.base_ns.saturating_add(nanos(self.base, at)),
            None => self.base_ns.saturating_sub(nanos(at, self.base)),
        }
    }
}

impl Default for UnixClock {
    fn default() -> Self {
        Self::new()
    }
}
