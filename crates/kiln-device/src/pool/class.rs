//! Maps the size of a request to its class in a few instructions.

use super::strategy::AllocationStrategy;
use crate::memory::Usage;
use kiln_ir::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The size classes of a pool, with a lookup table.
///
/// The direct class, for blocks larger than all classes, comes last. The blocks of one class and usage form a group
/// with a number.
#[derive(Debug)]
pub(crate) struct ClassTable {
    strategy: Arc<dyn AllocationStrategy>,
    bytes: Box<[u64]>,
    /// For each quarter of a power of two, the first class that could hold it.
    first: Box<[u16]>,
}

/// Every class is a multiple of this, so that blocks of a divided raw block are aligned for vector instructions.
pub(crate) const CLASS_ALIGNMENT: u64 = 64;
const MAX_CLASSES: usize = 1024;

impl ClassTable {
    pub(crate) fn new(strategy: Arc<dyn AllocationStrategy>) -> Result<Self> {
        let bytes = strategy.class_bytes().into_boxed_slice();
        let valid = bytes.first().is_some_and(|&first| first > 0)
            && bytes.len() <= MAX_CLASSES
            && bytes.windows(2).all(|pair| pair[0] < pair[1])
            && bytes.iter().all(|bytes| bytes % CLASS_ALIGNMENT == 0 && *bytes <= 1 << 62);
        if !valid {
            let message = format!(
                "strategy `{}` expected 1 to {MAX_CLASSES} ascending classes, multiples of {CLASS_ALIGNMENT} bytes, found {bytes:?}",
                strategy.name()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let largest = bytes[bytes.len() - 1];
        let first = (0..=quarter(largest)).map(|q| bytes.partition_point(|&class| quarter(class) < q) as u16).collect();
        Ok(Self { strategy, bytes, first })
    }

    /// Returns the smallest class that holds `bytes`, or `None` above the largest.
    #[inline]
    pub(crate) fn find(&self, bytes: u64) -> Option<u16> {
        let mut class = usize::from(*self.first.get(quarter(bytes))?);
        // At most a few steps, because the table already selects the quarter.
        while *self.bytes.get(class)? < bytes {
            class += 1;
        }
        Some(class as u16)
    }

    pub(crate) fn strategy(&self) -> &dyn AllocationStrategy {
        &*self.strategy
    }

    /// Returns the size of a class; for the direct class that of the largest class, which its blocks exceed.
    #[inline]
    pub(crate) fn bytes(&self, class: u16) -> u64 {
        self.bytes.get(usize::from(class)).copied().unwrap_or_else(|| self.bytes[self.bytes.len() - 1])
    }

    /// Returns the direct class, which equals the number of other classes.
    #[inline]
    pub(crate) fn direct(&self) -> u16 {
        self.bytes.len() as u16
    }

    #[inline]
    pub(crate) fn is_direct(&self, class: u16) -> bool {
        class == self.direct()
    }

    #[inline]
    pub(crate) fn group(&self, usage: Usage, class: u16) -> usize {
        usage as usize * (self.bytes.len() + 1) + usize::from(class)
    }

    pub(crate) fn group_count(&self) -> usize {
        (self.bytes.len() + 1) * Usage::ALL.len()
    }

    /// Returns the usage and class of every group, by its number.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Usage, u16)> + use<> {
        let direct = self.direct();
        Usage::ALL.into_iter().flat_map(move |usage| (0..=direct).map(move |class| (usage, class)))
    }
}

/// Returns the quarter of a power of two that a size is in, rounded up. Monotone in the size.
#[inline]
fn quarter(bytes: u64) -> usize {
    // The two bits after the leading one select the quarter of its power of two. Subtracting 1 keeps a size on a
    // boundary in the quarter that it ends; `| 7` makes the logarithm at least 2, so that both bits exist.
    let below = bytes.saturating_sub(1) | 7;
    let shift = below.ilog2() - 2;
    (shift * 4) as usize + ((below >> shift) & 3) as usize
}

#[cfg(test)]
mod tests {
    use super::super::strategy::{ClassDemand, FineClasses, PowersOfTwo};
    use super::*;

    #[derive(Debug)]
    struct Fixed(Vec<u64>);
    impl AllocationStrategy for Fixed {
        fn name(&self) -> &str {
            "fixed"
        }
        fn class_bytes(&self) -> Vec<u64> {
            self.0.clone()
        }
        fn cached_limit(&self, demand: &ClassDemand) -> u32 {
            demand.configured_limit
        }
    }

    /// No request gets a class smaller than itself, or larger than needed.
    #[test]
    fn find_agrees_with_a_linear_search() {
        let strategies: [Arc<dyn AllocationStrategy>; 4] = [
            Arc::new(FineClasses),
            Arc::new(PowersOfTwo),
            Arc::new(Fixed(vec![64, 128, 4096, 4160, 4224, 1 << 20])),
            Arc::new(Fixed(vec![1 << 40])),
        ];
        for strategy in &strategies {
            let classes = strategy.class_bytes();
            let table = ClassTable::new(Arc::clone(strategy)).unwrap();
            let edges = classes.iter().flat_map(|&class| [class - 1, class, class + 1, class + 17]);
            for bytes in (0..70_000).chain(edges).chain([u64::MAX, u64::MAX / 2]) {
                let expected = classes.iter().position(|&class| class >= bytes).map(|class| class as u16);
                assert_eq!(table.find(bytes), expected, "{bytes} bytes with {}", strategy.name());
            }
        }
    }

    #[test]
    fn groups_are_numbered_by_usage_and_class() {
        let table = ClassTable::new(Arc::new(Fixed(vec![64, 128]))).unwrap();
        let groups: Vec<_> = table.groups().collect();
        assert_eq!(groups.len(), table.group_count());
        for (number, (usage, class)) in groups.into_iter().enumerate() {
            assert_eq!(table.group(usage, class), number);
            assert_eq!(table.is_direct(class), class == 2);
        }
        assert_eq!([0, 1, 2].map(|class| table.bytes(class)), [64, 128, 128]);
    }

    #[test]
    fn wrong_classes_are_refused() {
        for classes in [vec![], vec![0], vec![100], vec![128, 64], vec![64, 64], vec![1 << 63]] {
            let error = ClassTable::new(Arc::new(Fixed(classes))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("strategy `fixed` expected"), "{error}");
        }
    }
}
