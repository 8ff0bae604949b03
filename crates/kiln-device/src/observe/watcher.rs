//! Watchers, which take events: lines of JSON, a channel, or anything else.

use super::event::Event;
use kiln_resource_cache::events::LineOutput;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
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

/// The most writers of one name, each with a file of its own.
const MAX_WRITERS: usize = 1000;

/// Writes events to any [`Write`], one line of JSON each: within some milliseconds, and all of them before the device is gone.
#[derive(Debug)]
pub struct EventLines<W> {
    output: LineOutput<W>,
    /// Lines that are written together, with one call of [`Write::write`] where the writer takes them.
    batch: String,
}

impl<W: Write> EventLines<W> {
    /// Writes events to `writer`. Files grow without bound unless it rotates them.
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

/// Opens a file to append the events of one device to. Several devices, of this process or of others, may be given one name: the first one
/// gets `events.jsonl`, the next `events.2.jsonl`, and so on. A name is free again when its file is closed. A last line that a crash cut
/// off is ended.
///
/// # Errors
/// Those of opening and locking the file.
pub fn claim_event_file(path: &Path) -> io::Result<(File, PathBuf)> {
    // The path must mean the same file later, wherever the process is then.
    let path = std::path::absolute(path)?;
    for writer in 1..=MAX_WRITERS {
        let path = numbered(&path, writer);
        let mut file = File::options().read(true).append(true).create(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error),
        }
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

/// The name for one of several writers: `events.jsonl`, `events.2.jsonl`.
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
