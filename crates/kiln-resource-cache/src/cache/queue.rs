//! The order in which entries leave, kept lazily.
//!
//! Moving an entry to the front of a list on every hit would cost as much as the rest of the hit. Here a hit only
//! writes a new stamp into its entry, and the queue learns of it when the entry's old mark comes to the front: it is
//! put back under the new stamp, and the next mark is looked at. A mark is never newer than its entry, so the first
//! mark that agrees with its entry is the oldest of all, exactly. An eviction may thus have to put back entries that
//! were used since, each at most once per use.

use super::shard::Standing;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What entries leave in order of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueOrder {
    /// The last use: least recently used first.
    Use,
    /// The insertion: first in, first out.
    Insertion,
    /// The policy's ranking: least worth first, then first in, first out.
    Worth,
}

impl QueueOrder {
    pub(crate) const ALL: [Self; 3] = [Self::Use, Self::Insertion, Self::Worth];
}

/// Where an entry stood when the queue last looked at it. Ordered by stamp first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) stamp: u64,
    /// The stamp of the entry's insertion, which tells it from a later entry of the same key.
    pub(crate) id: u64,
    pub(crate) hash: u64,
}

/// Marks, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Marks that came in order, as those of new entries do: no search, no scattered memory.
    in_order: VecDeque<Mark>,
    /// Marks that were put back.
    put_back: BinaryHeap<Reverse<Mark>>,
}

impl Queue {
    /// A queue of these marks, in any order.
    pub(crate) fn of(mut marks: Vec<Mark>) -> Self {
        marks.sort_unstable();
        Self { in_order: marks.into(), put_back: BinaryHeap::new() }
    }

    pub(crate) fn push(&mut self, mark: Mark) {
        if self.in_order.back().is_none_or(|newest| *newest <= mark) {
            self.in_order.push_back(mark);
        } else {
            self.put_back.push(Reverse(mark));
        }
    }

    /// Brings the oldest mark, which is behind its entry, up to date: drops it or puts it back under the newer stamp.
    pub(crate) fn correct(&mut self, oldest: Mark, standing: &Standing) {
        self.pop();
        if let Standing::Used(stamp) = *standing {
            // Not at the end of the ordered part: new entries come there.
            self.put_back.push(Reverse(Mark { stamp, ..oldest }));
        }
    }

    pub(crate) fn oldest(&self) -> Option<Mark> {
        match (self.in_order.front(), self.put_back.peek()) {
            (Some(a), Some(Reverse(b))) => Some(*a.min(b)),
            (a, b) => a.copied().or(b.map(|Reverse(mark)| *mark)),
        }
    }

    pub(crate) fn pop(&mut self) {
        let oldest = self.oldest();
        if self.in_order.front() == oldest.as_ref() {
            self.in_order.pop_front();
        } else {
            self.put_back.pop();
        }
    }

    /// Marks, those of entries that are gone included.
    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.put_back.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(stamp: u64) -> Mark {
        Mark { stamp, id: stamp, hash: 0 }
    }

    #[test]
    fn marks_come_out_oldest_first_however_they_went_in() {
        let mut queue = Queue::of(vec![mark(5), mark(1), mark(3)]);
        for stamp in [9, 7, 2, 10] {
            queue.push(mark(stamp));
        }
        assert_eq!(queue.oldest(), Some(mark(1)));
        queue.correct(mark(1), &Standing::Used(4));
        queue.correct(mark(2), &Standing::Gone);
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
