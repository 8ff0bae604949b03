//! How a pool rounds requests to classes and how many free blocks a class may keep: the part that users can replace.

use std::fmt;

/// Decides the classes of a pool and how many free blocks each may keep. Plug one in with
/// [`PoolOptions::strategy`](super::PoolOptions::strategy).
///
/// ```
/// use kiln_device::pool::{AllocationStrategy, ClassDemand};
///
/// /// A model server knows its two sizes.
/// #[derive(Debug)]
/// struct TwoSizes;
///
/// impl AllocationStrategy for TwoSizes {
///     fn name(&self) -> &str {
///         "two-sizes"
///     }
///     fn class_bytes(&self) -> Vec<u64> {
///         vec![4096, 1 << 20]
///     }
///     fn cached_limit(&self, demand: &ClassDemand) -> u32 {
///         demand.configured_limit
///     }
/// }
/// ```
pub trait AllocationStrategy: Send + Sync + fmt::Debug + 'static {
    /// The name in reports.
    fn name(&self) -> &str;

    /// The class sizes, ascending multiples of 64. The smallest class that holds a request serves it; above all it goes direct.
    fn class_bytes(&self) -> Vec<u64>;

    /// How many free blocks a class may keep from now on, asked at each maintenance and when a class asks the driver for
    /// a block of a size it gave back a moment ago.
    fn cached_limit(&self, demand: &ClassDemand) -> u32;

    /// The largest free block that may serve a request of `class_bytes` when its own class has none. The default is its
    /// own class only, so that padding stays bounded.
    fn largest_fit_bytes(&self, class_bytes: u64) -> u64 {
        class_bytes
    }
}

/// What a class saw since the last maintenance, for [`AllocationStrategy::cached_limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassDemand {
    /// The size of the class.
    pub class_bytes: u64,
    /// `max_cached_per_class` of the settings.
    pub configured_limit: u32,
    /// The most that the settings and the budget allow.
    pub highest_limit: u32,
    /// The limit so far.
    pub current_limit: u32,
    /// Blocks of this class that were given back because the limit was reached.
    pub overflowed: u64,
    /// Requests that no free block served.
    pub missed: u64,
    /// Blocks below the limit so far that nobody needed at any time: they lay free, or there were never as many.
    pub idle_blocks: u32,
}

/// The default: four classes per power of two from 256 B to 256 MiB (padding at most a quarter), adaptive limits.
///
/// A class that thrashes doubles its limit; one with idle blocks returns towards the configured limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct FineClasses;

impl AllocationStrategy for FineClasses {
    fn name(&self) -> &str {
        "fine-classes"
    }

    fn class_bytes(&self) -> Vec<u64> {
        let steps = (SMALLEST_LOG2..LARGEST_LOG2).flat_map(|log2| (0..4).map(move |step| (4 + step) << (log2 - 2)));
        steps.chain([1 << LARGEST_LOG2]).collect()
    }

    fn cached_limit(&self, demand: &ClassDemand) -> u32 {
        follow_demand(demand)
    }
}

/// Powers of two from 256 B to 256 MiB: fewer classes and so more reuse across sizes, but padding up to half a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowersOfTwo;

impl AllocationStrategy for PowersOfTwo {
    fn name(&self) -> &str {
        "powers-of-two"
    }

    fn class_bytes(&self) -> Vec<u64> {
        (SMALLEST_LOG2..=LARGEST_LOG2).map(|log2| 1 << log2).collect()
    }

    fn cached_limit(&self, demand: &ClassDemand) -> u32 {
        follow_demand(demand)
    }
}

const SMALLEST_LOG2: u32 = 8;
const LARGEST_LOG2: u32 = 28;

fn follow_demand(demand: &ClassDemand) -> u32 {
    let thrashed = demand.overflowed > 0 && demand.missed > 0;
    let wanted = if thrashed {
        demand.current_limit.saturating_mul(2).max(1)
    } else {
        demand.current_limit.saturating_sub(demand.idle_blocks / 2)
    };
    // A configured limit of zero means "keep nothing", which thrashing must not undo.
    if demand.configured_limit == 0 { 0 } else { wanted.clamp(demand.configured_limit, demand.highest_limit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_classes_are_four_per_doubling_from_256_b_to_256_mib() {
        let classes = FineClasses.class_bytes();
        assert_eq!(classes.len(), 81);
        assert_eq!(classes[..6], [256, 320, 384, 448, 512, 640]);
        assert_eq!(classes.last(), Some(&(256 << 20)));
        assert!(classes.is_sorted() && classes.iter().all(|bytes| bytes % 64 == 0));
        assert_eq!(PowersOfTwo.class_bytes().len(), 21);
    }

    #[test]
    fn limits_double_while_a_class_thrashes_and_return_when_blocks_idle() {
        let calm = ClassDemand {
            class_bytes: 4096,
            configured_limit: 32,
            highest_limit: 100,
            current_limit: 32,
            overflowed: 0,
            missed: 0,
            idle_blocks: 0,
        };
        for (demand, expected) in [
            (calm, 32),
            (ClassDemand { overflowed: 1, missed: 1, ..calm }, 64),
            (ClassDemand { overflowed: 1, missed: 1, current_limit: 64, ..calm }, 100),
            (ClassDemand { overflowed: 9, missed: 0, ..calm }, 32),
            (ClassDemand { idle_blocks: 60, current_limit: 100, ..calm }, 70),
            (ClassDemand { idle_blocks: 100, current_limit: 64, ..calm }, 32),
            (ClassDemand { overflowed: 1, missed: 1, configured_limit: 0, current_limit: 0, ..calm }, 0),
        ] {
            assert_eq!(FineClasses.cached_limit(&demand), expected, "{demand:?}");
        }
    }
}
