//! Watchers, which receive events: as lines of JSON, through a channel, or in any other way.

use super::event::Event;
use kiln_resource_cache::events::LineOutput;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

/// Receives the events of a device in order, on a thread of the device.
///
/// It may be slow, because the device does not wait for it. If too many events queue up they are dropped, which is
/// reported as [`EventsDropped`](super::EventKind::EventsDropped).
///
/// Added by [`Device::watch`](crate::Device::watch); see the [module](crate::observe) for an example.
pub trait Watcher: Send + 'static {
    /// Receives an event.
    ///
    /// # Errors
    /// Returns the reason of a failure. The event counts as lost, and the first failure is logged through `tracing`.
    fn take(&mut self, event: &Event) -> io::Result<()>;

    /// Called when no more events are queued, after every few hundred events, and at the end.
    ///
    /// # Errors
    /// Returns errors as [`take`](Self::take) does, for all events since the last flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The maximum number of files with one base name.
const MAX_WRITERS: usize = 1000;

/// Writes events to a [`Write`], one line of JSON each, within some milliseconds. All events are written before the
/// device is closed.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// # if !cfg!(feature = "events") {
/// #     return Ok(()); // Events are compiled out.
/// # }
/// use kiln_device::NullDevice;
/// use kiln_device::observe::EventLines;
///
/// let device = NullDevice::new().into_device()?;
/// let watch = device.watch(EventLines::new(std::io::stderr()))?;
/// drop(device.buffer(4096)?);
/// let report = device.unwatch(watch);
/// assert_eq!(report.map(|report| (report.dropped, report.lost)), Some((0, 0)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventLines<W> {
    output: LineOutput<W>,
    /// Lines that are written together, with one call of [`Write::write`] if the writer accepts them at once.
    batch: String,
}

impl<W: Write> EventLines<W> {
    /// Creates a watcher that writes to `writer`. Files grow without bound unless the writer rotates them.
    pub fn new(writer: W) -> Self {
        Self { output: LineOutput::new(writer), batch: String::new() }
    }
}

impl<W: Write + Send + 'static> Watcher for EventLines<W> {
    fn take(&mut self, event: &Event) -> io::Result<()> {
        self.batch.push_str(&event.to_json_line()?);
        self.batch.push('\n');
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let written = self.output.write_lines(&self.batch);
        self.batch.clear();
        written
    }
}

/// Opens a file to append the events of one device to.
///
/// If several devices, of this process or others, use the same path, the first one gets `events.jsonl`, the next
/// `events.2.jsonl`, and so on. A path is free again when its file is closed. If a crash truncated the last line, it is
/// ended first.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use kiln_device::NullDevice;
/// use kiln_device::observe::{EventLines, claim_event_file};
/// use std::path::Path;
///
/// let device = NullDevice::new().into_device()?;
/// let (file, path) = claim_event_file(Path::new("events.jsonl"))?;
/// device.watch(EventLines::new(file))?;
/// println!("events are written to {}", path.display());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the errors of opening and locking the file.
pub fn claim_event_file(path: &Path) -> io::Result<(File, PathBuf)> {
    // Absolute, so that the path stays valid if the process changes its directory.
    let path = std::path::absolute(path)?;
    for writer in 1..=MAX_WRITERS {
        let path = numbered(&path, writer);
        let mut file = File::options().read(true).append(true).create(true).open(&path)?;
        // The lock marks the file as used; it is released when the file is closed, also after a crash.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // A writer that crashed may have left a partial line. The new events begin on their own line.
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
        return Ok((file, path));
    }
    let message = format!("expected fewer than {MAX_WRITERS} writers of {}, found more", path.display());
    Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
}

/// Returns the path of the `writer`-th file: `events.jsonl`, `events.2.jsonl`.
fn numbered(path: &Path, writer: usize) -> PathBuf {
    match path.extension() {
        _ if writer == 1 => path.to_path_buf(),
        None => path.with_extension(writer.to_string()),
        Some(extension) => {
            let mut last = OsString::from(format!("{writer}."));
            last.push(extension);
            path.with_extension(last)
        }
    }
}

/// Sends events to a receiver in the same process.
///
/// See the [module](crate::observe) for an example.
#[derive(Debug)]
pub struct EventChannel(SyncSender<Event>);

impl EventChannel {
    /// Creates a watcher and its receiver, with room for `capacity` unread events; further events are lost.
    pub fn new(capacity: usize) -> (Self, Receiver<Event>) {
        let (sender, receiver) = mpsc::sync_channel(capacity);
        (Self(sender), receiver)
    }
}

impl Watcher for EventChannel {
    fn take(&mut self, event: &Event) -> io::Result<()> {
        self.0.try_send(event.clone()).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::new(io::ErrorKind::WouldBlock, "the event channel is full"),
            TrySendError::Disconnected(_) => io::Error::new(io::ErrorKind::BrokenPipe, "the event receiver is gone"),
        })
    }
}
