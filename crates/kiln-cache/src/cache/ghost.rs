//! A small memory of what was evicted lately, to tell a limit that is too tight from a workload that never repeats.

/// Evictions remembered per shard.
const GHOSTS: usize = 256;

/// Fingerprints of recently evicted keys, one per position; a later eviction overwrites an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(Vec<u32>);

impl Ghosts {
    /// Remembers an evicted key. The table is allocated by the first eviction: most caches never evict.
    pub(crate) fn remember(&mut self, hash: u64) {
        if self.0.is_empty() {
            self.0 = vec![0; GHOSTS];
        }
        let (position, print) = locate(hash);
        self.0[position] = print;
    }

    /// Whether the key was evicted lately; forgets it.
    pub(crate) fn recall(&mut self, hash: u64) -> bool {
        let (position, print) = locate(hash);
        match self.0.get_mut(position) {
            Some(ghost) if *ghost == print => {
                *ghost = 0;
                true
            }
            _ => false,
        }
    }
}

/// Position from the low bits, fingerprint from bits that neither it nor the choice of the shard uses. Never zero,
/// which means "nobody".
fn locate(hash: u64) -> (usize, u32) {
    ((hash as usize) % GHOSTS, ((hash >> 20) as u32) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_once_and_only_what_was_evicted() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.recall(7 << 20));
        ghosts.remember(7 << 20);
        assert!(!ghosts.recall(9 << 20));
        assert!(ghosts.recall(7 << 20));
        assert!(!ghosts.recall(7 << 20));
    }
}
