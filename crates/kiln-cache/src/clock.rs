//! Time as the caches see it, passed in so that tests own it.

use crate::sync::{AtomicU64, Ordering};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A monotonic clock. Implement it to drive a cache from a clock of your own; tests use [`MockClock`].
pub trait Clock: Send + Sync + 'static {
    /// Time since a fixed origin; never goes backwards.
    fn now(&self) -> Duration;
}

/// A clock that stands still until it is told to move. Clones share one time.
///
/// ```
/// use kiln_cache::{Cache, EvictionPolicy, MockClock};
/// use std::time::Duration;
///
/// let clock = MockClock::new();
/// let cache: Cache<&str, u32> = Cache::builder("plans")
///     .policy(EvictionPolicy::idle_timeout(Duration::from_secs(60)))
///     .clock(clock.clone())
///     .build()?;
/// cache.insert("fft", 1);
/// clock.advance(Duration::from_secs(61));
/// assert!(cache.get(&"fft").is_none());
/// # Ok::<(), kiln_cache::CacheError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MockClock(Arc<AtomicU64>);

impl MockClock {
    /// A clock at time zero.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(0)))
    }

    /// Moves the time forward for every clone of this clock.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(nanos(by), Ordering::Relaxed);
    }
}

impl Default for MockClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MockClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What a cache reads the time from. An enum, because a virtual call would show on the hit path.
#[derive(Clone)]
pub(crate) enum TimeSource {
    System { origin: Instant, coarse_origin: coarsetime::Instant },
    Custom(Arc<dyn Clock>),
}

impl TimeSource {
    pub(crate) fn system() -> Self {
        Self::System { origin: Instant::now(), coarse_origin: coarsetime::Instant::now_without_cache_update() }
    }

    /// Precise nanoseconds, about 40 ns to read on a virtual machine.
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::System { origin, .. } => nanos(origin.elapsed()),
            Self::Custom(clock) => nanos(clock.now()),
        }
    }

    /// Nanoseconds that lag the precise ones by at most one scheduler tick (1 to 16 ms), several times cheaper to read.
    ///
    /// Good enough to say how long an entry has been idle; not to decide that it expired.
    pub(crate) fn coarse_now(&self) -> u64 {
        match self {
            Self::System { coarse_origin, .. } => {
                coarsetime::Instant::now_without_cache_update().duration_since(*coarse_origin).as_nanos()
            }
            Self::Custom(clock) => nanos(clock.now()),
        }
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System { .. } => "System",
            Self::Custom(_) => "Custom",
        })
    }
}

/// Saturates after 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn coarse_time_keeps_up_with_precise_time() {
        let source = TimeSource::system();
        std::thread::sleep(Duration::from_millis(40));
        let (coarse, precise) = (source.coarse_now(), source.now());
        assert!(coarse.abs_diff(precise) < nanos(Duration::from_millis(30)), "{coarse} vs {precise}");
    }
}
