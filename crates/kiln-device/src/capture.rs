//! Command lists that are recorded once and replayed many times.

use crate::buffer::Buffer;
use crate::command::{Command, CommandList};
use crate::device::Device;
use crate::rebinding::Rebinding;
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt;

/// Commands that were recorded and checked once, by [`Device::capture`]. A replay submits them as they are,
/// without recording anew: what a device prepared for a command serves every replay.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::NullDevice;
///
/// let device = NullDevice::new().into_device()?;
/// let (input, output) = (device.buffer_from(&[1u32, 2])?, device.buffer_of::<u32>(2)?);
/// let captured = device.capture(|commands| commands.copy(input.as_bytes(), output.as_bytes()))?;
///
/// captured.replay()?;
/// assert_eq!(output.read()?, [1, 2]);
///
/// let other = device.buffer_from(&[3u32, 4])?;
/// captured.replay_with(&[(input.as_bytes(), other.as_bytes())])?;
/// assert_eq!(output.read()?, [3, 4]);
/// # Ok(())
/// # }
/// ```
pub struct Captured {
    device: Device,
    commands: Vec<Command>,
}

impl Captured {
    pub(crate) fn new(device: Device, commands: CommandList) -> Self {
        Self { device, commands: commands.into_commands() }
    }

    /// The recorded commands, in order.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Submits the commands, and returns the number of the submission. It does not wait for them.
    ///
    /// # Errors
    /// The device's fault.
    pub fn replay(&self) -> Result<u64> {
        self.device.submit_owned(&self.commands)
    }

    /// Replays with other buffers: for each pair, the second one is used where the first one, or a slice of it, was
    /// recorded. Only the commands that they concern are made anew; for many replays with the same buffers,
    /// [`rebind`](Self::rebind) once.
    ///
    /// # Errors
    /// As [`rebind`](Self::rebind); the device's fault.
    pub fn replay_with(&self, replacements: &[(&Buffer, &Buffer)]) -> Result<u64> {
        self.device.submit_owned(&self.rebound(replacements)?)
    }

    /// The same sequence with other buffers, as [`replay_with`](Self::replay_with) uses them.
    ///
    /// # Errors
    /// `InvalidArgument` where a replacement is of another device or length, where no command uses what it replaces,
    /// where a command uses it only in part, or where a command cannot have it in this place.
    pub fn rebind(&self, replacements: &[(&Buffer, &Buffer)]) -> Result<Self> {
        Ok(Self { device: self.device.clone(), commands: self.rebound(replacements)? })
    }

    fn rebound(&self, replacements: &[(&Buffer, &Buffer)]) -> Result<Vec<Command>> {
        let mut rebinding = Rebinding::default();
        for (index, (old, new)) in replacements.iter().enumerate() {
            let with_index = |error: Error| error.context(format!("pair {index}"));
            rebinding.add(old, new).map_err(with_index)?;
            if !self.commands.iter().flat_map(Command::accesses).any(|(buffer, _)| buffer.overlaps(old)) {
                let (bytes, id) = (old.bytes(), &old.device_info().id);
                let message = format!(
                    "captured sequence expected a buffer that it uses, found one of {bytes} bytes on device `{id}`"
                );
                return Err(with_index(Error::new(ErrorKind::InvalidArgument, message)));
            }
        }
        rebinding.commands(&self.commands)
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("device", &self.device).field("commands", &self.commands.len()).finish()
    }
}
