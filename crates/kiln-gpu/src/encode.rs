//! Command lists as wgpu commands.

use crate::block::Block;
use crate::device::GpuDevice;
use crate::kernel::{Bound, GpuKernel};
use crate::scope::check;
use crate::stamps::Watched;
use crate::timeline::{Submission, Timeline};
use crate::values::{Page, Values};
use kiln_device::{Buffer, Command, Dispatch, KernelRun};
use kiln_ir::{Result, error};

/// One command, with its buffers found.
pub(crate) enum ResolvedCommand<'a> {
    Copy { from: (Block, u64), to: (Block, u64), bytes: u64 },
    Zero { block: Block, offset: u64, bytes: u64 },
    Dispatch(Run<'a>),
}

/// A dispatch with everything that it binds.
pub(crate) struct Run<'a> {
    kernel: &'a GpuKernel,
    bound: &'a Bound,
    values: Option<wgpu::BindGroup>,
    offsets: Vec<u32>,
    workgroups: [u32; 3],
    dispatch: &'a Dispatch,
}

impl<'a> ResolvedCommand<'a> {
    fn new(gpu: &GpuDevice, command: &'a Command, values: &mut Values) -> Result<Self> {
        match command {
            Command::Copy { from, to, .. } => Ok(Self::Copy { from: find(from)?, to: find(to)?, bytes: from.bytes() }),
            Command::Zero { buffer } => {
                let (block, offset) = find(buffer)?;
                Ok(Self::Zero { block, offset, bytes: buffer.bytes() })
            }
            Command::Dispatch(dispatch) => {
                let (kernel, workgroups) = (GpuKernel::of(dispatch)?, dispatch.workgroups());
                let offsets = values.add(dispatch, gpu.value_alignment());
                let bound = bind(gpu, kernel, dispatch)?;
                Ok(Self::Dispatch(Run { kernel, bound, values: None, offsets, workgroups, dispatch }))
            }
            other => Err(error!(Unsupported, "expected a command that is known, found {other:?}")),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (first, second, bound) = match self {
            Self::Copy { from: (from, _), to: (to, _), .. } => (Some(from), Some(to), &[][..]),
            Self::Zero { block, .. } => (Some(block), None, &[][..]),
            Self::Dispatch(run) => (None, None, &run.bound.blocks[..]),
        };
        [first, second].into_iter().flatten().chain(bound)
    }
}

/// The block of a buffer and the offset in it. The lock on its place is not kept: a GPU's blocks never move, and a list
/// that names a buffer twice would lock it twice.
pub(crate) fn find(buffer: &Buffer) -> Result<(Block, u64)> {
    let access = buffer.access();
    let region = access.region();
    Ok((Block::of(region.raw())?.clone(), region.offset()))
}

fn bind<'a>(gpu: &GpuDevice, kernel: &GpuKernel, dispatch: &'a Dispatch) -> Result<&'a Bound> {
    let prepared = dispatch.prepared(|| Ok(Box::new(gpu.kernels().bind(kernel, dispatch)?)))?;
    prepared
        .downcast_ref()
        .ok_or_else(|| error!(InvalidArgument, "expected a dispatch for a GPU, found one that another device prepared"))
}

/// Encodes the commands and hands them to the queue as one submission.
pub(crate) fn encode_and_enqueue(gpu: &GpuDevice, commands: &[Command]) -> Result<u64> {
    let timeline = gpu.timeline();
    timeline.fault.check()?;
    if commands.is_empty() {
        return timeline.enqueue(None);
    }
    let (commands, page) = check(&timeline.device, "prepare a command list", || prepare(gpu, commands))??;
    let number = run(timeline, &commands)?;
    if let Some(page) = page {
        gpu.pages().put_back(page, number);
    }
    Ok(number)
}

fn prepare<'a>(gpu: &GpuDevice, commands: &'a [Command]) -> Result<(Vec<ResolvedCommand<'a>>, Option<Page>)> {
    let mut values = Values::default();
    let commands = commands.iter().map(|command| ResolvedCommand::new(gpu, command, &mut values));
    let mut commands = commands.collect::<Result<Vec<_>>>()?;
    let page = gpu.pages().fill(gpu.timeline(), &values);
    if let Some(page) = &page {
        for command in &mut commands {
            if let ResolvedCommand::Dispatch(run) = command {
                run.values = gpu.kernels().bind_values(run.kernel, page.id, &page.buffer)?;
            }
        }
    }
    Ok((commands, page))
}

/// Encodes commands and hands them to the queue as one submission.
pub(crate) fn run(timeline: &Timeline, commands: &[ResolvedCommand<'_>]) -> Result<u64> {
    let submission = check(&timeline.device, "encode a command list", || encode(timeline, commands))?;
    let mut blocks: Vec<&Block> = commands.iter().flat_map(ResolvedCommand::blocks).collect();
    blocks.sort_by_key(|block| block.lock_rank());
    blocks.dedup_by_key(|block| block.lock_rank());
    let locks = blocks.iter().map(|block| block.lock()).collect::<Result<Vec<_>>>()?;
    let number = timeline.enqueue(Some(submission))?;
    for block in blocks {
        block.mark_used(number);
    }
    drop(locks);
    Ok(number)
}

fn encode(timeline: &Timeline, commands: &[ResolvedCommand<'_>]) -> Submission {
    let mut encoder = timeline.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let watched = timeline.stamps.recorder().is_on().then(|| timeline.stamps.watch(&timeline.device, runs(commands)));
    let (is_timed, mut dispatches) = (watched.as_ref().is_some_and(Watched::is_timed), 0);
    let is_dispatch = |command: &ResolvedCommand<'_>| matches!(command, ResolvedCommand::Dispatch(_));
    // All dispatches in a row are one pass, unless each is timed; wgpu orders those that touch the same buffers.
    for commands in commands.chunk_by(|one, other| !is_timed && is_dispatch(one) && is_dispatch(other)) {
        match &commands[0] {
            ResolvedCommand::Copy { from: (from, from_offset), to: (to, to_offset), bytes } => {
                encoder.copy_buffer_to_buffer(&from.buffer, *from_offset, &to.buffer, *to_offset, *bytes);
            }
            ResolvedCommand::Zero { block, offset, bytes } => {
                encoder.clear_buffer(&block.buffer, *offset, Some(*bytes));
            }
            ResolvedCommand::Dispatch(_) => {
                let stamps = watched.as_ref().and_then(|watched| watched.writes(dispatches));
                dispatches += commands.len();
                encode_pass(&mut encoder, commands, stamps);
            }
        }
    }
    if let Some(watched) = &watched {
        watched.resolve(&mut encoder);
    }
    let sentinel = timeline.sentinels.take(&timeline.device);
    sentinel.encode(&timeline.queue, &mut encoder);
    Submission { commands: encoder.finish(), sentinel, watched }
}

/// What the dispatches among the commands run.
fn runs(commands: &[ResolvedCommand<'_>]) -> Vec<KernelRun> {
    let run = |command: &ResolvedCommand<'_>| match command {
        ResolvedCommand::Dispatch(run) => Some(KernelRun::untimed(run.dispatch)),
        ResolvedCommand::Copy { .. } | ResolvedCommand::Zero { .. } => None,
    };
    commands.iter().filter_map(run).collect()
}

fn encode_pass(
    encoder: &mut wgpu::CommandEncoder,
    commands: &[ResolvedCommand<'_>],
    timestamp_writes: Option<wgpu::ComputePassTimestampWrites<'_>>,
) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
    for command in commands {
        let ResolvedCommand::Dispatch(Run { kernel, bound, values, offsets, workgroups: [x, y, z], .. }) = command
        else {
            continue;
        };
        pass.set_pipeline(&kernel.pipeline);
        pass.set_bind_group(0, &bound.group, &[]);
        if let Some(values) = values {
            pass.set_bind_group(1, values, offsets);
        }
        pass.dispatch_workgroups(*x, *y, *z);
    }
}
