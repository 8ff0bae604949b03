//! The settings of a pool.

use super::strategy::AllocationStrategy;
use kiln_ir::{Error, ErrorKind, Result};
use kiln_resource_cache::Clock;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Settings that can be changed while a pool is in use, with [`Pool::set_config`](super::Pool::set_config).
///
/// See [`PoolOptions`] for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolConfig {
    /// Whether freed blocks are cached. Default: yes.
    pub pooling: bool,
    /// The maximum bytes that the pool may hold from the driver. Default: `None`, the default of the device.
    pub budget_bytes: Option<u64>,
    /// The maximum number of free blocks of a class, unless the class is [adaptive](Self::adaptive) and its recent
    /// demand shows that it needs more. Default: 32.
    pub max_cached_per_class: u32,
    /// The number of free blocks of a class that an ordinary cleanup keeps. Default: 4.
    pub min_kept_per_class: u32,
    /// The interval at which idle blocks are released. A class that was unused for a whole interval releases all free
    /// blocks. Default: 60 s.
    pub maintenance_interval: Duration,
    /// The memory pressure from which the pool cleans up automatically, from 0 to 1. Default: 0.7.
    pub cleanup_pressure: f64,
    /// Whether the limits of classes adapt to the workload, up to [`max_adaptive_cached`](Self::max_adaptive_cached).
    /// Default: yes.
    pub adaptive: bool,
    /// The maximum number of free blocks of a class whose limit adapts to the workload. Default: 16384.
    pub max_adaptive_cached: u32,
    /// The bytes that the pool may hold in addition to the recent peak of bytes in use, as a share of that peak, before
    /// an allocation from the driver displaces free blocks of classes that were not used recently. Default: 0.5.
    pub headroom: f64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            pooling: true,
            budget_bytes: None,
            max_cached_per_class: 32,
            min_kept_per_class: 4,
            maintenance_interval: Duration::from_secs(60),
            cleanup_pressure: 0.7,
            adaptive: true,
            max_adaptive_cached: 16384,
            headroom: 0.5,
        }
    }
}

impl PoolConfig {
    pub(crate) fn validate(&self) -> Result<()> {
        let (min, max, adaptive) = (self.min_kept_per_class, self.max_cached_per_class, self.max_adaptive_cached);
        let fault = if min > max {
            format!("expected min_kept_per_class of at most max_cached_per_class ({max}), found {min}")
        } else if adaptive < max {
            format!("expected max_adaptive_cached of at least max_cached_per_class ({max}), found {adaptive}")
        } else if !(0.0..=1.0).contains(&self.cleanup_pressure) {
            format!("expected cleanup_pressure from 0 to 1, found {}", self.cleanup_pressure)
        } else if !(self.headroom.is_finite() && self.headroom >= 0.0) {
            format!("expected headroom of at least 0, found {}", self.headroom)
        } else if self.maintenance_interval.is_zero() {
            "expected maintenance_interval above zero, found 0 s".into()
        } else if self.budget_bytes == Some(0) {
            "expected budget_bytes above zero, found 0".into()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidArgument, fault).context("pool settings"))
    }

    /// Returns the highest limit of a class: above the configured limit, a class never caches more than half of the
    /// budget.
    pub(crate) fn highest_limit(&self, class_bytes: u64, budget: u64) -> u32 {
        if !self.adaptive {
            return self.max_cached_per_class;
        }
        let by_budget = u32::try_from(budget / 2 / class_bytes.max(1)).unwrap_or(u32::MAX);
        self.max_adaptive_cached.min(by_budget).max(self.max_cached_per_class)
    }
}

/// The current settings, and whether the pool is open.
pub(crate) struct Settings {
    config: RwLock<PoolConfig>,
    /// A copy of `config.pooling`, which every return of a block reads without the lock.
    pooling: AtomicBool,
    closed: AtomicBool,
    debug_checks: bool,
}

impl Settings {
    pub(crate) fn new(config: PoolConfig, debug_checks: bool) -> Self {
        Self {
            config: RwLock::new(config),
            pooling: AtomicBool::new(config.pooling),
            closed: AtomicBool::new(false),
            debug_checks,
        }
    }

    /// Returns a copy of the settings, so that no lock is held while other code runs.
    pub(crate) fn get(&self) -> PoolConfig {
        *self.config.read()
    }

    pub(crate) fn set(&self, config: PoolConfig) {
        *self.config.write() = config;
        self.pooling.store(config.pooling, Relaxed);
    }

    /// Returns whether free blocks are cached.
    #[inline]
    pub(crate) fn keeps_blocks(&self) -> bool {
        !self.is_closed() && self.pooling.load(Relaxed)
    }

    #[inline]
    pub(crate) fn debug_checks(&self) -> bool {
        self.debug_checks
    }

    /// Closes the pool permanently: it no longer caches blocks.
    pub(crate) fn close(&self) {
        // Relaxed: `Core::close` locks every shard after this, and `recycle` reads the flag with its shard locked.
        self.closed.store(true, Relaxed);
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
}

/// Options for creating a pool: the initial settings, and properties that never change.
///
/// ```
/// use kiln_device::pool::PowersOfTwo;
/// use kiln_device::{NullDevice, PoolConfig, PoolOptions};
///
/// let config = PoolConfig { pooling: false, ..PoolConfig::default() };
/// let options = PoolOptions::new().config(config).strategy(PowersOfTwo);
/// let device = NullDevice::new().into_device_with(options)?;
/// assert_eq!(device.pool().config(), config);
/// assert_eq!(device.pool().statistics().strategy, "powers-of-two");
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PoolOptions {
    pub(crate) config: PoolConfig,
    pub(crate) strategy: Option<Arc<dyn AllocationStrategy>>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) debug_checks: bool,
}

impl PoolOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the initial settings.
    pub fn config(mut self, config: PoolConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the size classes and their limits. Default: [`FineClasses`](super::FineClasses).
    pub fn strategy(mut self, strategy: impl AllocationStrategy) -> Self {
        self.strategy = Some(Arc::new(strategy));
        self
    }

    /// Sets the clock. Such a pool starts no maintenance thread: call [`Pool::maintain`](super::Pool::maintain).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Enables debug checks: poisons freed memory, places canaries after every buffer, and verifies both, to detect
    /// writes after free and beyond the end. Slow. Violations are returned by
    /// [`Pool::violations`](super::Pool::violations).
    pub fn debug_checks(mut self, on: bool) -> Self {
        self.debug_checks = on;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pool_keeps_nothing_whatever_its_settings() {
        let settings = Settings::new(PoolConfig::default(), false);
        assert!(settings.keeps_blocks());
        settings.set(PoolConfig { pooling: false, headroom: 2.0, ..PoolConfig::default() });
        assert!(!settings.keeps_blocks() && !settings.is_closed());
        assert_eq!(settings.get().headroom, 2.0);
        settings.close();
        settings.set(PoolConfig::default());
        assert!(!settings.keeps_blocks() && settings.is_closed());
    }
}
