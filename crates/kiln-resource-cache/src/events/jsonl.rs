//! Lines of JSON in a file that is bounded by rotation.

use super::{CacheEvent, EventSink};
use crate::sync::Mutex;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const DEFAULT_MAX_FILE_BYTES: u64 = 64 << 20;
const DEFAULT_MAX_FILES: usize = 4;
/// The most writers of one name, each with a file of its own.
const MAX_WRITERS: usize = 1000;

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
/// use kiln_resource_cache::{Cache, events::{CacheEvent, JsonlSink}};
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
pub struct JsonlSink(Mutex<LineFile>);

impl JsonlSink {
    /// Appends to the file at `path`, made if missing: at most 4 files of 64 MiB.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::with_limits(path, DEFAULT_MAX_FILE_BYTES, DEFAULT_MAX_FILES)
    }

    /// Appends to the file at `path`, made if missing: at most `max_files` files, the current one included, of
    /// `max_file_bytes` each. A line longer than that has a file to itself. Files beyond the number, left by a sink that
    /// was allowed more, are deleted.
    pub fn with_limits(path: impl AsRef<Path>, max_file_bytes: u64, max_files: usize) -> io::Result<Self> {
        LineFile::open(path.as_ref(), max_file_bytes, max_files).map(|file| Self(Mutex::new(file)))
    }
}

impl EventSink for JsonlSink {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        let line = event.to_json_line()?;
        self.0.lock().append(&line)
    }
}

/// A file of lines that is bounded by rotation: what is below [`JsonlSink`], for lines of other events.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    max_file_bytes: u64,
    max_files: usize,
    /// Whether the file is locked, so that other writers find it taken.
    is_claimed: bool,
    output: Output,
}

#[derive(Debug)]
struct Output {
    file: File,
    len: u64,
    /// The file ends in the middle of a line that could not be taken back.
    torn: bool,
}

impl LineFile {
    /// Appends to the file at `path`, made if missing: at most `max_files` files, the current one included, of
    /// `max_file_bytes` each. Files beyond the number are deleted.
    ///
    /// # Errors
    /// `InvalidInput` where a limit is 0; those of opening the file.
    pub fn open(path: &Path, max_file_bytes: u64, max_files: usize) -> io::Result<Self> {
        Self::check(max_file_bytes, max_files)?;
        // The path must mean the same file when it rotates, wherever the process is then.
        let path = std::path::absolute(path)?;
        let output = Output::open(&path)?;
        Self { path, max_file_bytes, max_files, is_claimed: false, output }.without_surplus()
    }

    /// As [`open`](Self::open), for a name that several writers, of this process or of others, are given at once: the first one gets
    /// `events.jsonl`, the next `events.2.jsonl`, and so on. A file is free again when its writer is gone.
    ///
    /// # Errors
    /// As [`open`](Self::open), and where the file system has no locks.
    pub fn claim(path: &Path, max_file_bytes: u64, max_files: usize) -> io::Result<Self> {
        Self::check(max_file_bytes, max_files)?;
        let path = std::path::absolute(path)?;
        for writer in 1..=MAX_WRITERS {
            let path = numbered(&path, writer);
            if let Some(output) = Output::claim(&path)? {
                return Self { path, max_file_bytes, max_files, is_claimed: true, output }.without_surplus();
            }
        }
        let message = format!("expected fewer than {MAX_WRITERS} writers of {}, found more", path.display());
        Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
    }

    /// Where the lines go.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands a line, given without its line break, to the operating system.
    ///
    /// # Errors
    /// Those of writing and of rotating; then the line is lost, and no half of it stays.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        self.append_lines(&format!("{line}\n"))
    }

    /// Hands whole lines to the operating system at once; they are not divided between files.
    ///
    /// # Errors
    /// As [`append`](Self::append), for all of them.
    pub fn append_lines(&mut self, lines: &str) -> io::Result<()> {
        let output = &self.output;
        let len_after = output.len + u64::from(output.torn) + lines.len() as u64;
        if output.len > 0 && len_after > self.max_file_bytes {
            self.rotate()?;
        }
        self.output.append(lines)
    }

    fn check(max_file_bytes: u64, max_files: usize) -> io::Result<()> {
        if max_file_bytes > 0 && max_files > 0 {
            return Ok(());
        }
        let message =
            format!("event file limits are {max_files} files of {max_file_bytes} bytes, expected at least 1 of each");
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Deletes what a writer left that was allowed more files.
    fn without_surplus(self) -> io::Result<Self> {
        for surplus in (self.max_files..).map(|age| self.aged(age)).take_while(|path| path.exists()) {
            fs::remove_file(surplus)?;
        }
        Ok(self)
    }

    /// Renames the files one step on and begins a new one. If an earlier attempt got no further than the renaming, or
    /// someone took the file away, there is nothing to rename.
    fn rotate(&mut self) -> io::Result<()> {
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
        let output = if self.is_claimed { Output::claim(&self.path)? } else { Some(Output::open(&self.path)?) };
        let taken = || io::Error::new(io::ErrorKind::ResourceBusy, "another writer took the name of the event file");
        self.output = output.ok_or_else(taken)?;
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

    /// The file, locked; `None` where another writer has it.
    fn claim(path: &Path) -> io::Result<Option<Self>> {
        let output = Self::open(path)?;
        match output.file.try_lock() {
            Ok(()) => Ok(Some(output)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
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
