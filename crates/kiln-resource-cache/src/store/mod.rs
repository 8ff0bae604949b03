//! A crash-safe store of bytes by key, in a directory that several processes share.
//!
//! A store is a cache and not an archive: it returns the bytes that were put, or a miss. It does not interpret the
//! bytes.
//!
//! # Guarantees
//!
//! - **Integrity.** Each entry is one file with its whole key, its lengths and a BLAKE3 checksum over all of it. An
//!   entry that is truncated, damaged, foreign, outdated or of another key is a miss ([`Lookup::Rejected`]) that is
//!   counted by reason and removed. Links, pipes and directories with the name of an entry are not followed and do not
//!   block; they are removed with their content. An entry that is only larger than `max_bytes` is kept, because it may
//!   be valid for a store with other limits.
//! - **Atomicity.** An entry is written under a temporary name and renamed into place. A process that is killed leaves
//!   the old entry, the new one or none, and perhaps a temporary file. Temporary files are locked while their writer is
//!   alive; abandoned ones are removed by the first put after opening, by evictions and removals, and by
//!   [`verify`](DiskStore::verify) with repair.
//! - **Power loss** may remove entries of the last seconds, or leave them empty, truncated or with holes; the checksum
//!   turns these into misses. Nothing is synced to disk: a lost entry costs one recomputation, while `fsync` makes
//!   every put more than fifty times slower (measured by `bench/store`; decision 0009 has the numbers).
//! - **Concurrency.** Several processes and threads may use one directory. A lookup takes no lock. A put takes one
//!   lock, for the rename only, and returns [`Busy`](StoreErrorKind::Busy) if it cannot get it within two seconds.
//! - **Limits.** At every moment the directory contains at most `max_entries` entry files with at most `max_bytes` in
//!   total, however many processes put and whenever one is killed, as long as all processes use the same limits and
//!   no other program adds files. Not counted: temporary files (one for each thread in a put, and those of killed
//!   writers until they are removed), the file of use counts (40 bytes per entry at the last merge), and the block size
//!   of the file system. A put that needs room removes least recently used entries down to nine tenths of the exceeded limit.
//!   Only such a put lists the directory.
//! - **Use.** The time of last use is the file's modification time, which each hit sets. Use counts are kept in memory
//!   and merged into a file when the store is dropped, after every 1,024 hits, and by evictions, removals and
//!   [`verify`](DiskStore::verify) with repair; a crash loses the counts since.
//! - **Write failures.** A failed write (read-only file system, full disk, busy lock) is an error of that put and is
//!   counted. The first one is logged through `tracing`. Puts are then skipped for 30 seconds, while lookups continue.
//!
//! ```
//! use kiln_resource_cache::store::{DiskStore, Lookup, PutOutcome, StoreOptions};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("store");
//! let store = DiskStore::open(&path, StoreOptions::new())?;
//! assert_eq!(store.get(b"key"), Lookup::Miss);
//! assert_eq!(store.put(b"key", b"payload")?, PutOutcome::Stored);
//! assert_eq!(store.get(b"key"), Lookup::Hit(b"payload".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod archive;
mod directory;
mod entry;
mod error;
mod evict;
mod file;
mod listing;
mod lock;
mod options;
mod statistics;
mod usage;
mod verify;
mod write;

pub use archive::{ExportReport, ImportReport};
pub use directory::{DirectoryFault, DirectoryFaultKind, TrustedDirectory, check_directory, make_private_command};
pub use entry::{MAX_KEY_BYTES, Reject};
pub use error::{StoreError, StoreErrorKind};
pub use listing::{EntryInfo, PruneReport, PruneTarget};
pub use options::StoreOptions;
pub use statistics::{StoreStatistics, Writing};
pub use verify::{BadEntry, Problem, VerifyReport};
pub use write::PutOutcome;

use entry::{EntryId, Fault, OpenEntry};
use lock::{LockFile, LockGuard};
use parking_lot::Mutex;
use statistics::Counters;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};
use usage::Usage;
use write::Pause;

/// The timeout of an operation for the lock of the directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a drop, and of reading the totals.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// A store of bytes by key in a directory; see the [module documentation](self) for its guarantees and an example.
pub struct DiskStore {
    dir: PathBuf,
    /// The directory of entries. Lock, use counts and temporary files are next to it, where a listing is short.
    entries: PathBuf,
    options: StoreOptions,
    /// The lock, or the reason why the directory cannot be written.
    lock: Result<LockFile, StoreError>,
    pause: Mutex<Option<Pause>>,
    warning: Once,
    /// Runs the cleanup of abandoned files once, in the first put: opening or reading a store changes nothing in it.
    cleanup: Once,
    usage: Usage,
    counters: Counters,
}

/// The result of a lookup.
///
/// Returned by [`DiskStore::get`]; see the [module documentation](self) for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The verified payload.
    Hit(Vec<u8>),
    /// There is no entry.
    Miss,
    /// The entry is invalid. It is removed if the store can be written, unless it is only too large for this store.
    Rejected(Reject),
    /// The file system cannot read the entry. It is kept.
    Unreadable(StoreError),
}

impl Lookup {
    /// Returns the payload of a hit.
    pub fn into_payload(self) -> Option<Vec<u8>> {
        match self {
            Self::Hit(payload) => Some(payload),
            Self::Miss | Self::Rejected(_) | Self::Unreadable(_) => None,
        }
    }
}

/// The result of [`DiskStore::clear`].
///
/// See the [module documentation](self) for an example of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ClearReport {
    /// Removed entries.
    pub entries: u64,
    /// The total length of their files.
    pub bytes: u64,
}

impl DiskStore {
    /// Opens the store in a directory. Creates the directory and its parents, accessible to this user only.
    ///
    /// A directory that cannot be written is opened read-only. A relative path is resolved once, here.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created, or `Untrusted` if other users can change it
    /// ([`check_directory`]).
    pub fn open(dir: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let dir = dir.as_ref();
        let dir = std::path::absolute(dir).map_err(|error| StoreError::from_io("resolve", dir, &error))?;
        let entries = dir.join("entries");
        if matches!(check_directory(&dir), Err(DirectoryFault { kind: DirectoryFaultKind::Missing, .. })) {
            directory::make(&dir)?;
        }
        // An existing directory with wrong permissions is rejected, not changed.
        directory::require_trusted(&dir)?;
        let lock = Self::prepare(&dir, &entries)?;
        let usage = Usage::new(dir.join("usage"));
        let (pause, warning, cleanup, counters) = (Mutex::default(), Once::new(), Once::new(), Counters::default());
        let store = Self { dir, entries, options, lock, pause, warning, cleanup, usage, counters };
        if let Err(reason) = &store.lock {
            store.warn(reason);
        }
        Ok(store)
    }

    /// Creates the content of the directory. The inner error is the reason why it cannot be written.
    fn prepare(dir: &Path, entries: &Path) -> Result<Result<LockFile, StoreError>, StoreError> {
        match check_directory(entries) {
            Err(DirectoryFault { kind: DirectoryFaultKind::Missing, .. }) => {
                if let Err(error) = directory::make(entries) {
                    return Ok(Err(error));
                }
            }
            _ => directory::require_trusted(entries)?,
        }
        let path = dir.join("lock");
        Ok(LockFile::open(&path).map_err(|error| StoreError::from_io("open", &path, &error)))
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns the options.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Returns the payload of a key. Never fails: an entry that cannot be returned intact is a kind of miss.
    pub fn get(&self, key: &[u8]) -> Lookup {
        let began = Instant::now();
        let lookup = self.lookup(key);
        self.counters.count_get(&lookup, began.elapsed());
        lookup
    }

    fn lookup(&self, key: &[u8]) -> Lookup {
        let id = EntryId::from_key(key);
        let place = self.entry_path(&id);
        let is_expected_key = |found: &[u8]| found == key;
        match OpenEntry::read(&place, self.options.max_bytes(), is_expected_key) {
            Ok((entry, payload)) => {
                // Fails on a read-only file system, where the time of last use cannot change.
                let _ = entry.file.set_modified(system_time(self.options.now()));
                // Every 1,024th hit pays for the merge, so that a crash loses few counts.
                if self.usage.record(id) {
                    self.flush_usage();
                }
                Lookup::Hit(payload)
            }
            // Also if another process evicted the entry while it was being read.
            Err(Fault::Missing) => Lookup::Miss,
            // The lengths are consistent, so it may be a valid entry of a store with larger limits.
            Err(Fault::Rejected(Reject::TooLarge)) => Lookup::Rejected(Reject::TooLarge),
            Err(Fault::Rejected(reject)) => {
                self.discard(&id);
                Lookup::Rejected(reject)
            }
            Err(Fault::Io(error)) => Lookup::Unreadable(StoreError::from_io("read", &place, &error)),
        }
    }

    /// Removes the entry of a key. Returns false if there was none.
    pub fn remove(&self, key: &[u8]) -> Result<bool, StoreError> {
        let mut guard = self.acquire_lock()?;
        self.remove_entry(&mut guard, &EntryId::from_key(key))
    }

    /// Removes all entries, use counts and abandoned temporary files.
    pub fn clear(&self) -> Result<ClearReport, StoreError> {
        let mut guard = self.acquire_lock()?;
        let listing = self.list()?;
        let result = self.shrink(&mut guard, &listing, |_, _| true)?;
        self.usage.clear().map_err(|error| StoreError::from_io("remove the use counts of", &self.dir, &error))?;
        let stays = |id: &&EntryId| file::remove(&self.entry_path(id)).is_err();
        let left = result.left.entries + listing.non_files.iter().filter(stays).count() as u64;
        if left > 0 {
            let message = format!("expected to remove all entries, {left} are left: {}", self.dir.display());
            return Err(StoreError::new(StoreErrorKind::NotWritable, message));
        }
        Ok(ClearReport { entries: result.removed.entries, bytes: result.removed.bytes })
    }

    /// Returns the counters of this store since it was opened, and the content of the directory. Lists the directory
    /// only if the totals are unknown.
    pub fn statistics(&self) -> StoreStatistics {
        let known = self.lock.as_ref().ok().and_then(|lock| lock.acquire(SHORT_LOCK_TIMEOUT).ok());
        let known = known.and_then(|guard| guard.totals(self.options.now(), Duration::MAX));
        let totals = known.unwrap_or_else(|| self.list().map(|listing| listing.totals()).unwrap_or_default());
        self.counters.report((totals.entries, totals.bytes), self.writing())
    }

    fn entry_path(&self, id: &EntryId) -> PathBuf {
        self.entries.join(id.name())
    }

    fn acquire_lock(&self) -> Result<LockGuard<'_>, StoreError> {
        self.lock.as_ref().map_err(StoreError::clone)?.acquire(LOCK_TIMEOUT)
    }

    /// Removes an invalid entry, unless a valid one replaced it in the meantime. Returns true if it is gone.
    fn discard(&self, id: &EntryId) -> bool {
        let Ok(mut guard) = self.acquire_lock() else { return false };
        // Checked again under the lock: another process may have renamed a valid entry into place since the lookup.
        match OpenEntry::check(&self.entry_path(id), id) {
            // A file that cannot be read now may be valid.
            Ok(_) | Err(Fault::Io(_)) => false,
            Err(Fault::Missing) => true,
            Err(Fault::Rejected(_)) => self.remove_entry(&mut guard, id).is_ok(),
        }
    }

    fn remove_entry(&self, guard: &mut LockGuard<'_>, id: &EntryId) -> Result<bool, StoreError> {
        let place = self.entry_path(id);
        let fault = |error| StoreError::from_io("remove", &place, &error);
        let bytes = self.entry_len(guard, id).map_err(fault)?;
        let removed = file::remove(&place).map_err(fault)?;
        if let Some(bytes) = bytes.filter(|_| removed) {
            guard.change(|totals| totals.minus(bytes)).map_err(fault)?;
        }
        Ok(removed)
    }

    /// Returns the length of the file of an entry, or `None` if there is no file.
    ///
    /// A damaged file may have had another length when it was counted. Subtracting its current length could make the
    /// totals too low, so they become unknown instead.
    fn entry_len(&self, guard: &mut LockGuard<'_>, id: &EntryId) -> io::Result<Option<u64>> {
        let place = self.entry_path(id);
        match OpenEntry::open(&place, u64::MAX) {
            Ok(entry) if EntryId::from_key(&entry.head.key) == *id => Ok(Some(entry.head.file_bytes())),
            Err(Fault::Missing) => Ok(None),
            Ok(_) | Err(Fault::Rejected(_) | Fault::Io(_)) => guard.forget().map(|()| length_of(&place)),
        }
    }

    fn flush_usage(&self) {
        if let Some(guard) = self.lock.as_ref().ok().and_then(|lock| lock.acquire(SHORT_LOCK_TIMEOUT).ok()) {
            let entries = guard.totals(self.options.now(), Duration::MAX).map_or(0, |totals| totals.entries);
            let _ = self.usage.flush(&self.dir, entries, |id| self.entry_path(id).symlink_metadata().is_ok());
        }
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        if self.usage.is_pending() {
            self.flush_usage();
        }
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("dir", &self.dir).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns the length of a regular file, or `None` if there is none.
fn length_of(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// Converts a time since the Unix epoch to a `SystemTime`; the epoch if it is out of range.
fn system_time(since_epoch: Duration) -> SystemTime {
    UNIX_EPOCH.checked_add(since_epoch).unwrap_or(UNIX_EPOCH)
}
