//! The state of a pool. Allocation, return, driver access and cleanup are implemented in the sibling modules.

use super::budget::Budget;
use super::class::{CLASS_ALIGNMENT, ClassTable};
use super::config::{PoolConfig, PoolOptions, Settings};
use super::counters::Counters;
use super::demand::Demand;
use super::labels::Labels;
use super::maintenance::Maintenance;
use super::occupancy::Occupancy;
use super::pending::Pending;
use super::reserve::Released;
use super::shards::Shards;
use super::slab::Slabs;
use super::strategy::FineClasses;
use crate::memory::{MemoryProperties, RawMemory, Usage};
use crate::observe::{CleanupReason, EventKind, nanos, span};
use kiln_ir::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Core<M: RawMemory + ?Sized> {
    pub(crate) memory: Arc<M>,
    pub(crate) properties: MemoryProperties,
    pub(crate) settings: Settings,
    pub(crate) classes: ClassTable,
    pub(crate) labels: Labels,
    /// Free blocks that are ready for reuse.
    pub(crate) shards: Shards<M>,
    /// Free blocks that submitted work may still use.
    pub(crate) pending: Pending<M>,
    pub(crate) slabs: Mutex<Slabs<M>>,
    pub(crate) budget: Budget,
    pub(crate) occupancy: Occupancy,
    pub(crate) demand: Demand,
    pub(crate) counters: Counters,
    pub(crate) maintenance: Maintenance,
}

/// A request with its label, usage and class resolved.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedRequest {
    pub(crate) bytes: u64,
    pub(crate) usage: Usage,
    pub(crate) class: u16,
    pub(crate) label: u32,
}

/// The maximum bytes by which a shard's count may differ from the published one.
const MAX_PUBLISH_BYTES: u64 = 256 << 10;

impl<M: RawMemory + ?Sized> Core<M> {
    pub(crate) fn new(memory: Arc<M>, options: PoolOptions) -> Result<Self> {
        options.config.validate()?;
        let properties = memory.properties();
        let alignment = properties.copy_alignment;
        // Slots begin at multiples of their class, a multiple of `CLASS_ALIGNMENT`, which this alignment then divides.
        if !alignment.is_power_of_two() || alignment > CLASS_ALIGNMENT {
            let message =
                format!("pool expected a copy alignment of 1 to {CLASS_ALIGNMENT}, a power of two, found {alignment}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let classes = ClassTable::new(options.strategy.unwrap_or_else(|| Arc::new(FineClasses)))?;
        let core = Self {
            memory,
            properties,
            settings: Settings::new(options.config, options.debug_checks),
            labels: Labels::new(),
            shards: Shards::new(classes.direct()),
            pending: Pending::new(),
            slabs: Mutex::new(Slabs::new()),
            budget: Budget::new(properties.max_block_bytes),
            occupancy: Occupancy::default(),
            demand: Demand::new(classes.group_count()),
            counters: Counters::default(),
            maintenance: Maintenance::new(options.clock),
            classes,
        };
        core.apply_config(&options.config);
        Ok(core)
    }

    /// Applies new settings to all later operations.
    pub(crate) fn apply_config(&self, config: &PoolConfig) {
        self.settings.set(*config);
        self.budget.set_limit(config.budget_bytes.unwrap_or(self.properties.default_budget_bytes));
        self.demand.set_limits(config.max_cached_per_class);
        // A small budget is tracked more precisely.
        let publish_bytes = (self.budget.limit() / 1024).min(MAX_PUBLISH_BYTES) as i64;
        self.shards.each().for_each(|mut shard| shard.publish_bytes = publish_bytes);
        self.update_pressure();
    }

    /// Returns the bytes that are in use or that submitted work may still use, as far as the shards published them.
    pub(crate) fn occupied(&self) -> u64 {
        self.occupancy.in_use() + self.pending.bytes()
    }

    /// Updates memory pressure after the budget or the reserved bytes changed.
    pub(crate) fn update_pressure(&self) {
        self.emit_pressure(self.budget.update_pressure(self.settings.get().cleanup_pressure));
    }

    /// Emits an event if pressure began or ended.
    pub(crate) fn emit_pressure(&self, changed: bool) {
        if changed {
            self.emit(|| EventKind::PoolPressure {
                begins: self.budget.is_pressured(),
                reserved_bytes: self.budget.reserved(),
                budget_bytes: self.budget.limit(),
            });
        }
    }

    /// Emits an event. Only for slow paths, because getting the recorder is a virtual call.
    pub(crate) fn emit(&self, kind: impl FnOnce() -> EventKind) {
        if let Some(recorder) = self.memory.recorder() {
            recorder.emit(kind);
        }
    }

    /// Releases free blocks with `clean`, and emits an event if any were released.
    pub(crate) fn cleanup(&self, reason: CleanupReason, clean: impl FnOnce() -> Released) -> Released {
        let recorder = self.memory.recorder();
        // The clock is only read if someone watches.
        let began = recorder.filter(|recorder| recorder.is_watched()).map(|recorder| (recorder, Instant::now()));
        let _span = span(recorder, |device| tracing::debug_span!(target: "kiln", "pool_cleanup", device, ?reason));
        let released = clean();
        if let Some((recorder, began)) = began.filter(|_| released != Released::default()) {
            recorder.emit(|| EventKind::PoolCleanup {
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
