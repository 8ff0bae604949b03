//! A pool on the null device with a mock clock.

use kiln_device::pool::{Access, Allocation, ClassStatistics, Released};
use kiln_device::{
    Buffer, BufferOptions, CommandList, Device, DeviceApi, NullDevice, Pool, PoolConfig, PoolOptions, PoolStatistics,
    Record,
};
use kiln_resource_cache::MockClock;
use std::sync::Arc;

/// An allocation of the pools in these tests.
pub(crate) type Block = Allocation<dyn DeviceApi>;

/// A pool with its device and clock.
pub(crate) struct Rig {
    pub(crate) null: NullDevice,
    pub(crate) clock: MockClock,
    pub(crate) device: Device,
    pub(crate) pool: Pool,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(NullDevice::new(), PoolConfig::default())
    }

    /// Creates a pool on memory whose raw blocks are divided into slots, as on the CPU device.
    pub(crate) fn divisible() -> Self {
        Self::with(divisible(), PoolConfig::default())
    }

    pub(crate) fn with_config(config: PoolConfig) -> Self {
        Self::with(NullDevice::new(), config)
    }

    pub(crate) fn with(null: NullDevice, config: PoolConfig) -> Self {
        Self::from_options(null, PoolOptions::new().config(config))
    }

    pub(crate) fn from_options(null: NullDevice, options: PoolOptions) -> Self {
        let clock = MockClock::new();
        let device = null.clone().into_device_with(options.clock(clock.clone())).unwrap();
        let pool = device.pool().clone();
        Self { null, clock, device, pool }
    }

    pub(crate) fn buffer(&self, bytes: u64) -> Buffer {
        self.device.buffer(bytes).unwrap()
    }

    /// Submits work that uses the buffer, and returns its number.
    pub(crate) fn touch(&self, buffer: &Buffer) -> u64 {
        self.touch_all(std::slice::from_ref(buffer))
    }

    /// Submits one list that uses all buffers.
    pub(crate) fn touch_all(&self, buffers: &[Buffer]) -> u64 {
        let mut commands = CommandList::new();
        for buffer in buffers {
            commands.zero(&buffer.slice(..4).unwrap()).unwrap();
        }
        self.device.submit(commands).unwrap()
    }

    /// Frees a block that submitted work may still use, and returns the number of the submission.
    pub(crate) fn leave_pending(&self, bytes: u64) -> u64 {
        self.touch(&self.buffer(bytes))
    }

    pub(crate) fn take(&self, bytes: u64) -> Block {
        self.pool.allocate(bytes).unwrap()
    }

    pub(crate) fn take_many(&self, bytes: u64, count: usize) -> Vec<Block> {
        (0..count).map(|_| self.take(bytes)).collect()
    }

    pub(crate) fn take_labelled(&self, bytes: u64, label: &str) -> Block {
        self.pool.allocate(BufferOptions::new(bytes).label(label)).unwrap()
    }

    /// Allocates and frees `count` blocks at once, so that the pool has as many free ones.
    pub(crate) fn warm(&self, bytes: u64, count: usize) {
        drop(self.take_many(bytes, count));
    }

    pub(crate) fn configure(&self, change: impl FnOnce(&mut PoolConfig)) {
        let mut config = self.pool.config();
        change(&mut config);
        self.pool.set_config(config).unwrap();
    }

    /// Advances the clock by one maintenance interval and runs maintenance.
    pub(crate) fn pass_interval(&self) -> Released {
        self.clock.advance(self.pool.config().maintenance_interval);
        self.pool.maintain().expect("an interval has passed")
    }

    /// Returns the number of raw blocks allocated from the driver.
    pub(crate) fn driver_allocations(&self) -> usize {
        self.null.records().iter().filter(|record| matches!(record, Record::Allocate { .. })).count()
    }

    /// Returns the statistics, after checking that they add up: reserved bytes are in use, cached or in unused slots.
    pub(crate) fn numbers(&self) -> PoolStatistics {
        let numbers = self.pool.statistics();
        let parts = numbers.bytes_in_use + numbers.bytes_cached + numbers.bytes_unused_slots;
        assert_eq!(parts, numbers.bytes_reserved, "in use + cached + unused slots = reserved: {numbers:?}");
        assert_eq!(
            numbers.bytes_reserved,
            self.null.live_bytes(),
            "the reserved bytes are those allocated from the driver"
        );
        assert!(
            numbers.bytes_reserved
                <= numbers.budget_bytes.max(numbers.bytes_in_use + numbers.bytes_pending + numbers.bytes_unused_slots)
        );
        numbers
    }

    /// Returns the statistics of one class.
    pub(crate) fn class(&self, class_bytes: u64) -> ClassStatistics {
        let classes = self.pool.statistics().classes;
        classes.into_iter().find(|class| class.class_bytes == class_bytes && !class.direct).expect("the class was used")
    }

    /// Returns the number of free blocks of one class.
    pub(crate) fn cached(&self, class_bytes: u64) -> u64 {
        let classes = self.pool.statistics().classes;
        classes.iter().filter(|class| class.class_bytes == class_bytes && !class.direct).map(|c| c.cached_blocks).sum()
    }
}

/// Creates memory whose raw blocks are divided into slots.
pub(crate) fn divisible() -> NullDevice {
    NullDevice::new().with_properties(|properties| properties.divisible = true)
}

/// Returns settings with a budget.
pub(crate) fn with_budget(budget_bytes: u64) -> PoolConfig {
    PoolConfig { budget_bytes: Some(budget_bytes), ..PoolConfig::default() }
}

/// Writes a pattern into the requested bytes.
pub(crate) fn fill(block: &Block, seed: u8) {
    let mut access = block.access_mut(0..block.bytes());
    let write = &mut |bytes: &mut [u8]| pattern(seed, bytes.len()).zip(bytes).for_each(|(byte, to)| *to = byte);
    block.memory().map_mut(access.region_mut(), write).unwrap();
}

/// Returns whether the pattern is still there.
pub(crate) fn holds(block: &Block, seed: u8) -> bool {
    let mut intact = false;
    let access = block.access(0..block.bytes());
    let read = &mut |bytes: &[u8]| intact = pattern(seed, bytes.len()).eq(bytes.iter().copied());
    block.memory().map(access.region(), read).unwrap();
    intact
}

fn pattern(seed: u8, len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(move |at| (at as u8).wrapping_mul(31).wrapping_add(seed))
}

/// Returns the location of an allocation: the raw block and the offset in it.
pub(crate) fn place(block: &Block) -> (usize, u64) {
    place_of(&block.access(0..0))
}

/// Returns the location of a buffer.
pub(crate) fn buffer_place(buffer: &Buffer) -> (usize, u64) {
    place_of(&buffer.access())
}

fn place_of(access: &Access<'_>) -> (usize, u64) {
    let (raw, offset) = access.raw();
    (Arc::as_ptr(&raw) as usize, offset)
}
