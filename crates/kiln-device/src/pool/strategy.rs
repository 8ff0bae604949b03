//! Allocation strategies, which users can replace: size classes, and the number of free blocks that a class may cache.

use std::fmt;

/// Defines the size classes of a pool, and how many free blocks each may cache. Set with
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
    /// Returns the name in reports.
    fn name(&self) -> &str;

    /// Returns the class sizes: ascending multiples of 64. A request uses the smallest class that holds it; requests
    /// above all classes are allocated directly.
    fn class_bytes(&self) -> Vec<u64>;

    /// Returns how many free blocks a class may cache from now on. Called only if
    /// [`PoolConfig::adaptive`](super::PoolConfig::adaptive) is on: at each maintenance, and when no free block serves
    /// a request although the class released blocks for lack of room since the last call.
    fn cached_limit(&self, demand: &ClassDemand) -> u32;

    /// Returns the size of the largest free block that may serve a request of `class_bytes` if its own class has none.
    /// The default only allows its own class, so that padding is bounded.
    fn largest_fit_bytes(&self, class_bytes: u64) -> u64 {
        class_bytes
    }
}

/// The demand of a class since the last call of [`AllocationStrategy::cached_limit`].
///
/// See [`AllocationStrategy`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassDemand {
    /// The size of the class in bytes.
    pub class_bytes: u64,
    /// `max_cached_per_class` of the settings.
    pub configured_limit: u32,
    /// The maximum that the settings and the budget allow.
    pub highest_limit: u32,
    /// The current limit.
    pub current_limit: u32,
    /// Blocks of this class that were released because the limit was reached.
    pub overflowed: u64,
    /// Requests that no free block served.
    pub missed: u64,
    /// Blocks within the current limit that were never needed: they were always free, or never existed.
    pub idle_blocks: u32,
}

/// The default: four classes per power of two from 256 B to 256 MiB, with adaptive limits. Padding is at most a quarter
/// of a request above 256 B, which is a fifth of its block.
///
/// A class that thrashes doubles its limit; the limit of a class with idle blocks decreases towards the configured one.
///
/// ```
/// use kiln_device::pool::{AllocationStrategy, FineClasses, PowersOfTwo};
///
/// assert_eq!(FineClasses.class_bytes()[..6], [256, 320, 384, 448, 512, 640]);
/// assert_eq!(PowersOfTwo.class_bytes()[..3], [256, 512, 1024]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FineClasses;

impl AllocationStrategy for FineClasses {
    fn name(&self) -> &str {
        "fine-classes"
    }

    fn class_bytes(&self) -> Vec<u64> {
        // 4/4, 5/4, 6/4 and 7/4 of each power of two.
        let steps = (SMALLEST_LOG2..LARGEST_LOG2).flat_map(|log2| (0..4).map(move |step| (4 + step) << (log2 - 2)));
        steps.chain([1 << LARGEST_LOG2]).collect()
    }

    fn cached_limit(&self, demand: &ClassDemand) -> u32 {
        follow_demand(demand)
    }
}

/// Powers of two from 256 B to 256 MiB: fewer classes and thus more reuse across sizes, but padding of up to half a
/// block.
///
/// See [`FineClasses`] for an example.
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

/// Returns the new limit: doubled if the class thrashes, otherwise decreased by half of its idle blocks.
fn follow_demand(demand: &ClassDemand) -> u32 {
    // Blocks were released for lack of room, and then requested from the driver again.
    let thrashed = demand.overflowed > 0 && demand.missed > 0;
    let wanted = if thrashed {
        demand.current_limit.saturating_mul(2).max(1)
    } else {
        // Half of them, so that the limit decreases over several intervals.
        demand.current_limit.saturating_sub(demand.idle_blocks / 2)
    };
    // A configured limit of zero disables caching, which thrashing must not override.
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
