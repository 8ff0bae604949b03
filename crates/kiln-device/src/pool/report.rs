//! Reports the holders of a pool's memory.

use super::core::Core;
use crate::memory::RawMemory;
use crate::size::Bytes;
use serde::Serialize;
use std::fmt;

/// The holders of a pool's memory, and its free memory.
///
/// Returned by [`Pool::report`](crate::Pool::report); see [`Pool`](crate::Pool) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    /// Every label with live buffers, the largest holder first.
    pub holders: Vec<Holder>,
    /// Bytes of free blocks; a cleanup releases them.
    pub bytes_cached: u64,
    /// The part of these that submitted work may still use.
    pub bytes_pending: u64,
    /// Bytes in unused slots between live buffers, which [`Pool::defragment`](super::Pool::defragment) may release.
    pub bytes_unused_slots: u64,
    /// Bytes that the pool holds from the driver.
    pub bytes_reserved: u64,
    /// The maximum bytes that it may hold.
    pub budget_bytes: u64,
}

/// A label and the memory held under it.
///
/// See [`Pool`](crate::Pool) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The label of the requests.
    pub label: String,
    /// The number of live buffers.
    pub buffers: u64,
    /// Their bytes, including padding.
    pub bytes: u64,
}

impl PoolReport {
    pub(crate) fn of<M: RawMemory + ?Sized>(core: &Core<M>) -> Self {
        let (mut labels, mut cached) = (Vec::new(), 0);
        core.collect_completed();
        // All at once: a label's count may be negative in one shard, if another thread frees what it allocated.
        let mut shards = core.shards.lock_all();
        for shard in &mut shards {
            if labels.len() < shard.labels.len() {
                labels.resize(shard.labels.len(), (0, 0));
            }
            for (sum, label) in labels.iter_mut().zip(&shard.labels) {
                *sum = (sum.0 + label.blocks, sum.1 + label.bytes);
            }
            for (_, _, list) in shard.lists() {
                cached += list.ready.iter().map(|block| block.bytes).sum::<u64>();
            }
        }
        let (pending, unused, reserved) = (core.pending.bytes(), core.slabs.lock().free_bytes, core.budget.reserved());
        drop(shards);
        let held = labels.iter().enumerate().filter(|(_, (blocks, _))| *blocks > 0);
        let mut holders: Vec<Holder> = held
            .map(|(id, &(blocks, bytes))| Holder {
                label: core.labels.name(id as u32),
                buffers: blocks as u64,
                bytes: bytes as u64,
            })
            .collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
        Self {
            holders,
            bytes_cached: cached + pending,
            bytes_pending: pending,
            bytes_unused_slots: unused,
            bytes_reserved: reserved,
            budget_bytes: core.budget.limit(),
        }
    }

    /// Lists the largest holders and what could be released, for error messages.
    pub(crate) fn one_line(&self) -> String {
        const NAMED: usize = 5;
        let mut held: Vec<String> = self.holders.iter().take(NAMED).map(ToString::to_string).collect();
        if self.holders.len() > NAMED {
            held.push(format!("{} other labels", self.holders.len() - NAMED));
        }
        let held = if held.is_empty() { "no live buffers".into() } else { format!("held by {}", held.join(", ")) };
        let mut text = format!("{held}; a cleanup could free {}", Bytes(self.bytes_cached - self.bytes_pending));
        if self.bytes_unused_slots > 0 {
            text += &format!(", `defragment` up to {}", Bytes(self.bytes_unused_slots));
        }
        text
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.buffers == 1 { "" } else { "s" };
        write!(f, "`{}` {} in {} buffer{plural}", self.label, Bytes(self.bytes), self.buffers)
    }
}

impl fmt::Display for PoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for holder in &self.holders {
            writeln!(f, "{:>10}  {:>6}  {}", Bytes(holder.bytes).to_string(), holder.buffers, holder.label)?;
        }
        for (bytes, what) in [
            (self.bytes_cached - self.bytes_pending, "(free)"),
            (self.bytes_pending, "(free once submitted work is done)"),
            (self.bytes_unused_slots, "(unused slots)"),
        ] {
            if bytes > 0 {
                writeln!(f, "{:>10}  {:>6}  {what}", Bytes(bytes).to_string(), "")?;
            }
        }
        write!(f, "{:>10}  of {} reserved", Bytes(self.bytes_reserved).to_string(), Bytes(self.budget_bytes))
    }
}
