//! A ghost list: remembers recently evicted keys, to distinguish a limit that is too tight from keys that never repeat.

/// The minimum number of evictions that a shard remembers. A larger shard remembers twice its number of entries.
const MIN_GHOSTS: usize = 256;

/// Fingerprints of recently evicted keys, indexed by hash. A later eviction overwrites an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(Vec<u32>);

impl Ghosts {
    /// Remembers a key evicted from a shard with `shard_entries` entries.
    ///
    /// The table is allocated by the first eviction, because most caches never evict. A table that is too small is
    /// replaced by an empty one.
    pub(crate) fn remember(&mut self, hash: u64, shard_entries: usize) {
        if self.0.len() < shard_entries.max(MIN_GHOSTS) {
            self.0 = vec![0; (2 * shard_entries).max(MIN_GHOSTS).next_power_of_two()];
        }
        let (position, print) = self.locate(hash);
        self.0[position] = print;
    }

    /// Returns whether the key was evicted recently, and forgets it.
    pub(crate) fn recall(&mut self, hash: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let (position, print) = self.locate(hash);
        let recalled = self.0[position] == print;
        if recalled {
            self.0[position] = 0;
        }
        recalled
    }

    /// Returns the index (low bits) and the fingerprint (high bits) of a hash. A fingerprint is never zero, which marks
    /// an empty position.
    fn locate(&self, hash: u64) -> (usize, u32) {
        // The length is a power of two (`remember`) and not zero: `recall` returns early for an empty table.
        (hash as usize & (self.0.len() - 1), ((hash >> 32) as u32) | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_once_and_only_what_was_evicted() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.recall(7 << 33));
        ghosts.remember(7 << 33, 10);
        assert!(!ghosts.recall(9 << 33));
        assert!(ghosts.recall(7 << 33));
        assert!(!ghosts.recall(7 << 33));
    }

    #[test]
    fn a_large_shard_remembers_about_as_many_as_it_has_entries() {
        let mut ghosts = Ghosts::default();
        let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        for n in 0..10_000 {
            ghosts.remember(hash(n), 10_000);
        }
        let recalled = (0..10_000).filter(|&n| ghosts.recall(hash(n))).count();
        assert!(recalled > 7_000, "{recalled} of 10,000");
    }
}
