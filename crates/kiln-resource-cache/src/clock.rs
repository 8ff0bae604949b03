//! Clocks, which are passed in so that tests can control the time.

use crate::sync::{AtomicU64, Ordering};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A monotonic clock. Implement it to use another time source; tests use [`MockClock`].
///
/// See [`MockClock`] for an example.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since a fixed origin. Never goes backwards.
    fn now(&self) -> Duration;
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Duration {
        (**self).now()
    }
}

/// A clock that only moves when it is advanced. Clones share one time.
///
/// ```
/// use kiln_resource_cache::{Cache, EvictionPolicy, MockClock};
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
/// # Ok::<(), kiln_resource_cache::CacheError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MockClock(Arc<AtomicU64>);

impl MockClock {
    /// Creates a clock at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the time of all clones of this clock.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(nanos(by), Ordering::Relaxed);
    }
}

impl Clock for MockClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The time source of a cache. An enum, because a virtual call would be measurable on the hit path.
#[derive(Clone, Debug)]
pub(crate) enum TimeSource {
    System(SystemClock),
    Custom(Arc<dyn Clock>),
}

impl TimeSource {
    pub(crate) fn system() -> Self {
        Self::System(SystemClock::new())
    }

    /// Returns precise nanoseconds. Takes about 40 ns on a virtual machine.
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::System(clock) => nanos(clock.origin.elapsed()),
            Self::Custom(clock) => nanos(clock.now()),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SystemClock {
    origin: Instant,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    coarse_origin: coarsetime::Instant,
}

impl SystemClock {
    fn new() -> Self {
        Self {
            origin: Instant::now(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            coarse_origin: coarsetime::Instant::now_without_cache_update(),
        }
    }

    /// Returns nanoseconds that are at most one scheduler tick (1 to 10 ms) old, several times cheaper to read.
    ///
    /// Only on Linux: the coarse clocks of other systems advance while the machine sleeps, and drift from the precise
    /// clock, which is used there instead.
    fn coarse_now(&self) -> u64 {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return coarsetime::Instant::now_without_cache_update().duration_since(self.coarse_origin).as_nanos();
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        nanos(self.origin.elapsed())
    }
}

/// A tick is 2^22 ns, about 4 ms.
const TICK_BITS: u32 = 22;
/// A run of hits is dense if a tick has at least this many clock readings.
const DENSE_READINGS: u32 = 64;
/// The minimum number of hits of a dense run that share a clock reading. The average is 64.
const SHARED_BY_MIN: u32 = 32;

/// A clock for hits that record the time of use but never decide on expiry.
///
/// Even the coarse clock costs a third of a hit, so the hits of a dense run share a reading: [`share`](Self::share)
/// returns true if this hit need not read the clock. When the run ends, later hits still use up the remaining shares of
/// the last reading.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SampledClock {
    shares_left: u32,
    shares_granted: u32,
    readings_in_tick: u32,
    /// State of the random number generator; see [`Self::shares`].
    random: u32,
    read_at: u64,
}

impl SampledClock {
    /// Returns whether this hit may share the last reading, and counts it.
    #[inline]
    pub(crate) fn share(&mut self) -> bool {
        if self.shares_left == 0 {
            return false;
        }
        self.shares_left -= 1;
        true
    }

    /// Returns how many hits shared the last reading.
    pub(crate) fn shared(&self) -> u64 {
        u64::from(self.shares_granted - self.shares_left)
    }

    /// Returns how many hits shared the last reading, and ends its sharing.
    pub(crate) fn take_shared(&mut self) -> u64 {
        let shared = self.shared();
        (self.shares_left, self.shares_granted) = (0, 0);
        shared
    }

    /// Reads the clock. In a dense run, the following hits may share the reading.
    pub(crate) fn read(&mut self, source: &TimeSource, may_be_shared: bool) -> u64 {
        // Custom clocks are read every time, so that tests see exact times.
        let TimeSource::System(clock) = source else {
            return source.now();
        };
        let now = clock.coarse_now();
        let same_tick = now >> TICK_BITS == self.read_at >> TICK_BITS;
        self.readings_in_tick = if same_tick { self.readings_in_tick.saturating_add(1) } else { 0 };
        self.read_at = now;
        if may_be_shared && self.readings_in_tick >= DENSE_READINGS {
            self.shares_granted = self.shares();
            self.shares_left = self.shares_granted;
        }
        now
    }

    /// Returns how many hits may share a reading. Random, because a loop over the entries with a stride that divides a
    /// fixed number would always record the same few entries.
    fn shares(&mut self) -> u32 {
        // A linear congruential generator; its high bits are random enough here.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // The top 6 bits: 0 to 63. With the hit that reads the clock, 32 to 95 hits share a reading, 63.5 on average.
        SHARED_BY_MIN - 1 + (self.random >> 26)
    }
}

/// Converts a duration to nanoseconds, saturating after 584 years.
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
        let (coarse, precise) = (SampledClock::default().read(&source, true), source.now());
        assert!(coarse.abs_diff(precise) < nanos(Duration::from_millis(30)), "{coarse} vs {precise}");
    }

    /// Returns the number of clock readings for 10,000 consecutive hits, and the number of hits that they stand for.
    fn readings(source: &TimeSource, may_be_shared: bool) -> (u64, u64) {
        let mut clock = SampledClock::default();
        let (mut readings, mut shared) = (0, 0);
        for _ in 0..10_000 {
            if !clock.share() {
                shared += clock.take_shared();
                readings += 1;
                clock.read(source, may_be_shared);
            }
        }
        (readings, readings + shared + clock.shared())
    }

    #[test]
    fn only_dense_runs_share_readings_and_each_hit_is_counted_once() {
        let (few, hits) = readings(&TimeSource::system(), true);
        assert!(few < 5_000, "{few} readings");
        assert_eq!(hits, 10_000);
        assert_eq!(readings(&TimeSource::system(), false), (10_000, 10_000));
        assert_eq!(readings(&TimeSource::Custom(Arc::new(MockClock::new())), true), (10_000, 10_000));
    }
}
