//! From a request to its class, in a few instructions.

use super::strategy::AllocationStrategy;
use kiln_ir::{Error, ErrorKind, Result};

/// The classes of one pool, with a table that finds the class of a size without a search.
#[derive(Debug)]
pub(crate) struct ClassTable {
    bytes: Box<[u64]>,
    /// For each quarter of a power of two, the first class that could hold it.
    first: Box<[u16]>,
}

/// Every class is a multiple of this, so that blocks of a divided raw block stay aligned for vectors.
pub(crate) const CLASS_ALIGNMENT: u64 = 64;
const MAX_CLASSES: usize = 1024;

impl ClassTable {
    pub(crate) fn new(strategy: &dyn AllocationStrategy) -> Result<Self> {
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
        Ok(Self { bytes, first })
    }

    /// The smallest class that holds `bytes`; `None` above the largest.
    #[inline]
    pub(crate) fn find(&self, bytes: u64) -> Option<usize> {
        let mut class = usize::from(*self.first.get(quarter(bytes))?);
        while *self.bytes.get(class)? < bytes {
            class += 1;
        }
        Some(class)
    }

    pub(crate) fn bytes(&self, class: usize) -> u64 {
        self.bytes[class]
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Which quarter of which power of two a size lies in, rounded up; monotone in the size.
#[inline]
fn quarter(bytes: u64) -> usize {
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

    /// No request gets a class smaller than itself, and none gets a larger one than it needs.
    #[test]
    fn find_agrees_with_a_linear_search() {
        let strategies: [Box<dyn AllocationStrategy>; 4] = [
            Box::new(FineClasses),
            Box::new(PowersOfTwo),
            Box::new(Fixed(vec![64, 128, 4096, 4160, 4224, 1 << 20])),
            Box::new(Fixed(vec![1 << 40])),
        ];
        for strategy in &strategies {
            let table = ClassTable::new(&**strategy).unwrap();
            let classes = strategy.class_bytes();
            let edges = classes.iter().flat_map(|&class| [class - 1, class, class + 1, class + 17]);
            for bytes in (0..70_000).chain(edges).chain([u64::MAX, u64::MAX / 2]) {
                let expected = classes.iter().position(|&class| class >= bytes);
                assert_eq!(table.find(bytes), expected, "{bytes} bytes with {}", strategy.name());
            }
        }
    }

    #[test]
    fn wrong_classes_are_refused() {
        for classes in [vec![], vec![0], vec![100], vec![128, 64], vec![64, 64], vec![1 << 63]] {
            let error = ClassTable::new(&Fixed(classes)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("strategy `fixed` expected"), "{error}");
        }
    }
}
