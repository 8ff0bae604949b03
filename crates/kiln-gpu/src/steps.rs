//! Command lists as wgpu commands.

use crate::block::Block;
use crate::scope::{catch, convert};
use crate::timeline::Timeline;
use kiln_ir::{Error, ErrorKind, Result};
use kiln_runtime::{Buffer, Command};

/// One command, with its buffers found.
#[derive(Debug)]
pub(crate) enum Step {
    Copy { from: (Block, u64), to: (Block, u64), bytes: u64 },
    Zero { block: Block, offset: u64, bytes: u64 },
}

impl Step {
    /// The step for a command.
    pub(crate) fn new(command: &Command) -> Result<Self> {
        match command {
            Command::Copy { from, to } => Ok(Self::Copy { from: find(from)?, to: find(to)?, bytes: from.bytes() }),
            Command::Zero { buffer } => {
                let (block, offset) = find(buffer)?;
                Ok(Self::Zero { block, offset, bytes: buffer.bytes() })
            }
            other => Err(Error::new(ErrorKind::Unsupported, format!("expected a copy or a zero, found {other:?}"))),
        }
    }

    fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        match self {
            Self::Copy { from: (from, from_offset), to: (to, to_offset), bytes } => {
                encoder.copy_buffer_to_buffer(&from.buffer, *from_offset, &to.buffer, *to_offset, *bytes);
            }
            Self::Zero { block, offset, bytes } => encoder.clear_buffer(&block.buffer, *offset, Some(*bytes)),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (first, second) = match self {
            Self::Copy { from: (from, _), to: (to, _), .. } => (from, Some(to)),
            Self::Zero { block, .. } => (block, None),
        };
        [Some(first), second].into_iter().flatten()
    }
}

/// The block of a buffer and the offset in it. The lock on its place is not kept: a GPU's blocks never move, and a list
/// that names a buffer twice would lock it twice.
pub(crate) fn find(buffer: &Buffer) -> Result<(Block, u64)> {
    let access = buffer.access();
    let region = access.region();
    Ok((Block::of(region.raw())?.clone(), region.offset()))
}

/// Encodes the steps and hands them to the queue as one submission.
pub(crate) fn submit(timeline: &Timeline, steps: &[Step]) -> Result<u64> {
    timeline.fault.check()?;
    if steps.is_empty() {
        return timeline.submit(None);
    }
    let (commands, error) = catch(&timeline.device, || encode(&timeline.device, steps));
    if let Some(error) = error {
        return Err(convert(error, "encode a command list"));
    }
    let mut blocks: Vec<&Block> = steps.iter().flat_map(Step::blocks).collect();
    blocks.sort_by_key(|block| block.lock_rank());
    blocks.dedup_by_key(|block| block.lock_rank());
    let locks = blocks.iter().map(|block| block.lock()).collect::<Result<Vec<_>>>()?;
    let submission = timeline.submit(Some(commands))?;
    for block in blocks {
        block.mark_used(submission);
    }
    drop(locks);
    Ok(submission)
}

fn encode(device: &wgpu::Device, steps: &[Step]) -> wgpu::CommandBuffer {
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    for step in steps {
        step.encode(&mut encoder);
    }
    encoder.finish()
}
