//! Slabs: raw blocks that are divided into small blocks of one class, if the memory allows it.
//!
//! A raw block of a page for every 256 bytes would waste most of it, and driver calls are slow. A slab is released to
//! the driver when all of its slots are free; blocks in use can be moved to fuller slabs first.

use super::block::{Block, BlockLocation, SlabSlot};
use crate::memory::{RawBlock, RawMemory};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Classes up to this size use slabs.
pub(crate) const MAX_SLOT_BYTES: u64 = 32 << 10;
const SLOTS: u64 = 64;
const MIN_SLAB_BYTES: u64 = 64 << 10;

/// Returns the size of a slab for slots of `slot_bytes`: 64 KiB to 2 MiB.
pub(crate) fn slab_bytes(slot_bytes: u64) -> u64 {
    let slots = SLOTS.max(MIN_SLAB_BYTES / slot_bytes);
    (slots * slot_bytes).next_multiple_of(MIN_SLAB_BYTES)
}

/// The slabs of a pool. Slabs of one usage and class form a group, numbered by the pool.
pub(crate) struct Slabs<M: RawMemory + ?Sized> {
    slabs: Vec<Option<Slab<M>>>,
    vacant: Vec<u32>,
    /// For each group, the slabs with a free slot.
    open: BTreeMap<usize, Vec<u32>>,
    /// Bytes of all slabs outside of used slots: free slots, and the remainder after the last one.
    pub(crate) free_bytes: u64,
}

struct Slab<M: RawMemory + ?Sized> {
    raw: Arc<RawBlock>,
    raw_bytes: u64,
    slot_bytes: u64,
    group: usize,
    /// The block in each slot; dangling if the slot is free.
    slots: Vec<Weak<Block<M>>>,
    free: Vec<u32>,
    /// The position of this slab in its group's list of open slabs.
    open_at: Option<usize>,
}

/// A slab without used slots: the raw block, to be dropped without the lock, and its size.
pub(crate) struct EmptySlab {
    pub(crate) raw: Arc<RawBlock>,
    pub(crate) bytes: u64,
}

/// Blocks of one group that are to be moved to fuller slabs.
pub(crate) struct Moves<M: RawMemory + ?Sized> {
    group: usize,
    pub(crate) blocks: Vec<Arc<Block<M>>>,
    /// The slabs to move to, the fullest last.
    targets: Vec<u32>,
}

impl<M: RawMemory + ?Sized> Slabs<M> {
    pub(crate) fn new() -> Self {
        Self { slabs: Vec::new(), vacant: Vec::new(), open: BTreeMap::new(), free_bytes: 0 }
    }

    /// Takes a free slot of the group, if a slab has one. The caller registers its block with `claim`.
    pub(crate) fn carve(&mut self, group: usize) -> Option<BlockLocation> {
        let id = *self.open.get(&group)?.last()?;
        Some(self.take_slot(id))
    }

    /// Adds a slab and takes its first slot.
    pub(crate) fn add(&mut self, group: usize, raw: RawBlock, raw_bytes: u64, slot_bytes: u64) -> BlockLocation {
        let count = raw_bytes / slot_bytes;
        let slab = Slab {
            raw: Arc::new(raw),
            raw_bytes,
            slot_bytes,
            group,
            slots: (0..count).map(|_| Weak::new()).collect(),
            // Reversed, so that slots are used from the start of the slab.
            free: (0..count as u32).rev().collect(),
            open_at: None,
        };
        self.free_bytes += raw_bytes;
        let id = match self.vacant.pop() {
            Some(id) => {
                self.slabs[id as usize] = Some(slab);
                id
            }
            None => {
                self.slabs.push(Some(slab));
                (self.slabs.len() - 1) as u32
            }
        };
        self.open_slab(id);
        self.take_slot(id)
    }

    /// Registers the block of a slot, so that it can be moved.
    pub(crate) fn claim(&mut self, at: SlabSlot, block: &Arc<Block<M>>) {
        self.slab(at.slab).slots[at.slot as usize] = Arc::downgrade(block);
    }

    /// Frees a slot. Returns the slab if it was the last slot in use.
    pub(crate) fn put(&mut self, at: SlabSlot) -> Option<EmptySlab> {
        let slab = self.slab(at.slab);
        slab.slots[at.slot as usize] = Weak::new();
        slab.free.push(at.slot);
        let (slot_bytes, empty, open) = (slab.slot_bytes, slab.free.len() == slab.slots.len(), slab.open_at.is_some());
        self.free_bytes += slot_bytes;
        if !open {
            self.open_slab(at.slab);
        }
        if !empty {
            return None;
        }
        self.close_slab(at.slab);
        let slab = self.slabs[at.slab as usize].take()?;
        self.vacant.push(at.slab);
        self.free_bytes -= slab.raw_bytes;
        Some(EmptySlab { raw: slab.raw, bytes: slab.raw_bytes })
    }

    /// Returns the bytes of the largest run of free slots in one slab, for the fragmentation figure.
    pub(crate) fn largest_free_run_bytes(&self) -> u64 {
        self.slabs.iter().flatten().map(Slab::largest_free_run_bytes).max().unwrap_or(0)
    }

    /// Plans for each group which blocks to move, so that sparse slabs become empty.
    pub(crate) fn plan_moves(&self) -> Vec<Moves<M>> {
        self.open
            .iter()
            .map(|(&group, ids)| self.plan_group(group, ids))
            .filter(|plan| !plan.blocks.is_empty())
            .collect()
    }

    fn plan_group(&self, group: usize, ids: &[u32]) -> Moves<M> {
        let mut slabs: Vec<(u32, &Slab<M>)> =
            ids.iter().filter_map(|&id| self.slabs[id as usize].as_ref().map(|slab| (id, slab))).collect();
        // By id as well, so that plans are deterministic.
        slabs.sort_by_key(|(id, slab)| (slab.live(), *id));
        // `room` is the free slots of the slabs that stay, `moving` the blocks of those that are emptied.
        let mut room: usize = slabs.iter().map(|(_, slab)| slab.free.len()).sum();
        let mut moving = 0;
        // Selects the emptiest slabs whose blocks all fit into the others: copies are only worthwhile if the slab
        // becomes empty.
        let emptied = slabs.iter().take_while(|(_, slab)| {
            room -= slab.free.len();
            moving += slab.live();
            moving <= room
        });
        let emptied = emptied.count();
        let blocks =
            slabs[..emptied].iter().flat_map(|(_, slab)| slab.slots.iter().filter_map(Weak::upgrade)).collect();
        Moves { group, blocks, targets: slabs[emptied..].iter().map(|(id, _)| *id).collect() }
    }

    /// Takes a free slot of the fullest slab that the plan moves blocks to.
    pub(crate) fn next_target(&mut self, plan: &mut Moves<M>) -> Option<(BlockLocation, SlabSlot)> {
        loop {
            let id = *plan.targets.last()?;
            let slab = self.slabs[id as usize].as_ref();
            // Since the plan was made, the slab may have become full or empty, or its number may have been reused.
            if slab.is_some_and(|slab| slab.group == plan.group && !slab.free.is_empty()) {
                let location = self.take_slot(id);
                let slot = location.slot?;
                return Some((location, slot));
            }
            plan.targets.pop();
        }
    }

    fn slab(&mut self, id: u32) -> &mut Slab<M> {
        self.slabs[id as usize].as_mut().expect("a slab lives while one of its slots is taken")
    }

    fn take_slot(&mut self, id: u32) -> BlockLocation {
        let slab = self.slab(id);
        let slot = slab.free.pop().expect("an open slab has a free slot");
        let location = BlockLocation {
            raw: Arc::clone(&slab.raw),
            offset: u64::from(slot) * slab.slot_bytes,
            slot: Some(SlabSlot { slab: id, slot }),
        };
        let (slot_bytes, full) = (slab.slot_bytes, slab.free.is_empty());
        self.free_bytes -= slot_bytes;
        if full {
            self.close_slab(id);
        }
        location
    }

    fn open_slab(&mut self, id: u32) {
        let group = self.slab(id).group;
        let open = self.open.entry(group).or_default();
        open.push(id);
        let at = open.len() - 1;
        self.slab(id).open_at = Some(at);
    }

    fn close_slab(&mut self, id: u32) {
        let slab = self.slab(id);
        let (group, Some(at)) = (slab.group, slab.open_at.take()) else { return };
        let open = self.open.get_mut(&group).expect("a slab's group exists");
        // The last open slab takes this position.
        open.swap_remove(at);
        if let Some(&moved) = open.get(at) {
            self.slab(moved).open_at = Some(at);
        }
    }
}

impl<M: RawMemory + ?Sized> Slab<M> {
    fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn largest_free_run_bytes(&self) -> u64 {
        let mut free = vec![false; self.slots.len()];
        for &slot in &self.free {
            free[slot as usize] = true;
        }
        let longest = free.split(|free| !free).map(<[bool]>::len).max().unwrap_or(0);
        longest as u64 * self.slot_bytes
    }
}
