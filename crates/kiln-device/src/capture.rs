//! Command lists that are recorded once and replayed many times.

use crate::buffer::Buffer;
use crate::command::{Command, CommandList};
use crate::device::Device;
use crate::rebinding::Rebinding;
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt;

/// Recorded and checked commands, created by [`Device::capture`].
///
/// A replay submits them again without recording: what the device prepared for a command is reused.
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

    /// Returns the recorded commands, in order.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Submits the commands and returns the number of the submission, without waiting for it.
    ///
    /// # Errors
    /// Returns the device's fault.
    pub fn replay(&self) -> Result<u64> {
        self.device.submit_owned(&self.commands)
    }

    /// Submits the commands with replaced buffers: for each pair, the second buffer is used in place of the first and
    /// its slices.
    ///
    /// Only the commands that use a replaced buffer are created again. For many replays with the same buffers, call
    /// [`rebind`](Self::rebind) once.
    ///
    /// # Errors
    /// Returns the same errors as [`rebind`](Self::rebind); the device's fault.
    pub fn replay_with(&self, replacements: &[(&Buffer, &Buffer)]) -> Result<u64> {
        self.device.submit_owned(&self.rebound(replacements)?)
    }

    /// Returns the same commands with replaced buffers; see [`replay_with`](Self::replay_with).
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a replacement has another device or length, if no command uses the replaced buffer,
    /// if a command uses it only in part, or if a command cannot use the replacement.
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
