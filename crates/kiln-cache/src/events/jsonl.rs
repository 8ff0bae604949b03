//! Events as lines of JSON in a file that is bounded by rotation.

use super::{CacheEvent, EventSink};
use crate::sync::Mutex;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const DEFAULT_MAX_FILE_BYTES: u64 = 64 << 20;
const DEFAULT_MAX_FILES: usize = 4;

/// Appends events to a file, one line of JSON each.
///
/// Every line is handed to the operating system before the operation that caused it goes on: nothing is lost however
/// the process ends. A file that would grow past its limit is renamed to `name.1` (`name.1` to `name.2`, and so on)
/// and a new one begun; the oldest beyond the number of files is deleted. If a write fails half way, the half line is
/// taken back, so that the file stays readable when the disk has room again. A line that finds neither room nor a way
/// to rotate is lost and counted: the bound holds.
///
/// A file belongs to one sink. For several caches or registries, share the sink in an `Arc`.
///
/// ```
/// use kiln_cache::{Cache, events::{CacheEvent, JsonlSink}};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("cache.jsonl");
/// let cache: Cache<u32, u32> = Cache::builder("squares").sink(JsonlSink::open(&path)?).build()?;
/// cache.get_or_insert_with(&3, || 9)?;
/// let line = std::fs::read_to_string(&path)?;
/// let event: CacheEvent = serde_json::from_str(&line)?;
/// assert_eq!(event, CacheEvent::ResourceCacheAccess { cache_key: "squares:3".into(), hit: false, bytes: 4 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JsonlSink {
    path: PathBuf,
    max_file_bytes: u64,
    max_files: usize,
    output: Mutex<Output>,
}

#[derive(Debug)]
struct Output {
    file: File,
    len: u64,
    /// The file ends in the middle of a line that could not be taken back.
    torn: bool,
}

impl JsonlSink {
    /// Appends to the file at `path`, made if missing: at most 4 files of 64 MiB.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::with_limits(path, DEFAULT_MAX_FILE_BYTES, DEFAULT_MAX_FILES)
    }

    /// Appends to the file at `path`, made if missing: at most `max_files` files, the current one included, of
    /// `max_file_bytes` each. A line longer than that has a file to itself. Files beyond the number, left by a sink that
    /// was allowed more, are deleted.
    pub fn with_limits(path: impl AsRef<Path>, max_file_bytes: u64, max_files: usize) -> io::Result<Self> {
        if max_file_bytes == 0 || max_files == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "event file limits are {max_files} files of {max_file_bytes} bytes, expected at least 1 of each"
                ),
            ));
        }
        // The path must mean the same file when it rotates, wherever the process is then.
        let path = std::path::absolute(path)?;
        let output = Mutex::new(Output::open(&path)?);
        let sink = Self { path, max_file_bytes, max_files, output };
        // Left by a sink that was allowed more files.
        for surplus in (max_files..).map(|age| sink.aged(age)).take_while(|path| path.exists()) {
            fs::remove_file(surplus)?;
        }
        Ok(sink)
    }

    /// Renames the files one step on and begins a new one. If an earlier attempt got no further than the renaming, or
    /// someone took the file away, there is nothing to rename.
    fn rotate(&self, output: &mut Output) -> io::Result<()> {
        if self.path.exists() {
            for age in (1..self.max_files).rev() {
                let from = self.aged(age - 1);
                if from.exists() {
                    fs::rename(from, self.aged(age))?;
                }
            }
            if self.max_files == 1 {
                fs::remove_file(&self.path)?;
            }
        }
        *output = Output::open(&self.path)?;
        Ok(())
    }

    fn aged(&self, age: usize) -> PathBuf {
        if age == 0 {
            return self.path.clone();
        }
        let mut name = OsString::from(&self.path);
        name.push(format!(".{age}"));
        name.into()
    }
}

impl EventSink for JsonlSink {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        let mut line = event.to_json_line()?;
        line.push('\n');
        let mut output = self.output.lock();
        let len_after = output.len + u64::from(output.torn) + line.len() as u64;
        if output.len > 0 && len_after > self.max_file_bytes {
            self.rotate(&mut output)?;
        }
        output.append(&line)
    }
}

impl Output {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let len = file.metadata()?.len();
        let mut last = [b'\n'];
        if len > 0 {
            file.seek(SeekFrom::Start(len - 1))?;
            file.read_exact(&mut last)?;
        }
        Ok(Self { file, len, torn: last != *b"\n" })
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.torn {
            self.write(b"\n")?;
            self.torn = false;
        }
        self.write(line.as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let result = self.file.write_all(bytes);
        match &result {
            Ok(()) => self.len += bytes.len() as u64,
            Err(_) if self.file.set_len(self.len).is_err() => self.torn = true,
            Err(_) => {}
        }
        result
    }
}
