//! Allocates free blocks before they are requested.

use super::block::Block;
use super::core::{Core, ResolvedRequest};
use super::labels::UNLABELLED;
use super::request::BufferOptions;
use crate::memory::RawMemory;
use kiln_ir::{Result, bail};
use std::sync::Arc;

impl<M: RawMemory + ?Sized> Core<M> {
    pub(crate) fn pre_allocate(self: &Arc<Self>, options: &BufferOptions<'_>, count: u32) -> Result<u32> {
        let (class, bytes) = self.class_of(options.bytes);
        let usage = options.usage.unwrap_or(self.properties.default_usage);
        if self.classes.is_direct(class) || !self.settings.keeps_blocks() {
            let largest = self.classes.bytes(self.classes.direct());
            bail!(InvalidArgument, "pre_allocate expected pooling and at most {largest} bytes, found {bytes} bytes");
        }
        let request = ResolvedRequest { bytes: options.bytes, usage, class, label: UNLABELLED };
        let missing = count.saturating_sub(self.free_blocks(&request));
        // Collected first, so that creating one block does not displace another.
        let mut made = Vec::new();
        for _ in 0..missing {
            match self.create_or_wait(&request, bytes, || None) {
                Ok((block, _)) => made.push(block),
                Err(error) => {
                    self.release(made);
                    return Err(error);
                }
            }
        }
        // Shards hold permits for blocks in use. They are returned, so that the limit has room for the new blocks.
        self.return_unused_permits(usage, class);
        self.demand.raise_limit(self.classes.group(usage, class), count);
        // They count as used until the next maintenance, so that other requests do not displace them.
        let expected = u64::from(count) * self.classes.bytes(class);
        self.occupancy.record_peak(self.occupancy.in_use() + expected);
        made.into_iter().for_each(|block| self.keep_preallocated(block));
        self.maintenance.start(self);
        Ok(self.free_blocks(&request).min(count))
    }

    fn free_blocks(&self, request: &ResolvedRequest) -> u32 {
        self.collect_completed();
        let ready = |list: &mut super::shard::FreeList<M>| {
            list.touched = true;
            list.ready.len() as u32
        };
        self.shards.each().filter_map(|mut shard| shard.existing_list(request.usage, request.class).map(ready)).sum()
    }

    /// Caches a new block as a free one, unless pressure forbids it.
    fn keep_preallocated(&self, block: Arc<Block<M>>) {
        if self.settings.debug_checks() {
            super::debug::poison(&block);
        }
        let (usage, class) = (block.usage, block.class);
        let kept = {
            let mut shard = self.shards.own();
            shard.list(usage, class).touched = true;
            Self::keep(&mut shard, block)
        };
        if let Err(block) = kept {
            self.release([block]);
        }
    }
}
