//! Command lists: what a device is asked to do at once.

use crate::buffer::Buffer;
use kiln_ir::{Error, ErrorKind, Result};

/// One step of a command list. The buffers in it stay alive until the list is submitted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Copies all of `from` to `to`: equally long, of the same device, in different allocations.
    Copy {
        /// Where the bytes come from.
        from: Buffer,
        /// Where they go.
        to: Buffer,
    },
    /// Sets all bytes to zero.
    Zero {
        /// What is set to zero.
        buffer: Buffer,
    },
}

/// Commands in the order in which they take effect, checked when they are recorded and run by
/// [`Device::submit`](crate::Device::submit).
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_runtime::{CommandList, NullDevice};
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
        if from.bytes() != to.bytes() {
            let message = format!("copy expected equal lengths, found {} and {} bytes", from.bytes(), to.bytes());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if !from.is_on_device_of(to) {
            let (a, b) = (&from.device_info().id, &to.device_info().id);
            let message =
                format!("copy in a command list expected buffers of one device, found `{a}` and another `{b}`");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if from.shares_allocation_with(to) {
            let message = "copy in a command list expected two allocations, found two slices of one";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if !from.usage().is_copied_from() || !to.usage().is_copied_to() {
            let (from, to) = (from.usage(), to.usage());
            let message = format!(
                "copy in a command list expected no download as source and no upload as target, found {from} and {to}"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        from.check_alignment("copy")?;
        to.check_alignment("copy")?;
        if from.bytes() > 0 {
            self.commands.push(Command::Copy { from: from.clone(), to: to.clone() });
        }
        Ok(())
    }

    /// Records that all bytes of `buffer` become zero.
    ///
    /// # Errors
    /// `InvalidArgument` where the device does not write such a usage, or where the offset or length is not a multiple of
    /// the device's copy alignment: [`Buffer::zero`] serves both.
    pub fn zero(&mut self, buffer: &Buffer) -> Result<()> {
        if !buffer.usage().is_copied_to() {
            let message = "zero in a command list expected memory that the device writes, found upload";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        buffer.check_alignment("zero")?;
        if buffer.bytes() > 0 {
            self.commands.push(Command::Zero { buffer: buffer.clone() });
        }
        Ok(())
    }

    /// The recorded commands, in order.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Every buffer that the list touches.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.commands
            .iter()
            .flat_map(|command| match command {
                Command::Copy { from, to } => [Some(from), Some(to)],
                Command::Zero { buffer } => [Some(buffer), None],
            })
            .flatten()
    }
}
