//! Encodes command lists as wgpu commands and submits them.

use crate::block::Block;
use crate::device::GpuDevice;
use crate::kernel::{Bound, GpuKernel};
use crate::scope::check;
use crate::timeline::{Submission, Timeline};
use crate::timestamps::ProfiledLaunches;
use crate::values::{Page, Values};
use kiln_device::{Buffer, Command, Dispatch, KernelRun};
use kiln_ir::{Result, error};

/// A command with its buffers resolved to blocks.
pub(crate) enum ResolvedCommand<'a> {
    Copy { from: (Block, u64), to: (Block, u64), bytes: u64 },
    Zero { block: Block, offset: u64, bytes: u64 },
    Dispatch(ResolvedDispatch<'a>),
}

/// A dispatch with its bind groups.
pub(crate) struct ResolvedDispatch<'a> {
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
                // Collected now, bound in `prepare` once the page with all values exists.
                let offsets = values.add(dispatch, gpu.value_alignment());
                let bound = bind(gpu, kernel, dispatch)?;
                Ok(Self::Dispatch(ResolvedDispatch { kernel, bound, values: None, offsets, workgroups, dispatch }))
            }
            other => Err(error!(Unsupported, "expected a copy, zero or dispatch command, found {other:?}")),
        }
    }

    /// Returns the blocks that the command uses.
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (first, second, bound) = match self {
            Self::Copy { from: (from, _), to: (to, _), .. } => (Some(from), Some(to), &[][..]),
            Self::Zero { block, .. } => (Some(block), None, &[][..]),
            Self::Dispatch(dispatch) => (None, None, &dispatch.bound.blocks[..]),
        };
        [first, second].into_iter().flatten().chain(bound)
    }
}

/// Returns the block of a buffer and the offset in it.
///
/// The lock on the buffer's location is released at once: blocks of a GPU never move, and a list that uses a buffer
/// twice would otherwise lock it twice.
pub(crate) fn find(buffer: &Buffer) -> Result<(Block, u64)> {
    let access = buffer.access();
    let region = access.region();
    Ok((Block::of(region.raw())?.clone(), region.offset()))
}

/// Returns the bound buffers of a dispatch, which are created once and stored in it for replays.
fn bind<'a>(gpu: &GpuDevice, kernel: &GpuKernel, dispatch: &'a Dispatch) -> Result<&'a Bound> {
    let prepared = dispatch.prepared(|| Ok(Box::new(gpu.kernels().bind(kernel, dispatch)?)))?;
    prepared
        .downcast_ref()
        .ok_or_else(|| error!(InvalidArgument, "expected a dispatch for a GPU, found one that another device prepared"))
}

/// Encodes the commands and submits them.
pub(crate) fn encode_and_enqueue(gpu: &GpuDevice, commands: &[Command]) -> Result<u64> {
    let timeline = gpu.timeline();
    // A lost device is reported before anything is encoded, so that no partial submission exists.
    timeline.fault.check()?;
    if commands.is_empty() {
        return timeline.enqueue(None);
    }
    let (commands, page) = check(&timeline.device, "prepare a command list", || prepare(gpu, commands))??;
    let number = run(timeline, &commands)?;
    // Only after success: the page of a failed submission is dropped, because no number says when it may be reused.
    if let Some(page) = page {
        gpu.pages().recycle(page, number);
    }
    Ok(number)
}

/// Resolves commands and writes the values of all dispatches to one uniform buffer.
fn prepare<'a>(gpu: &GpuDevice, commands: &'a [Command]) -> Result<(Vec<ResolvedCommand<'a>>, Option<Page>)> {
    let mut values = Values::default();
    let commands = commands.iter().map(|command| ResolvedCommand::new(gpu, command, &mut values));
    let mut commands = commands.collect::<Result<Vec<_>>>()?;
    // One upload for the values of all dispatches; each dispatch binds its own offsets.
    let page = gpu.pages().fill(gpu.timeline(), &values);
    if let Some(page) = &page {
        for command in &mut commands {
            if let ResolvedCommand::Dispatch(dispatch) = command {
                dispatch.values = gpu.kernels().bind_values(dispatch.kernel, page.id, &page.buffer)?;
            }
        }
    }
    Ok((commands, page))
}

/// Encodes resolved commands and submits them. `map` also calls it, for copies to and from staging buffers.
pub(crate) fn run(timeline: &Timeline, commands: &[ResolvedCommand<'_>]) -> Result<u64> {
    let submission = check(&timeline.device, "encode a command list", || encode(timeline, commands))?;
    let mut blocks: Vec<&Block> = commands.iter().flat_map(ResolvedCommand::blocks).collect();
    // Locked in the order of their rank, each once: two threads that submit overlapping lists would otherwise deadlock.
    blocks.sort_by_key(|block| block.lock_rank());
    blocks.dedup_by_key(|block| block.lock_rank());
    // Encoded before the locks are taken, which keeps them short; a block that this thread has mapped is an error here,
    // before anything is submitted.
    let locks = blocks.iter().map(|block| block.lock()).collect::<Result<Vec<_>>>()?;
    let number = timeline.enqueue(Some(submission))?;
    // Marked before the locks are released, so that a thread that maps a block next waits for this submission.
    for block in blocks {
        block.mark_used(number);
    }
    drop(locks);
    Ok(number)
}

fn encode(timeline: &Timeline, commands: &[ResolvedCommand<'_>]) -> Submission {
    let mut encoder = timeline.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let profiled =
        timeline.timestamps.recorder().is_on().then(|| timeline.timestamps.profile(&timeline.device, runs(commands)));
    let (is_timed, mut dispatches) = (profiled.as_ref().is_some_and(ProfiledLaunches::is_timed), 0);
    let is_dispatch = |command: &ResolvedCommand<'_>| matches!(command, ResolvedCommand::Dispatch(_));
    // Consecutive dispatches share a compute pass unless each is timed. wgpu inserts barriers between dispatches that
    // use the same buffers.
    for commands in commands.chunk_by(|one, other| !is_timed && is_dispatch(one) && is_dispatch(other)) {
        match &commands[0] {
            ResolvedCommand::Copy { from: (from, from_offset), to: (to, to_offset), bytes } => {
                encoder.copy_buffer_to_buffer(&from.buffer, *from_offset, &to.buffer, *to_offset, *bytes);
            }
            ResolvedCommand::Zero { block, offset, bytes } => {
                encoder.clear_buffer(&block.buffer, *offset, Some(*bytes));
            }
            ResolvedCommand::Dispatch(_) => {
                let timestamps = profiled.as_ref().and_then(|profiled| profiled.writes(dispatches));
                dispatches += commands.len();
                encode_pass(&mut encoder, commands, timestamps);
            }
        }
    }
    if let Some(profiled) = &profiled {
        profiled.resolve(&mut encoder);
    }
    // The sentinel is the last command, so that its token can only arrive after everything else ran.
    let sentinel = timeline.sentinels.take(&timeline.device);
    sentinel.encode(&timeline.queue, &mut encoder);
    Submission { commands: encoder.finish(), sentinel, profiled }
}

/// Returns the launches in a command list, without times.
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
        let ResolvedCommand::Dispatch(ResolvedDispatch {
            kernel, bound, values, offsets, workgroups: [x, y, z], ..
        }) = command
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
