//! What a pool is made of. How blocks are lent, kept, taken from the driver and swept is in the modules beside this one.

use super::class::{CLASS_ALIGNMENT, ClassTable};
use super::config::{PoolConfig, PoolOptions};
use super::debug::Violation;
use super::labels::Labels;
use super::maintenance::Maintenance;
use super::pending::Pending;
use super::shard::Shard;
use super::slab::Slabs;
use super::statistics::RecentActivity;
use super::strategy::AllocationStrategy;
use crate::memory::{MemoryProperties, RawMemory, Usage};
use kiln_ir::{Error, ErrorKind, Result};
use kiln_resource_cache::Clock;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(crate) struct Core<M: RawMemory + ?Sized> {
    pub(crate) memory: Arc<M>,
    pub(crate) properties: MemoryProperties,
    pub(crate) strategy: Arc<dyn AllocationStrategy>,
    pub(crate) classes: ClassTable,
    pub(crate) labels: Labels,
    pub(crate) debug_checks: bool,
    /// Each shared for itself, so that a returning block can keep its shard alive without touching a common count.
    pub(crate) shards: Box<[SharedShard<M>]>,
    pub(crate) groups: Box<[Group]>,
    pub(crate) slabs: Mutex<Slabs<M>>,
    pub(crate) config: RwLock<PoolConfig>,
    pub(crate) pooling: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) budget: AtomicU64,
    pub(crate) reserved: AtomicU64,
    pub(crate) peak_reserved: AtomicU64,
    pub(crate) pressured: AtomicBool,
    /// Published by the shards.
    pub(crate) in_use: AtomicI64,
    pub(crate) peak_in_use: AtomicI64,
    /// The peak since the last maintenance, and that of the interval before.
    pub(crate) recent_peak: AtomicI64,
    pub(crate) previous_peak: AtomicI64,
    /// Doubles the headroom as many times, while displaced blocks turn out to be wanted.
    pub(crate) headroom_doublings: AtomicU32,
    pub(crate) misses: AtomicU64,
    pub(crate) pending: Pending<M>,
    pub(crate) driver: DriverCounts,
    pub(crate) violations: Mutex<Vec<Violation>>,
    pub(crate) violation_count: AtomicU64,
    clock: PoolClock,
    pub(crate) last_maintenance: Mutex<Duration>,
    pub(crate) activity_at_maintenance: Mutex<RecentActivity>,
    pub(crate) maintenance: Maintenance,
}

/// What the shards share about one usage and class; touched on slow paths only.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) limit: AtomicU32,
    /// Permits that the shards hold; at most `limit` when one is taken.
    pub(crate) permits: AtomicU32,
    /// Blocks that left the pool.
    pub(crate) released: AtomicU64,
    /// Since the last maintenance.
    pub(crate) overflowed: AtomicU32,
    pub(crate) displaced: AtomicU32,
    pub(crate) missed: AtomicU32,
}

#[derive(Default)]
pub(crate) struct DriverCounts {
    pub(crate) allocations: AtomicU64,
    pub(crate) releases: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) pressure_cleanups: AtomicU64,
    pub(crate) out_of_memory: AtomicU64,
}

pub(crate) type SharedShard<M> = Arc<Padded<Mutex<Shard<M>>>>;

/// On a cache line of its own, so that threads with different shards do not disturb each other.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

struct PoolClock {
    origin: Instant,
    custom: Option<Arc<dyn Clock>>,
}

/// A request after labels, usage and class are known.
#[derive(Clone, Copy)]
pub(crate) struct Want {
    pub(crate) bytes: u64,
    pub(crate) usage: Usage,
    pub(crate) class: u16,
    pub(crate) label: u32,
}

/// How far a shard's count of the bytes in use may lag behind.
const MAX_PUBLISH_BYTES: u64 = 256 << 10;
/// More shards than cores: threads are many, and an empty shard costs little.
const MIN_SHARDS: usize = 8;
const MAX_SHARDS: usize = 64;

thread_local! {
    /// Which shard the thread uses in every pool.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
pub(crate) fn thread_number() -> usize {
    /// Deals out shards in turn; it has no other content.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Relaxed) & (usize::MAX >> 1));
        }
        shard.get()
    })
}

impl<M: RawMemory + ?Sized> Core<M> {
    pub(crate) fn new(memory: Arc<M>, options: PoolOptions) -> Result<Self> {
        options.config.validate()?;
        let properties = memory.properties();
        let alignment = properties.copy_alignment;
        if !alignment.is_power_of_two() || alignment > CLASS_ALIGNMENT {
            let message =
                format!("pool expected a copy alignment of 1 to {CLASS_ALIGNMENT}, a power of two, found {alignment}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let strategy = options.strategy_or_default();
        let classes = ClassTable::new(&*strategy)?;
        let shards = (2 * crate::cores()).next_power_of_two().clamp(MIN_SHARDS, MAX_SHARDS);
        let clock = PoolClock { origin: Instant::now(), custom: options.clock };
        let core = Self {
            properties,
            shards: (0..shards).map(|_| Arc::new(Padded(Mutex::new(Shard::new(classes.len()))))).collect(),
            groups: (0..(classes.len() + 1) * Usage::ALL.len()).map(|_| Group::default()).collect(),
            slabs: Mutex::new(Slabs::new()),
            pooling: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            budget: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            peak_reserved: AtomicU64::new(0),
            pressured: AtomicBool::new(false),
            in_use: AtomicI64::new(0),
            peak_in_use: AtomicI64::new(0),
            recent_peak: AtomicI64::new(0),
            previous_peak: AtomicI64::new(0),
            headroom_doublings: AtomicU32::new(0),
            misses: AtomicU64::new(0),
            pending: Pending::new(),
            driver: DriverCounts::default(),
            violations: Mutex::new(Vec::new()),
            violation_count: AtomicU64::new(0),
            last_maintenance: Mutex::new(clock.now()),
            activity_at_maintenance: Mutex::default(),
            maintenance: Maintenance::new(clock.custom.is_none()),
            config: RwLock::new(options.config),
            labels: Labels::new(),
            debug_checks: options.debug_checks,
            memory,
            strategy,
            classes,
            clock,
        };
        core.apply_config(&options.config);
        Ok(core)
    }

    /// Makes new settings hold for everything that happens from now on.
    pub(crate) fn apply_config(&self, config: &PoolConfig) {
        self.budget.store(config.budget_bytes.unwrap_or(self.properties.default_budget_bytes), Relaxed);
        self.pooling.store(config.pooling, Relaxed);
        for group in &self.groups {
            group.limit.store(config.max_cached_per_class, Relaxed);
        }
        // A small budget is watched more closely.
        let publish_bytes = (self.budget.load(Relaxed) / 1024).min(MAX_PUBLISH_BYTES) as i64;
        self.each_shard().for_each(|mut shard| shard.publish_bytes = publish_bytes);
        self.update_pressure();
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The class of blocks above all classes.
    pub(crate) fn direct_class(&self) -> u16 {
        self.classes.len() as u16
    }

    pub(crate) fn is_direct(&self, class: u16) -> bool {
        class == self.direct_class()
    }

    pub(crate) fn group(&self, usage: Usage, class: u16) -> &Group {
        &self.groups[self.group_index(usage, class)]
    }

    pub(crate) fn group_index(&self, usage: Usage, class: u16) -> usize {
        usage.index() * (self.classes.len() + 1) + usize::from(class)
    }

    /// The shards one after another, never two locked at once.
    pub(crate) fn each_shard(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<M>>> {
        self.shards.iter().map(|shard| shard.0.lock())
    }

    pub(crate) fn shard(&self, index: usize) -> MutexGuard<'_, Shard<M>> {
        self.shards[index].0.lock()
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// All shards at once, in order: one moment for statistics.
    pub(crate) fn all_shards(&self) -> Vec<MutexGuard<'_, Shard<M>>> {
        self.each_shard().collect()
    }

    pub(crate) fn own_shard(&self) -> MutexGuard<'_, Shard<M>> {
        self.own_shared_shard().0.lock()
    }

    pub(crate) fn own_shared_shard(&self) -> &SharedShard<M> {
        &self.shards[thread_number() & (self.shards.len() - 1)]
    }
}

impl PoolClock {
    fn now(&self) -> Duration {
        match &self.custom {
            Some(clock) => clock.now(),
            None => self.origin.elapsed(),
        }
    }
}
