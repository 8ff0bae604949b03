//! An order of entries as a doubly linked list through the slots of a shard, so that every step is constant time.

/// No slot.
const NIL: u32 = u32::MAX;

/// A slot's neighbours.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

/// Slots from newest to oldest. The links have an array of their own, eight bytes a slot: a hit moves a slot and writes
/// to its neighbours, which must not each cost a cache line of the entries.
#[derive(Debug)]
pub(crate) struct Order {
    newest: u32,
    oldest: u32,
    links: Vec<Link>,
}

impl Order {
    pub(crate) const fn new() -> Self {
        Self { newest: NIL, oldest: NIL, links: Vec::new() }
    }

    #[inline]
    pub(crate) fn newest(&self) -> Option<u32> {
        (self.newest != NIL).then_some(self.newest)
    }

    #[inline]
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// Puts a slot that is not in the list at the newest end.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32) {
        if slot as usize >= self.links.len() {
            self.links.resize(slot as usize + 1, Link { newer: NIL, older: NIL });
        }
        self.links[slot as usize] = Link { newer: NIL, older: self.newest };
        match self.newest {
            NIL => self.oldest = slot,
            newest => self.links[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    /// Takes a slot that is in the list out of it.
    #[inline]
    pub(crate) fn unlink(&mut self, slot: u32) {
        let Link { newer, older } = self.links[slot as usize];
        match newer {
            NIL => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oldest_first(order: &Order) -> Vec<u32> {
        let mut seen = Vec::new();
        let mut at = order.oldest;
        while at != NIL {
            seen.push(at);
            at = order.links[at as usize].newer;
        }
        seen
    }

    #[test]
    fn push_and_unlink_keep_the_order_at_both_ends_and_between() {
        let mut order = Order::new();
        for slot in 0..5 {
            order.push(slot);
        }
        assert_eq!(oldest_first(&order), [0, 1, 2, 3, 4]);
        for (gone, left) in [(2, vec![0, 1, 3, 4]), (0, vec![1, 3, 4]), (4, vec![1, 3])] {
            order.unlink(gone);
            assert_eq!(oldest_first(&order), left);
        }
        order.push(2);
        assert_eq!((order.oldest(), order.newest()), (Some(1), Some(2)));
        for slot in [1, 3, 2] {
            order.unlink(slot);
        }
        assert_eq!((order.oldest(), order.newest()), (None, None));
    }
}
