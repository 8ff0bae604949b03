//! Memory for the results of a run: small results share a block.
//!
//! A pool allocation, its lock and its release cost more than an op on a few elements. A block is freed with its last
//! result, so one small tensor kept from a run holds at most [`MAX_SHARED_BYTES`].

use super::{allocation_bytes, check_size};
use crate::{Device, Result};
use kiln_device::Buffer;
use kiln_ir::graph::TensorType;
use smallvec::SmallVec;
use std::ops::Range;

/// Maximum size of a shared block, and of each result in it, in bytes.
const MAX_SHARED_BYTES: u64 = 16 << 10;
const MAX_SMALL_BYTES: u64 = 1 << 10;
/// Alignment of results in a block: a cache line.
const ALIGNMENT: u64 = 64;

/// The block and range of each result of a program.
pub(super) struct Packing {
    blocks: Vec<Block>,
    /// Empty if each result has its own block.
    places: Vec<(usize, Range<u64>)>,
}

struct Block {
    bytes: u64,
    /// The first result in the block: the only one if it is large.
    first: TensorType,
}

impl Packing {
    /// Assigns results to blocks: one each, unless blocks of the device `may_share`.
    pub(super) fn new<'a>(results: impl Iterator<Item = &'a TensorType>, may_share: bool) -> Self {
        let (mut blocks, mut places): (Vec<Block>, Vec<_>) = (Vec::new(), Vec::new());
        // The shared block that is being filled.
        let mut shared: Option<usize> = None;
        for ty in results {
            let bytes = allocation_bytes(ty.bytes());
            let is_small = may_share && bytes <= MAX_SMALL_BYTES;
            let start_in = |block: usize| blocks[block].bytes.next_multiple_of(ALIGNMENT);
            let has_room = |&block: &usize| start_in(block) + bytes <= MAX_SHARED_BYTES;
            // Next fit: only the newest shared block is tried, so packing takes linear time.
            let block = shared.filter(has_room).filter(|_| is_small).unwrap_or(blocks.len());
            if block == blocks.len() {
                blocks.push(Block { bytes: 0, first: ty.clone() });
            }
            if is_small {
                shared = Some(block);
            }
            let start = blocks[block].bytes.next_multiple_of(ALIGNMENT);
            places.push((block, start..start + bytes));
            blocks[block].bytes = start + bytes;
        }
        // Each result then has the block with its own index, and `allocate` skips the slices.
        if blocks.len() == places.len() {
            places.clear();
        }
        Self { blocks, places }
    }

    /// Allocates memory for the results, in order.
    ///
    /// # Errors
    /// Same as [`allocate_elements`](super::allocate_elements).
    pub(super) fn allocate(&self, device: &Device) -> Result<SmallVec<[Buffer; 4]>> {
        let mut blocks: SmallVec<[Buffer; 4]> = SmallVec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            // The results of a shared block are at most `MAX_SMALL_BYTES`, so only a result with its own block can be
            // too large.
            check_size(device, &block.first)?;
            blocks.push(device.buffer(block.bytes)?);
        }
        if self.places.is_empty() {
            return Ok(blocks);
        }
        let mut results: SmallVec<[Buffer; 4]> = SmallVec::with_capacity(self.places.len());
        for (block, range) in &self.places {
            results.push(blocks[*block].slice(range.clone())?);
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{DType, Shape};

    fn pack(elements: &[usize], may_share: bool) -> Packing {
        let types: Vec<TensorType> =
            elements.iter().map(|&length| TensorType { shape: Shape::from(length), dtype: DType::F32 }).collect();
        Packing::new(types.iter(), may_share)
    }

    #[test]
    fn small_results_share_blocks_that_stay_small() {
        let packing = pack(&[16, 1 << 20, 4, 0, 100, 256, 257], true);
        let bytes: Vec<u64> = packing.blocks.iter().map(|block| block.bytes).collect();
        // Elements have four bytes; small results are aligned to 64 bytes in the first block.
        assert_eq!(bytes, [64 + 64 + 64 + 448 + 1024, 4 << 20, 257 * 4 + 12]);
        let places =
            [(0, 0..64), (1, 0..4 << 20), (0, 64..80), (0, 128..144), (0, 192..592), (0, 640..1664), (2, 0..1040)];
        assert_eq!(packing.places, places);
        let many = pack(&[16; 1000], true);
        assert_eq!(many.blocks.len(), 1000 * 64 / MAX_SHARED_BYTES as usize + 1);
        assert!(many.blocks.iter().all(|block| block.bytes <= MAX_SHARED_BYTES));
        // Each is smaller than a cache line, which leaves gaps.
        assert!(pack(&[4; 1000], true).blocks.iter().all(|block| block.bytes <= MAX_SHARED_BYTES));
    }

    #[test]
    fn where_blocks_are_not_divided_each_result_has_its_own() {
        let packing = pack(&[16, 4, 100], false);
        assert!(packing.places.is_empty());
        assert_eq!(packing.blocks.iter().map(|block| block.bytes).collect::<Vec<_>>(), [64, 16, 400]);
        assert!(pack(&[16], true).places.is_empty());
    }
}
