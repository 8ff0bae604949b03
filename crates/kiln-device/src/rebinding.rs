//! Replaces buffers when recorded commands run again.

use crate::buffer::Buffer;
use crate::command::Command;
use kiln_ir::{Error, ErrorKind, Result, bail};

/// Pairs of a recorded buffer and its replacement.
#[derive(Default)]
pub(crate) struct Rebinding {
    pairs: Vec<(Buffer, Buffer)>,
}

impl Rebinding {
    /// Replaces `old` and its slices by `new`.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if they differ in device or length, or if a part of `old` is already replaced.
    pub(crate) fn add(&mut self, old: &Buffer, new: &Buffer) -> Result<()> {
        if !old.is_on_device_of(new) {
            let (own, other) = (&old.device_info().id, &new.device_info().id);
            bail!(InvalidArgument, "replacement expected a buffer of device `{own}`, found one of another `{other}`");
        }
        if old.bytes() != new.bytes() {
            bail!(InvalidArgument, "replacement expected {} bytes, found {}", old.bytes(), new.bytes());
        }
        // Otherwise the replacement of a slice would depend on the order of the pairs.
        if self.pairs.iter().any(|(other, _)| other.overlaps(old)) {
            let message = "replacement expected each byte to be replaced once, found two replacements for one";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.pairs.push((old.clone(), new.clone()));
        Ok(())
    }

    /// Returns whether a byte of the recorded buffer is replaced.
    pub(crate) fn affects(&self, recorded: &Buffer) -> bool {
        self.pairs.iter().any(|(old, _)| old.overlaps(recorded))
    }

    /// Returns the replacement of a recorded buffer, or the buffer itself if it is not replaced.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if only a part of it is replaced.
    pub(crate) fn buffer(&self, recorded: &Buffer) -> Result<Buffer> {
        let Some((old, new)) = self.pairs.iter().find(|(old, _)| old.overlaps(recorded)) else {
            return Ok(recorded.clone());
        };
        let Some(range) = old.position_of(recorded) else {
            let (old, found) = (old.range(), recorded.range());
            let message = format!(
                "replacement of bytes {old:?} of an allocation expected uses within them, found one of {found:?}"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        new.slice(range)
    }

    /// Returns the commands with replaced buffers. Commands that use none of them are unchanged.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a command cannot use a replacement.
    pub(crate) fn commands(&self, recorded: &[Command]) -> Result<Vec<Command>> {
        let rebound = |(index, command): (usize, &Command)| {
            if !command.accesses().any(|(buffer, _)| self.affects(buffer)) {
                return Ok(command.clone());
            }
            command.rebound(self).map_err(|error| error.context(format!("command {index}")))
        };
        recorded.iter().enumerate().map(rebound).collect()
    }
}
