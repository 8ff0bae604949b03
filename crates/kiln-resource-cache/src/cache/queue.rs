//! The eviction order, maintained lazily.
//!
//! Moving an entry to the front of a list on every hit would cost as much as the rest of the hit. Instead, a hit only
//! writes a new stamp into its entry. The queue notices when the entry's old item reaches the front: the item is
//! reinserted with the new stamp, and the next one is examined. An item is never newer than its entry, so the first
//! item that agrees with its entry is exactly the oldest. An eviction may therefore have to reinsert entries that were
//! used since, each at most once per use.

use super::shard::ItemState;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The order in which entries are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueOrder {
    /// By last use: least recently used first.
    Use,
    /// By insertion: first in, first out.
    Insertion,
    /// By the ranking of the policy: lowest score first, then first in, first out.
    Score,
}

impl QueueOrder {
    pub(crate) const ALL: [Self; 3] = [Self::Use, Self::Insertion, Self::Score];
}

/// The stamp of an entry when the queue last examined it. Ordered by stamp first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueItem {
    pub(crate) stamp: u64,
    /// The stamp of the entry's insertion, which distinguishes it from a later entry of the same key.
    pub(crate) id: u64,
    pub(crate) hash: u64,
}

/// Queue items, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Items that arrived in order, as those of new entries do. Appending and popping is cheap and local in memory.
    in_order: VecDeque<QueueItem>,
    /// Items that were reinserted with a newer stamp.
    reinserted: BinaryHeap<Reverse<QueueItem>>,
}

impl Queue {
    /// Creates a queue of items in any order.
    pub(crate) fn from_items(mut items: Vec<QueueItem>) -> Self {
        items.sort_unstable();
        Self { in_order: items.into(), reinserted: BinaryHeap::new() }
    }

    pub(crate) fn push(&mut self, item: QueueItem) {
        // Items of new entries are in order, so that the heap only contains reinserted ones.
        if self.in_order.back().is_none_or(|newest| *newest <= item) {
            self.in_order.push_back(item);
        } else {
            self.reinserted.push(Reverse(item));
        }
    }

    /// Updates the oldest item, which is older than its entry: removes it, or reinserts it with the entry's stamp.
    pub(crate) fn correct(&mut self, oldest: QueueItem, state: &ItemState) {
        self.pop();
        if let ItemState::Used(stamp) = *state {
            // Not appended to the ordered part: the items of new entries go there.
            self.reinserted.push(Reverse(QueueItem { stamp, ..oldest }));
        }
    }

    pub(crate) fn oldest(&self) -> Option<QueueItem> {
        match (self.in_order.front(), self.reinserted.peek()) {
            (Some(a), Some(Reverse(b))) => Some(*a.min(b)),
            (a, b) => a.copied().or(b.map(|Reverse(item)| *item)),
        }
    }

    pub(crate) fn pop(&mut self) {
        let oldest = self.oldest();
        if self.in_order.front() == oldest.as_ref() {
            self.in_order.pop_front();
        } else {
            self.reinserted.pop();
        }
    }

    /// Returns the number of items, including those of removed entries.
    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.reinserted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(stamp: u64) -> QueueItem {
        QueueItem { stamp, id: stamp, hash: 0 }
    }

    #[test]
    fn items_are_popped_oldest_first() {
        let mut queue = Queue::from_items(vec![item(5), item(1), item(3)]);
        for stamp in [9, 7, 2, 10] {
            queue.push(item(stamp));
        }
        assert_eq!(queue.oldest(), Some(item(1)));
        queue.correct(item(1), &ItemState::Used(4));
        queue.correct(item(2), &ItemState::Gone);
        assert_eq!(queue.len(), 6);
        let drained: Vec<u64> = std::iter::from_fn(|| {
            let oldest = queue.oldest()?;
            queue.pop();
            Some(oldest.stamp)
        })
        .collect();
        assert_eq!(drained, [3, 4, 5, 7, 9, 10]);
        assert_eq!(queue.len(), 0);
    }
}
