//! A small memory of what was evicted lately, to tell a limit that is too tight from a workload that never repeats.

/// Evictions remembered by a shard at least; a larger shard remembers twice as many as it has entries.
const MIN_GHOSTS: usize = 256;

/// Fingerprints of recently evicted keys, one per position; a later eviction overwrites an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(Vec<u32>);

impl Ghosts {
    /// Remembers a key evicted from a shard of this size. The table is allocated by the first eviction: most caches
    /// never evict. One that is outgrown is made anew, and forgets.
    pub(crate) fn remember(&mut self, hash: u64, shard_entries: usize) {
        if self.0.len() < shard_entries.max(MIN_GHOSTS) {
            self.0 = vec![0; (2 * shard_entries).max(MIN_GHOSTS).next_power_of_two()];
        }
        let (position, print) = self.locate(hash);
        self.0[position] = print;
    }

    /// Whether the key was evicted lately; forgets it.
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

    /// Position from the low bits, fingerprint from the high ones. Never zero, which means "nobody".
    fn locate(&self, hash: u64) -> (usize, u32) {
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
