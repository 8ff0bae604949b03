//! An append-only map from types to values with lock-free reads.
//!
//! Every lookup in a registry reads it, from many threads at once, while types are added a few dozen times per process.
//! Nothing is ever removed, so a read needs one acquire load per link, and a writer only fills the empty end of a
//! chain.

use std::any::TypeId;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

/// More than the kernel types of a large program, so that chains are short.
const BUCKETS: usize = 64;

pub(crate) struct TypeMap<T> {
    buckets: [Chain<T>; BUCKETS],
}

type Chain<T> = OnceLock<Box<Link<T>>>;

struct Link<T> {
    id: TypeId,
    value: T,
    next: Chain<T>,
}

impl<T> TypeMap<T> {
    pub(crate) fn new() -> Self {
        Self { buckets: std::array::from_fn(|_| OnceLock::new()) }
    }

    #[inline]
    pub(crate) fn get(&self, id: TypeId) -> Option<&T> {
        let mut chain = self.bucket(id);
        while let Some(link) = chain.get() {
            if link.id == id {
                return Some(&link.value);
            }
            chain = &link.next;
        }
        None
    }

    /// Returns the value of a type, inserting `value` if there is none.
    pub(crate) fn get_or_insert(&self, id: TypeId, value: T) -> &T {
        let mut chain = self.bucket(id);
        let mut value = Some(value);
        loop {
            // Concurrent writers of one end wait for each other; the loser continues with the winner's link.
            let link = chain.get_or_init(|| {
                let value = value.take().expect("a chain has one empty end, and it is filled once");
                Box::new(Link { id, value, next: OnceLock::new() })
            });
            if link.id == id {
                return &link.value;
            }
            chain = &link.next;
        }
    }

    /// Returns all values in unspecified order; sort them before showing them.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.buckets
            .iter()
            .flat_map(|bucket| std::iter::successors(bucket.get(), |link| link.next.get()).map(|link| &link.value))
    }

    #[inline]
    fn bucket(&self, id: TypeId) -> &Chain<T> {
        let mut bits = TypeIdBits(0);
        id.hash(&mut bits);
        &self.buckets[bits.0 as usize % BUCKETS]
    }
}

/// Uses a `TypeId`, which is already a hash, without hashing it again.
struct TypeIdBits(u64);

impl Hasher for TypeIdBits {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // Not used by today's `TypeId`, which calls `write_u64` once; the hash stays valid if that changes.
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tag<const N: usize>;

    #[test]
    fn holds_more_types_than_buckets_and_keeps_the_first_value() {
        let map = TypeMap::new();
        let mut count = 0;
        macro_rules! add {
            ($($n:literal)*) => {$(
                assert_eq!(*map.get_or_insert(TypeId::of::<Tag<$n>>(), $n), $n);
                assert_eq!(*map.get_or_insert(TypeId::of::<Tag<$n>>(), 1000), $n);
                count += 1;
            )*};
        }
        add!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
             40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75);
        assert_eq!(map.get(TypeId::of::<Tag<42>>()), Some(&42));
        assert_eq!(map.get(TypeId::of::<String>()), None);
        let mut all: Vec<_> = map.values().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..count).collect::<Vec<_>>());
    }
}
