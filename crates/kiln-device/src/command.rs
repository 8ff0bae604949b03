//! Command lists: what a device is asked to do at once.

use crate::buffer::Buffer;
use crate::kernel::{GridPart, LoadedKernel, check_bound};
use crate::memory::Usage;
use crate::observe::KernelCost;
use crate::rebinding::Rebinding;
use kiln_ir::{Error, ErrorKind, Result, bail};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// One step of a command list. The buffers in it stay alive until the list is submitted.
///
/// A clone is the same step: it is cheap, and shares what a device keeps for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Copies all of `from` to `to`: equally long, of the same device, in different allocations.
    Copy {
        /// Where the bytes come from.
        from: Buffer,
        /// Where they go.
        to: Buffer,
        /// Whether `from` was filled when this was recorded, and serves nothing else.
        staged: bool,
    },
    /// Sets all bytes to zero.
    Zero {
        /// What is set to zero.
        buffer: Buffer,
    },
    /// Runs a kernel.
    Dispatch(Dispatch),
}

/// How a command or a host callback touches a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferUse {
    /// It sees what is there.
    Read,
    /// It replaces what is there.
    Write,
    /// It sees what is there, and changes it.
    ReadWrite,
}

impl BufferUse {
    /// Whether it sees what was there before.
    pub fn is_read(self) -> bool {
        self != Self::Write
    }

    /// Whether it changes what is there.
    pub fn is_write(self) -> bool {
        self != Self::Read
    }
}

impl Command {
    /// Every buffer that the command touches, and how.
    pub fn accesses(&self) -> impl Iterator<Item = (&Buffer, BufferUse)> {
        let (pair, bound) = match self {
            Self::Copy { from, to, .. } => ([Some((from, BufferUse::Read)), Some((to, BufferUse::Write))], &[][..]),
            Self::Zero { buffer } => ([Some((buffer, BufferUse::Write)), None], &[][..]),
            Self::Dispatch(dispatch) => ([None, None], &dispatch.buffers[..]),
        };
        pair.into_iter().flatten().chain(bound.iter().map(|bound| (&bound.buffer, bound.access)))
    }

    pub(crate) fn as_dispatch(&self) -> Option<&Dispatch> {
        match self {
            Self::Dispatch(dispatch) => Some(dispatch),
            Self::Copy { .. } | Self::Zero { .. } => None,
        }
    }

    /// Bytes of host data that the command brings to the device.
    pub(crate) fn host_bytes(&self) -> u64 {
        match self {
            Self::Copy { from, .. } if from.usage() == Usage::Upload => from.bytes(),
            // Values begin at multiples of what a device wants, which is at most this.
            Self::Dispatch(dispatch) => {
                dispatch.values.iter().map(|value| (value.bytes.len() as u64).next_multiple_of(256)).sum()
            }
            Self::Copy { .. } | Self::Zero { .. } => 0,
        }
    }

    /// The command with other buffers in the place of its own, checked as if it were recorded anew.
    pub(crate) fn rebound(&self, rebinding: &Rebinding) -> Result<Self> {
        match self {
            Self::Copy { from, to, staged } => {
                let (from, to) = (rebinding.buffer(from)?, rebinding.buffer(to)?);
                check_copy(&from, &to)?;
                Ok(Self::Copy { from, to, staged: *staged })
            }
            Self::Zero { buffer } => {
                let buffer = rebinding.buffer(buffer)?;
                check_zero(&buffer)?;
                Ok(Self::Zero { buffer })
            }
            Self::Dispatch(dispatch) => dispatch.rebound(rebinding).map(Self::Dispatch),
        }
    }
}

/// One dispatch of a kernel, with everything that it takes. Made by a [`Launch`](crate::Launch), which checks it.
#[derive(Clone)]
pub struct Dispatch {
    kernel: Arc<LoadedKernel>,
    buffers: Vec<BoundBuffer>,
    values: Vec<BoundValue>,
    part: GridPart,
    cost: Option<KernelCost>,
    prepared: Prepared,
}

/// A buffer in its place among the bindings of a kernel.
#[derive(Clone, Debug)]
pub struct BoundBuffer {
    /// The index of the binding.
    pub slot: u32,
    /// The buffer.
    pub buffer: Buffer,
    /// What the kernel does with it.
    pub access: BufferUse,
}

/// The bytes of a uniform in its place among the bindings of a kernel.
#[derive(Clone, Debug)]
pub struct BoundValue {
    /// The index of the binding.
    pub slot: u32,
    /// The bytes, as long as the kernel wants them.
    pub bytes: Vec<u8>,
}

/// What a device made of the buffers of a dispatch, kept with it: a list that is submitted again finds it there.
type Prepared = Arc<OnceLock<Box<dyn Any + Send + Sync>>>;

impl Dispatch {
    pub(crate) fn new(
        kernel: Arc<LoadedKernel>,
        buffers: Vec<BoundBuffer>,
        values: Vec<BoundValue>,
        part: GridPart,
        cost: Option<KernelCost>,
    ) -> Self {
        Self { kernel, buffers, values, part, cost, prepared: Prepared::default() }
    }

    /// The kernel.
    pub fn kernel(&self) -> &Arc<LoadedKernel> {
        &self.kernel
    }

    /// The buffers, by index of their bindings.
    pub fn buffers(&self) -> &[BoundBuffer] {
        &self.buffers
    }

    /// The values, by index of their bindings.
    pub fn values(&self) -> &[BoundValue] {
        &self.values
    }

    /// Workgroups along each axis; none of them zero, none above the device's limit.
    pub fn workgroups(&self) -> [u32; 3] {
        self.part.workgroups
    }

    /// What it runs of the grid of its launch.
    pub fn part(&self) -> GridPart {
        self.part
    }

    /// What it costs: as its launch says, otherwise all bytes of its buffers.
    pub fn cost(&self) -> KernelCost {
        let all_bytes = || self.buffers.iter().map(|bound| bound.buffer.bytes()).sum();
        self.cost.unwrap_or_else(|| KernelCost { bytes: all_bytes(), flops: 0 })
    }

    /// The dispatch with other buffers in the place of its own, checked as a launch is.
    fn rebound(&self, rebinding: &Rebinding) -> Result<Self> {
        let mut buffers = self.buffers.clone();
        for bound in &mut buffers {
            bound.buffer = rebinding.buffer(&bound.buffer)?;
        }
        check_bound(self.kernel.reflection(), &buffers)
            .map_err(|error| error.context(format!("replay of kernel `{}`", self.kernel.name())))?;
        Ok(Self { buffers, prepared: Prepared::default(), ..self.clone() })
    }

    /// What the device made of the buffers; made now where it is not there yet.
    ///
    /// # Errors
    /// That of `make`.
    pub fn prepared(
        &self,
        make: impl FnOnce() -> Result<Box<dyn Any + Send + Sync>>,
    ) -> Result<&(dyn Any + Send + Sync)> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(&**prepared);
        }
        let made = make()?;
        Ok(&**self.prepared.get_or_init(|| made))
    }
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch")
            .field("kernel", &self.kernel.name())
            .field("buffers", &self.buffers)
            .field("values", &self.values)
            .field("workgroups", &self.workgroups())
            .finish_non_exhaustive()
    }
}

/// Commands in the order in which they take effect, checked when they are recorded and run by
/// [`Device::submit`](crate::Device::submit).
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{CommandList, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let (a, b) = (device.buffer_from(&[1u32, 2, 3])?, device.buffer_of::<u32>(3)?);
/// let mut commands = CommandList::new();
/// commands.copy(a.as_bytes(), b.as_bytes())?;
/// device.submit(commands)?;
/// assert_eq!(b.read()?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct CommandList {
    commands: Vec<Command>,
}

impl CommandList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a copy of all bytes of `from` to `to`.
    ///
    /// # Errors
    /// `InvalidArgument` where the lengths or devices differ, where both lie in the same allocation, where the device does
    /// not copy from or to such a usage, or where an offset or the length is not a multiple of the device's copy
    /// alignment: [`Buffer::copy_to`] serves all but the first.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        check_copy(from, to)?;
        if from.bytes() > 0 {
            self.push(Command::Copy { from: from.clone(), to: to.clone(), staged: false });
        }
        Ok(())
    }

    /// Records that all bytes of `buffer` become zero.
    ///
    /// # Errors
    /// `InvalidArgument` where the device does not write such a usage, or where the offset or length is not a multiple of
    /// the device's copy alignment: [`Buffer::zero`] serves both.
    pub fn zero(&mut self, buffer: &Buffer) -> Result<()> {
        check_zero(buffer)?;
        if buffer.bytes() > 0 {
            self.commands.push(Command::Zero { buffer: buffer.clone() });
        }
        Ok(())
    }

    /// Records a write of the whole buffer. The bytes are copied now, and written in the order of the recorded commands.
    ///
    /// # Errors
    /// `InvalidArgument` where `data` is not as long as the buffer, or where its offset or length is not a multiple of the
    /// device's copy alignment; the device's fault; `OutOfMemory` for staging.
    pub fn write(&mut self, buffer: &Buffer, data: &[u8]) -> Result<()> {
        buffer.record_write(data, self)
    }

    /// The recorded commands, in order.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Every buffer that the list touches, and how, in the order of the commands.
    pub fn accesses(&self) -> impl Iterator<Item = (&Buffer, BufferUse)> {
        self.commands.iter().flat_map(Command::accesses)
    }

    /// Records a copy from staging that is filled already and belongs to the list.
    pub(crate) fn copy_staged(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        check_copy(from, to)?;
        self.push(Command::Copy { from: from.clone(), to: to.clone(), staged: true });
        Ok(())
    }

    pub(crate) fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Forgets the commands and keeps the memory that they were in.
    pub(crate) fn clear(&mut self) {
        self.commands.clear();
    }

    pub(crate) fn into_commands(self) -> Vec<Command> {
        self.commands
    }
}

/// Whether a device copies from one to the other.
fn check_copy(from: &Buffer, to: &Buffer) -> Result<()> {
    if from.bytes() != to.bytes() {
        bail!(InvalidArgument, "copy expected equal lengths, found {} and {} bytes", from.bytes(), to.bytes());
    }
    if !from.is_on_device_of(to) {
        let (a, b) = (&from.device_info().id, &to.device_info().id);
        bail!(InvalidArgument, "copy in a command list expected buffers of one device, found `{a}` and another `{b}`");
    }
    if from.shares_allocation_with(to) {
        bail!(InvalidArgument, "copy in a command list expected two allocations, found two slices of one");
    }
    if !from.usage().is_copied_from() || !to.usage().is_copied_to() {
        let (from, to) = (from.usage(), to.usage());
        let message = format!(
            "copy in a command list expected no download as source and no upload as target, found {from} and {to}"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    from.check_alignment("copy")?;
    to.check_alignment("copy")
}

fn check_zero(buffer: &Buffer) -> Result<()> {
    if !buffer.usage().is_copied_to() {
        bail!(InvalidArgument, "zero in a command list expected memory that the device writes, found upload");
    }
    buffer.check_alignment("zero")
}
