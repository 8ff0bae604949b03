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
}

/// Reads in one tick of the coarse clock (1 to 16 ms) from which a run of hits counts as dense.
const DENSE_READS: u32 = 64;
/// Hits of a dense run that share one reading of the clock.
const SHARED_READING: u32 = 8;

/// The time for hits that need it only to say later how long an entry has been idle, never to decide that it expired.
///
/// Reads the operating system's coarse clock, which lags the precise one by at most a tick. Even that costs a third of
/// a hit, so in a dense run only one hit in eight reads it. When such a run ends, up to seven later hits may still
/// carry its time.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct UseClock {
    unread: u32,
    reads_in_tick: u32,
    read_at: u64,
}

impl UseClock {
    #[inline]
    pub(crate) fn now(&mut self, source: &TimeSource) -> u64 {
        if self.unread > 0 {
            self.unread -= 1;
            return self.read_at;
        }
        self.read(source)
    }

    #[inline(never)]
    fn read(&mut self, source: &TimeSource) -> u64 {
        let TimeSource::System { coarse_origin, .. } = source else {
            return source.now();
        };
        let now = coarsetime::Instant::now_without_cache_update().duration_since(*coarse_origin).as_nanos();
        self.reads_in_tick = if now == self.read_at { self.reads_in_tick.saturating_add(1) } else { 0 };
        if self.reads_in_tick >= DENSE_READS {
            self.unread = SHARED_READING - 1;
        }
        self.read_at = now;
        now
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
        let (coarse, precise) = (UseClock::default().now(&source), source.now());
        assert!(coarse.abs_diff(precise) < nanos(Duration::from_millis(30)), "{coarse} vs {precise}");
    }

    #[test]
    fn only_a_dense_run_shares_readings_and_a_custom_clock_never_does() {
        let source = TimeSource::system();
        let mut clock = UseClock::default();
        for _ in 0..10_000 {
            clock.now(&source);
        }
        assert!(clock.reads_in_tick < 10_000 / 4, "readings are shared: {}", clock.reads_in_tick);
        for _ in 0..SHARED_READING {
            clock.now(&source);
        }
        std::thread::sleep(Duration::from_millis(40));
        for _ in 0..SHARED_READING {
            clock.now(&source);
        }
        assert_eq!(clock.unread, 0, "the pause ended the run");
        assert!(clock.now(&source).abs_diff(source.now()) < nanos(Duration::from_millis(30)));

        let mock = MockClock::new();
        let source = TimeSource::Custom(Arc::new(mock.clone()));
        let mut clock = UseClock::default();
        for second in 1..1000 {
            mock.advance(Duration::from_secs(1));
            assert_eq!(clock.now(&source), nanos(Duration::from_secs(second)));
        }
    }
}
