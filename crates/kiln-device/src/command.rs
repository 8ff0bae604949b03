//! Command lists, the unit of submission to a device.

use crate::buffer::Buffer;
use crate::kernel::{GridPart, LoadedKernel, check_bound};
use crate::memory::Usage;
use crate::observe::KernelCost;
use crate::rebinding::Rebinding;
use kiln_ir::{Error, ErrorKind, Result, bail};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A command of a list. It keeps its buffers alive until the list is submitted.
///
/// A clone is cheap, and shares what a device prepared for the command.
///
/// See [`Dispatch`] for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Copies all of `from` to `to`: of the same length and device, in different allocations.
    Copy {
        /// The source.
        from: Buffer,
        /// The target.
        to: Buffer,
        /// Whether `from` is a staging buffer that was filled when the command was recorded, and is used for nothing
        /// else.
        staged: bool,
    },
    /// Sets all bytes to zero.
    Zero {
        /// The buffer to clear.
        buffer: Buffer,
    },
    /// Runs a kernel.
    Dispatch(Dispatch),
}

/// How a command or a host callback uses a buffer.
///
/// See [`Graph`](crate::Graph) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferUse {
    /// Reads the content.
    Read,
    /// Overwrites the content.
    Write,
    /// Reads and changes the content.
    ReadWrite,
}

impl BufferUse {
    /// Returns whether the previous content is read.
    pub fn is_read(self) -> bool {
        self != Self::Write
    }

    /// Returns whether the content is changed.
    pub fn is_write(self) -> bool {
        self != Self::Read
    }
}

impl Command {
    /// Returns the buffers that the command uses, and how.
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

    /// Returns the bytes of host data that the command uploads.
    pub(crate) fn host_bytes(&self) -> u64 {
        match self {
            Self::Copy { from, .. } if from.usage() == Usage::Upload => from.bytes(),
            // Values are aligned to what the device requires, at most 256 bytes.
            Self::Dispatch(dispatch) => {
                dispatch.values.iter().map(|value| (value.bytes.len() as u64).next_multiple_of(256)).sum()
            }
            Self::Copy { .. } | Self::Zero { .. } => 0,
        }
    }

    /// Returns the command with replaced buffers, checked like a newly recorded command.
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

/// A dispatch of a kernel with its arguments. Created and checked by a [`Launch`](crate::Launch).
///
/// ```
/// use kiln_device::{Command, Grid, KernelSource, NullDevice};
/// let device = NullDevice::new().into_device()?;
/// let text = "@group(0) @binding(0) var<storage, read_write> y: array<f32>; @group(0) @binding(1) var<uniform> a: f32;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] *= a; }";
/// let (kernel, mut y) = (device.kernel(KernelSource::wgsl(text))?, device.buffer_of::<f32>(1000)?);
/// let mut commands = device.commands();
/// kernel.launch().bind("y", &mut y).value("a", 2.0f32).grid(Grid::over(1000)).record(&mut commands)?;
/// let Command::Dispatch(dispatch) = &commands.commands()[0] else { panic!("expected a dispatch") };
/// assert_eq!((dispatch.kernel().name(), dispatch.part().workgroups), ("kernel", [16, 1, 1]));
/// assert_eq!((dispatch.buffers()[0].slot, dispatch.values()[0].slot), (0, 1));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone)]
pub struct Dispatch {
    kernel: Arc<LoadedKernel>,
    buffers: Vec<BoundBuffer>,
    values: Vec<BoundValue>,
    part: GridPart,
    cost: Option<KernelCost>,
    prepared: Prepared,
}

/// A buffer argument of a kernel.
///
/// Returned by [`Dispatch::buffers`]; see [`Dispatch`] for an example.
#[derive(Clone, Debug)]
pub struct BoundBuffer {
    /// The index of the binding.
    pub slot: u32,
    /// The buffer.
    pub buffer: Buffer,
    /// How the kernel uses it.
    pub access: BufferUse,
}

/// A uniform argument of a kernel.
///
/// Returned by [`Dispatch::values`]; see [`Dispatch`] for an example.
#[derive(Clone, Debug)]
pub struct BoundValue {
    /// The index of the binding.
    pub slot: u32,
    /// The value, as long as the kernel expects.
    pub bytes: Vec<u8>,
}

/// The object that a device prepared for the buffers of a dispatch, such as a bind group. Stored here for later
/// submissions.
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

    /// Returns the kernel.
    pub fn kernel(&self) -> &Arc<LoadedKernel> {
        &self.kernel
    }

    /// Returns the buffers, by index of their bindings.
    pub fn buffers(&self) -> &[BoundBuffer] {
        &self.buffers
    }

    /// Returns the values, by index of their bindings.
    pub fn values(&self) -> &[BoundValue] {
        &self.values
    }

    /// Returns the number of workgroups along each axis: not zero, and within the limit of the device.
    pub fn workgroups(&self) -> [u32; 3] {
        self.part.workgroups
    }

    /// Returns the part of the launch's grid that this dispatch runs.
    pub fn part(&self) -> GridPart {
        self.part
    }

    /// Returns the cost: as given by the launch, otherwise the bytes of all buffers.
    pub fn cost(&self) -> KernelCost {
        // An upper bound: a kernel may use only a part of a buffer.
        let all_bytes = || self.buffers.iter().map(|bound| bound.buffer.bytes()).sum();
        self.cost.unwrap_or_else(|| KernelCost { bytes: all_bytes(), flops: 0 })
    }

    /// Returns the dispatch with replaced buffers, checked like a launch.
    fn rebound(&self, rebinding: &Rebinding) -> Result<Self> {
        let mut buffers = self.buffers.clone();
        for bound in &mut buffers {
            bound.buffer = rebinding.buffer(&bound.buffer)?;
        }
        check_bound(self.kernel.reflection(), &buffers)
            .map_err(|error| error.context(format!("replay of kernel `{}`", self.kernel.name())))?;
        // The prepared object refers to the old buffers.
        Ok(Self { buffers, prepared: Prepared::default(), ..self.clone() })
    }

    /// Returns what the device prepared for the buffers, calling `make` the first time.
    ///
    /// # Errors
    /// Returns the error of `make`.
    pub fn prepared(
        &self,
        make: impl FnOnce() -> Result<Box<dyn Any + Send + Sync>>,
    ) -> Result<&(dyn Any + Send + Sync)> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(&**prepared);
        }
        let made = make()?;
        // If another thread was faster, its value is used. Both are equivalent.
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

/// Commands in the order in which they take effect. They are checked when recorded, and run by
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
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a copy of all bytes of `from` to `to`.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the lengths or devices differ, if both are in the same allocation, if the device
    /// cannot copy from or to such a usage, or if an offset or the length is not a multiple of the device's copy
    /// alignment. [`Buffer::copy_to`] handles all cases but the first.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        check_copy(from, to)?;
        if from.bytes() > 0 {
            self.push(Command::Copy { from: from.clone(), to: to.clone(), staged: false });
        }
        Ok(())
    }

    /// Records a command that sets all bytes of `buffer` to zero.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the device cannot write such a usage, or if the offset or length is not a multiple
    /// of the device's copy alignment. [`Buffer::zero`] handles both.
    pub fn zero(&mut self, buffer: &Buffer) -> Result<()> {
        check_zero(buffer)?;
        if buffer.bytes() > 0 {
            self.commands.push(Command::Zero { buffer: buffer.clone() });
        }
        Ok(())
    }

    /// Records a write of the whole buffer. `data` is copied now, and written in the order of the recorded commands.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if `data` is not as long as the buffer, or if its offset or length is not a multiple
    /// of the device's copy alignment; `OutOfMemory` if there is no memory for staging; the device's fault.
    pub fn write(&mut self, buffer: &Buffer, data: &[u8]) -> Result<()> {
        buffer.record_write(data, self)
    }

    /// Returns the recorded commands, in order.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Returns whether no command is recorded.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the buffers that the list uses, and how, in the order of the commands.
    pub fn accesses(&self) -> impl Iterator<Item = (&Buffer, BufferUse)> {
        self.commands.iter().flat_map(Command::accesses)
    }

    /// Records a copy from a filled staging buffer that belongs to the list.
    pub(crate) fn copy_staged(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        check_copy(from, to)?;
        self.push(Command::Copy { from: from.clone(), to: to.clone(), staged: true });
        Ok(())
    }

    pub(crate) fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Removes the commands but keeps the capacity.
    pub(crate) fn clear(&mut self) {
        self.commands.clear();
    }

    pub(crate) fn into_commands(self) -> Vec<Command> {
        self.commands
    }
}

/// Checks that a device can copy from one buffer to the other.
fn check_copy(from: &Buffer, to: &Buffer) -> Result<()> {
    if from.bytes() != to.bytes() {
        bail!(InvalidArgument, "copy expected equal lengths, found {} and {} bytes", from.bytes(), to.bytes());
    }
    if !from.is_on_device_of(to) {
        let (a, b) = (&from.device_info().id, &to.device_info().id);
        bail!(InvalidArgument, "copy in a command list expected buffers of one device, found `{a}` and another `{b}`");
    }
    // wgpu rejects copies within one buffer, and all slices of an allocation are in one.
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
