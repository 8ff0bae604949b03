//! A sink that writes events as lines of JSON.

use super::{CacheEvent, EventSink};
use crate::sync::Mutex;
use std::io::{self, Write};

/// Writes events to a [`Write`], one line of JSON each.
///
/// Each line is written and flushed before the operation that caused it continues, so that a file contains all events
/// however the process ends. Files grow without bound unless the writer rotates them.
///
/// To use one sink for several caches or registries, share it in an `Arc`.
///
/// ```
/// use kiln_resource_cache::{Cache, events::{CacheEvent, JsonlSink}};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("cache.jsonl");
/// let cache: Cache<u32, u32> = Cache::builder("squares").sink(JsonlSink::new(std::fs::File::create(&path)?)).build()?;
/// cache.get_or_insert_with(&3, || 9)?;
/// let line = std::fs::read_to_string(&path)?;
/// let event: CacheEvent = serde_json::from_str(&line)?;
/// assert_eq!(event, CacheEvent::ResourceCacheAccess { cache_key: "squares:3".into(), hit: false, bytes: 4 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JsonlSink<W>(Mutex<LineOutput<W>>);

impl<W: Write> JsonlSink<W> {
    /// Creates a sink that writes to `writer`. Pass an unbuffered file: every line is flushed anyway.
    pub fn new(writer: W) -> Self {
        Self(Mutex::new(LineOutput::new(writer)))
    }
}

impl<W: Write + Send + 'static> EventSink for JsonlSink<W> {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        let line = event.to_json_line()? + "\n";
        self.0.lock().write_lines(&line)
    }
}

/// Writes whole lines. If a write fails midway, the next one begins on a new line, so that at most one line is damaged.
///
/// [`JsonlSink`] and the event streams of devices use it.
///
/// ```
/// use kiln_resource_cache::events::LineOutput;
///
/// let mut written: Vec<u8> = Vec::new();
/// LineOutput::new(&mut written).write_lines("one\ntwo\n")?;
/// assert_eq!(written, b"one\ntwo\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LineOutput<W> {
    writer: W,
    /// Whether the output ends in the middle of a line.
    is_torn: bool,
}

impl<W: Write> LineOutput<W> {
    /// Creates an output that writes to `writer`.
    pub fn new(writer: W) -> Self {
        Self { writer, is_torn: false }
    }

    /// Writes lines, each ending in a line break, with one call of [`Write::write`] if the writer accepts them at once,
    /// and flushes.
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn write_lines(&mut self, lines: &str) -> io::Result<()> {
        if self.is_torn {
            self.writer.write_all(b"\n")?;
            self.is_torn = false;
        }
        let mut rest = lines.as_bytes();
        while !rest.is_empty() {
            match self.writer.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // Bytes of this call were written, and others are missing.
            self.is_torn = !rest.is_empty();
        }
        self.writer.flush()
    }
}
