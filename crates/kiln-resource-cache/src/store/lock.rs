//! The lock file, which excludes other threads and processes, and contains the totals of the store.
//!
//! Totals are raised before an entry is renamed into place and lowered after it is removed. A process that is killed in
//! between leaves them too high, never too low, so the limits still hold. Totals that are too high cost one listing of
//! the directory, which corrects them.

use super::entry::u64_at;
use super::error::{StoreError, StoreErrorKind};
use super::file;
use parking_lot::{Mutex, MutexGuard};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"KILNTOTL";
/// Magic, entries, bytes, time of the last listing, and BLAKE3 over these.
const RECORD_BYTES: usize = 64;
const CHECKED_BYTES: usize = 32;
/// The number of immediate attempts to get the lock. A put holds it for about ten microseconds.
const QUICK_ATTEMPTS: u32 = 50;
/// The time between two later attempts. An eviction holds the lock for ten milliseconds and more.
const RETRY_AFTER: Duration = Duration::from_micros(500);

/// The number of entries and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Totals {
    pub(super) fn plus(self, bytes: u64) -> Self {
        Self { entries: self.entries.saturating_add(1), bytes: self.bytes.saturating_add(bytes) }
    }

    pub(super) fn minus(self, bytes: u64) -> Self {
        Self { entries: self.entries.saturating_sub(1), bytes: self.bytes.saturating_sub(bytes) }
    }
}

pub(super) struct LockFile {
    path: PathBuf,
    /// The threads of a process share the file and therefore its system lock; the mutex excludes them from each other.
    file: Mutex<File>,
}

pub(super) struct LockGuard<'a> {
    file: MutexGuard<'a, File>,
    record: Option<Record>,
}

#[derive(Clone, Copy)]
struct Record {
    totals: Totals,
    /// When the totals were last taken from the directory, in nanoseconds since the Unix epoch.
    listed_at: u64,
}

impl LockFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), file: Mutex::new(file::open_shared(path)?) })
    }

    /// Acquires the lock. Waits no longer than `timeout`, because its holder may be stopped.
    pub(super) fn acquire(&self, timeout: Duration) -> Result<LockGuard<'_>, StoreError> {
        let deadline = Instant::now() + timeout;
        let busy = || {
            let message = format!("expected the lock {} within {timeout:?}, found it held", self.path.display());
            StoreError::new(StoreErrorKind::Busy, message)
        };
        let mut file = self.file.try_lock_until(deadline).ok_or_else(busy)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            // Polled, because a blocking lock has no timeout.
            match file.try_lock() {
                Ok(()) if !is_same_file(&file, &self.path) => {
                    // The file or its directory was removed or moved, and other processes lock a new file. This lock
                    // excludes no other process, so open the new one.
                    if Instant::now() >= deadline {
                        return Err(busy());
                    }
                    *file = file::open_shared(&self.path)
                        .map_err(|error| StoreError::from_io("open the lock", &self.path, &error))?;
                }
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Err(busy()),
                Err(TryLockError::WouldBlock) if attempts < QUICK_ATTEMPTS => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY_AFTER),
                Err(TryLockError::Error(error)) => return Err(StoreError::from_io("lock", &self.path, &error)),
            }
        }
        let mut guard = LockGuard { file, record: None };
        guard.record = guard.read();
        Ok(guard)
    }
}

impl LockGuard<'_> {
    /// Returns the totals, or `None` if they are unknown or were not compared with the directory for `max_age`.
    pub(super) fn totals(&self, now: Duration, max_age: Duration) -> Option<Totals> {
        let record = self.record?;
        // A listing in the future means that the clock was set back. Its age is unknown, so the totals are not trusted.
        let age = crate::clock::nanos(now).checked_sub(record.listed_at)?;
        (age <= crate::clock::nanos(max_age)).then_some(record.totals)
    }

    /// Sets totals that were just taken from the directory.
    pub(super) fn set_listed(&mut self, totals: Totals, now: Duration) -> io::Result<()> {
        self.write(Record { totals, listed_at: crate::clock::nanos(now) })
    }

    /// Changes the totals, if they are known.
    pub(super) fn change(&mut self, change: impl FnOnce(Totals) -> Totals) -> io::Result<()> {
        match self.record {
            Some(record) => self.write(Record { totals: change(record.totals), ..record }),
            None => Ok(()),
        }
    }

    /// Makes the totals unknown, so that the next operation that needs them lists the directory.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        self.record = None;
        // An empty file has no valid checksum, so that every process sees unknown totals.
        self.file.set_len(0)
    }

    fn read(&mut self) -> Option<Record> {
        let mut bytes = [0; RECORD_BYTES];
        self.file.seek(SeekFrom::Start(0)).ok()?;
        self.file.read_exact(&mut bytes).ok()?;
        let (checked, checksum) = bytes.split_at(CHECKED_BYTES);
        if !checked.starts_with(&MAGIC) || blake3::hash(checked).as_bytes() != checksum {
            return None;
        }
        let totals = Totals { entries: u64_at(checked, 8), bytes: u64_at(checked, 16) };
        Some(Record { totals, listed_at: u64_at(checked, 24) })
    }

    fn write(&mut self, record: Record) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.extend_from_slice(&MAGIC);
        for number in [record.totals.entries, record.totals.bytes, record.listed_at] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        // A torn write fails the checksum, which makes the totals unknown.
        self.file.write_all(&bytes)?;
        self.record = Some(record);
        Ok(())
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Returns whether the open file is the one at the path.
#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: io::Result<std::fs::Metadata>| metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let own = id(file.metadata());
    own.is_some() && own == id(std::fs::symlink_metadata(path))
}

/// Always true: on this system a directory that contains an open file cannot be moved or removed.
#[cfg(not(unix))]
fn is_same_file(_file: &File, _path: &Path) -> bool {
    true
}
