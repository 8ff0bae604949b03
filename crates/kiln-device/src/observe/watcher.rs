//! Who takes events: a file, a channel, or anything else.

use super::event::Event;
use kiln_resource_cache::events::LineFile;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

/// Takes the events of a device, one after the other, on a thread that belongs to the device.
///
/// It may take its time: the device does not wait for it. Events that pile up too high are dropped, and that is told as
/// [`EventsDropped`](super::Happening::EventsDropped).
pub trait Watcher: Send + 'static {
    /// Takes one event.
    ///
    /// # Errors
    /// What went wrong. The event is counted as lost, and the first fault reported through `tracing`.
    fn take(&mut self, event: &Event) -> io::Result<()>;

    /// Called when there are no more events for now, after some hundred of them, and at the end.
    ///
    /// # Errors
    /// As [`take`](Self::take), for all events that were taken since the last flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const DEFAULT_MAX_FILE_BYTES: u64 = 64 << 20;
const DEFAULT_MAX_FILES: usize = 4;

/// Writes events to a file that is bounded by rotation, one line of JSON each: within some milliseconds, and all of them before the
/// device is gone.
#[derive(Debug)]
pub struct EventFile {
    file: LineFile,
    /// Lines that are handed to the system together.
    batch: String,
}

impl EventFile {
    /// Appends to the file at `path`, made if missing: at most 4 files of 64 MiB, the older ones at `path.1` and so on. Where another
    /// device or process writes it already, the file is `events.2.jsonl` for `events.jsonl`.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::with_limits(path, DEFAULT_MAX_FILE_BYTES, DEFAULT_MAX_FILES)
    }

    /// As [`open`](Self::open), at most `max_files` files of `max_file_bytes` each.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `InvalidInput` where a limit is 0.
    pub fn with_limits(path: impl AsRef<Path>, max_file_bytes: u64, max_files: usize) -> io::Result<Self> {
        let file = LineFile::claim(path.as_ref(), max_file_bytes, max_files)?;
        Ok(Self { file, batch: String::new() })
    }

    /// Where the lines go.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Watcher for EventFile {
    fn take(&mut self, event: &Event) -> io::Result<()> {
        self.batch.push_str(&event.to_json_line()?);
        self.batch.push('\n');
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let written = self.file.append_lines(&self.batch);
        self.batch.clear();
        written
    }
}

/// Hands events to a receiver in the same process.
#[derive(Debug)]
pub struct EventChannel(SyncSender<Event>);

impl EventChannel {
    /// A watcher and its receiver, which can fall behind by at most `capacity` events: what finds no room is lost.
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
