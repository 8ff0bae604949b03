//! A crash-safe store of bytes by key, in a directory that several processes share.
//!
//! A store is a cache, not an archive: what it returns is what was put, and what it cannot return whole is a miss. It
//! knows nothing of what the bytes mean.
//!
//! # What it promises
//!
//! - **No wrong bytes.** Each entry is one file with its whole key, its lengths and a BLAKE3 checksum over all of it. An
//!   entry that is cut, damaged, foreign, outdated or of another key is a miss ([`Lookup::Rejected`]) that is counted by
//!   reason and removed. Links, pipes and folders in an entry's place are not followed and not waited for, and removed
//!   with all that is in them. An entry that is only larger than `max_bytes` stays: it may be good for a store with
//!   other limits.
//! - **All or nothing.** An entry is written under a temporary name and renamed into place. A process that is killed
//!   leaves the old entry, the new one or none, and perhaps a temporary file; these are locked while their writer lives,
//!   and the first put of a store that is opened, an eviction, a removal by choice or a [`verify`](DiskStore::verify)
//!   with repair removes the others.
//! - **A power cut** may take entries of the last seconds, or leave them empty, cut or with holes: the checksum turns
//!   those into misses. Nothing is synced to disk: a lost entry costs one recomputation, while an `fsync` makes every
//!   put more than fifty times slower (`bench/store` shows it; decision 0009 has the numbers).
//! - **Several processes and threads** may use one directory. A lookup takes no lock. A put takes one lock for the rename
//!   alone, and gives up with [`Busy`](StoreErrorKind::Busy) when it cannot get it in two seconds.
//! - **Limits.** After every put, and at every moment in between, the entry files of the directory number at most
//!   `max_entries` and are together at most `max_bytes` long, however many processes put, and whenever one is killed,
//!   as long as all use the same limits and nobody else adds files. Not counted: temporary files (one entry per
//!   thread that is in a put, and those of killed writers until they are removed), the file of use counts (40 bytes per
//!   entry that there was at the last merge), and the rounding of the file system. A put that needs room removes least
//!   recently used entries down to nine tenths of the limit that it met; that put lists the directory, others do not.
//! - **Use.** The time of last use is the file's modification time, which each hit sets. Use counts are kept in memory and
//!   merged into one file when the store is dropped, after each 1,024 hits, in an eviction, a removal by choice and a
//!   [`verify`](DiskStore::verify) with repair; a crash loses those since.
//! - **Soft failure.** A write that fails (read-only file system, full disk, busy lock) is an error of that put and is
//!   counted. `tracing` hears of the first one. Puts are then not tried for 30 seconds, while lookups go on.
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
use lock::{Held, LockFile};
use parking_lot::Mutex;
use statistics::Counters;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};
use usage::Usage;
use write::Pause;

/// How long an operation waits for the lock of the directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How long a drop, and a look at the totals, wait for it.
const SHORT_PATIENCE: Duration = Duration::from_millis(100);
/// A store of bytes by key in a directory; see the [module](self).
pub struct DiskStore {
    dir: PathBuf,
    /// Where the entries are; the rest (lock, use counts, temporary files) is beside it, where a listing is short.
    entries: PathBuf,
    options: StoreOptions,
    /// Or why the directory cannot be written.
    lock: Result<LockFile, StoreError>,
    pause: Mutex<Option<Pause>>,
    warning: Once,
    /// Left-overs are removed by the first put: to open a store, and to look at it, changes nothing in it.
    tidying: Once,
    usage: Usage,
    counters: Counters,
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The payload of the key, checked.
    Hit(Vec<u8>),
    /// No entry.
    Miss,
    /// A bad entry, which is removed if the store can be written, unless it is only too large for this store.
    Rejected(Reject),
    /// The file system does not let the entry be read. It stays.
    Unreadable(StoreError),
}

impl Lookup {
    /// The payload, if there is one.
    pub fn into_payload(self) -> Option<Vec<u8>> {
        match self {
            Self::Hit(payload) => Some(payload),
            Self::Miss | Self::Rejected(_) | Self::Unreadable(_) => None,
        }
    }
}

/// What [`DiskStore::clear`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ClearReport {
    /// Entries removed.
    pub entries: u64,
    /// The sum of the lengths of their files.
    pub bytes: u64,
}

impl DiskStore {
    /// Opens the store in a directory; makes the directory, and those above it, for this user alone.
    ///
    /// Fails if the directory cannot be made, or if somebody else could change it ([`check_directory`]). One that
    /// exists and cannot be written opens for reading only. A relative path is resolved now, not at each use.
    pub fn open(dir: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let dir = dir.as_ref();
        let dir = std::path::absolute(dir).map_err(|error| StoreError::of_io("resolve", dir, &error))?;
        let entries = dir.join("entries");
        if matches!(check_directory(&dir), Err(DirectoryFault { kind: DirectoryFaultKind::Missing, .. })) {
            directory::make(&dir)?;
        }
        directory::require_trusted(&dir)?;
        let lock = Self::prepare(&dir, &entries)?;
        let usage = Usage::new(dir.join("usage"));
        let (pause, warning, tidying, counters) = (Mutex::default(), Once::new(), Once::new(), Counters::default());
        let store = Self { dir, entries, options, lock, pause, warning, tidying, usage, counters };
        if let Err(reason) = &store.lock {
            store.warn(reason);
        }
        Ok(store)
    }

    /// Makes what belongs into the directory. The inner result is why it cannot be written.
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
        Ok(LockFile::open(&path).map_err(|error| StoreError::of_io("open", &path, &error)))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The limits.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// The payload of a key. Never an error: what cannot be returned whole is a miss, by a name that says why.
    pub fn get(&self, key: &[u8]) -> Lookup {
        let began = Instant::now();
        let lookup = self.look_up(key);
        self.counters.count_get(&lookup, began.elapsed());
        lookup
    }

    fn look_up(&self, key: &[u8]) -> Lookup {
        let id = EntryId::of_key(key);
        let place = self.place_of(&id);
        let is_right_key = |found: &[u8]| found == key;
        match OpenEntry::read(&place, self.options.max_bytes(), is_right_key) {
            Ok((entry, payload)) => {
                // On a read-only file system the time of last use stays as it is.
                let _ = entry.file.set_modified(at(self.options.now()));
                if self.usage.record(id) {
                    self.flush_usage();
                }
                Lookup::Hit(payload)
            }
            Err(Fault::Missing) => Lookup::Miss,
            // Whole as far as its lengths say: perhaps the good entry of a store with larger limits.
            Err(Fault::Rejected(Reject::TooLarge)) => Lookup::Rejected(Reject::TooLarge),
            Err(Fault::Rejected(reject)) => {
                self.discard(&id);
                Lookup::Rejected(reject)
            }
            Err(Fault::Io(error)) => Lookup::Unreadable(StoreError::of_io("read", &place, &error)),
        }
    }

    /// Removes the entry of a key. False if there was none.
    pub fn remove(&self, key: &[u8]) -> Result<bool, StoreError> {
        let mut held = self.hold()?;
        self.remove_entry(&mut held, &EntryId::of_key(key))
    }

    /// Removes all entries, use counts and temporary files of writers that are gone.
    pub fn clear(&self) -> Result<ClearReport, StoreError> {
        let mut held = self.hold()?;
        let listing = self.list()?;
        let shrunk = self.shrink(&mut held, &listing, |_, _| true)?;
        self.usage.clear().map_err(|error| StoreError::of_io("remove the use counts of", &self.dir, &error))?;
        let stays = |id: &&EntryId| file::remove(&self.place_of(id)).is_err();
        let left = shrunk.left.entries + listing.obstacles.iter().filter(stays).count() as u64;
        if left > 0 {
            let message = format!("expected to remove all entries, {left} are left: {}", self.dir.display());
            return Err(StoreError::new(StoreErrorKind::NotWritable, message));
        }
        Ok(ClearReport { entries: shrunk.removed.entries, bytes: shrunk.removed.bytes })
    }

    /// What this store did since it was opened, and what the directory holds; lists the directory only if nobody knows.
    pub fn statistics(&self) -> StoreStatistics {
        let known = self.lock.as_ref().ok().and_then(|lock| lock.hold(SHORT_PATIENCE).ok());
        let known = known.and_then(|held| held.totals(self.options.now(), Duration::MAX));
        let totals = known.unwrap_or_else(|| self.list().map(|listing| listing.totals()).unwrap_or_default());
        self.counters.report((totals.entries, totals.bytes), self.writing())
    }

    fn place_of(&self, id: &EntryId) -> PathBuf {
        self.entries.join(id.name())
    }

    fn hold(&self) -> Result<Held<'_>, StoreError> {
        self.lock.as_ref().map_err(StoreError::clone)?.hold(LOCK_PATIENCE)
    }

    /// Removes a bad entry, unless a good one took its place meanwhile. True if it is gone.
    fn discard(&self, id: &EntryId) -> bool {
        let Ok(mut held) = self.hold() else { return false };
        match OpenEntry::check(&self.place_of(id), id) {
            // What cannot be read now may be good.
            Ok(_) | Err(Fault::Io(_)) => false,
            Err(Fault::Missing) => true,
            Err(Fault::Rejected(_)) => self.remove_entry(&mut held, id).is_ok(),
        }
    }

    fn remove_entry(&self, held: &mut Held<'_>, id: &EntryId) -> Result<bool, StoreError> {
        let place = self.place_of(id);
        let fault = |error| StoreError::of_io("remove", &place, &error);
        let bytes = self.length_in_place(held, id).map_err(fault)?;
        let removed = file::remove(&place).map_err(fault)?;
        if let Some(bytes) = bytes.filter(|_| removed) {
            held.change(|totals| totals.minus(bytes)).map_err(fault)?;
        }
        Ok(removed)
    }

    /// The length of the file in the place of an entry; `None` if there is no file.
    ///
    /// A file that is not as it was written may have had another length when it was counted. Less its length of now the
    /// totals could be too low: they are forgotten, and whoever needs them lists the directory.
    fn length_in_place(&self, held: &mut Held<'_>, id: &EntryId) -> io::Result<Option<u64>> {
        let place = self.place_of(id);
        match OpenEntry::open(&place, u64::MAX) {
            Ok(entry) if EntryId::of_key(&entry.head.key) == *id => Ok(Some(entry.head.file_bytes())),
            Err(Fault::Missing) => Ok(None),
            Ok(_) | Err(Fault::Rejected(_) | Fault::Io(_)) => held.forget().map(|()| length_of(&place)),
        }
    }

    fn flush_usage(&self) {
        if let Some(held) = self.lock.as_ref().ok().and_then(|lock| lock.hold(SHORT_PATIENCE).ok()) {
            let entries = held.totals(self.options.now(), Duration::MAX).map_or(0, |totals| totals.entries);
            let _ = self.usage.flush(&self.dir, entries, |id| self.place_of(id).symlink_metadata().is_ok());
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

/// The length of a regular file; `None` if there is none.
fn length_of(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// A time since the Unix epoch as the file system has it; the epoch if that cannot be said.
fn at(since_epoch: Duration) -> SystemTime {
    UNIX_EPOCH.checked_add(since_epoch).unwrap_or(UNIX_EPOCH)
}
