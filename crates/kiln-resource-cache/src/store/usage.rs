//! Use counts of entries, over all processes and starts.
//!
//! Each process counts in memory and occasionally merges its counts into one small file, under the lock of the store. A
//! crash loses the counts since the last merge. A damaged file counts as empty and is rewritten.

use super::entry::{EntryId, bytes_at, u64_at};
use super::file::{self, Temporary};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"KILNUSE1";
const CHECKSUM_BYTES: usize = 32;
/// An id and a count.
const RECORD_BYTES: usize = 40;
/// A longer file is damaged; nothing is allocated for it.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The number of uses that are counted in memory before a merge.
const FLUSH_AFTER: u64 = 1024;

/// Use counts by entry. Ordered, so that the file is deterministic.
pub(super) type Uses = BTreeMap<EntryId, u64>;

pub(super) struct Usage {
    path: PathBuf,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    uses: Uses,
    total: u64,
}

/// The content of the file of use counts.
pub(super) enum Stored {
    Whole(Uses),
    Missing,
    Damaged,
}

impl Stored {
    fn uses(self) -> Uses {
        match self {
            Self::Whole(uses) => uses,
            Self::Missing | Self::Damaged => Uses::new(),
        }
    }
}

impl Usage {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, pending: Mutex::default() }
    }

    /// Counts a use. Returns true if a flush is due.
    pub(super) fn record(&self, id: EntryId) -> bool {
        let mut pending = self.pending.lock();
        *pending.uses.entry(id).or_default() += 1;
        pending.total += 1;
        // Not `>=`: after a failed flush, the next one is due after another 1,024 uses and not at every use.
        pending.total.is_multiple_of(FLUSH_AFTER)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.lock().total > 0
    }

    /// Returns all counts: those of the file and those of this process since its last flush.
    pub(super) fn counts(&self) -> Uses {
        merged(self.stored().uses(), &self.pending.lock().uses)
    }

    /// Merges the counts of this process into the file. The caller holds the lock of the store.
    ///
    /// If there are more than `entries` counts, those for which `is_there` returns false are dropped, so that the file
    /// stays as small as the store.
    pub(super) fn flush(&self, dir: &Path, entries: u64, is_there: impl Fn(&EntryId) -> bool) -> io::Result<()> {
        // Taken out first, so that hits during the file operations are not blocked.
        let pending = std::mem::take(&mut *self.pending.lock());
        let stored = self.stored().uses();
        let mut uses = merged(stored.clone(), &pending.uses);
        if uses.len() as u64 > entries {
            uses.retain(|id, _| is_there(id));
        }
        if uses == stored {
            return Ok(());
        }
        let written = self.write(dir, &uses);
        if written.is_err() {
            // Keeps the counts for the next flush.
            let mut now = self.pending.lock();
            now.uses = merged(std::mem::take(&mut now.uses), &pending.uses);
            now.total += pending.total;
        }
        written
    }

    /// Removes all counts. The caller holds the lock of the store.
    pub(super) fn clear(&self) -> io::Result<()> {
        *self.pending.lock() = Pending::default();
        file::remove(&self.path).map(|_| ())
    }

    /// Reads the file. A file that cannot be read is damaged.
    pub(super) fn stored(&self) -> Stored {
        let bytes = match read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Stored::Missing,
            Err(_) => return Stored::Damaged,
        };
        parse(&bytes).map_or(Stored::Damaged, Stored::Whole)
    }

    fn write(&self, dir: &Path, uses: &Uses) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        for (id, count) in uses {
            bytes.extend_from_slice(&id.0);
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        let mut temporary = Temporary::create(dir)?;
        temporary.file.write_all(&bytes)?;
        temporary.rename(&self.path)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let Some((file, metadata)) = file::open_to_read(path)? else {
        return Err(io::Error::other("expected a regular file, found something else"));
    };
    if metadata.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("expected a file of use counts, found one that is too long"));
    }
    let mut bytes = Vec::new();
    // Limited again, because the file may have grown since its length was read.
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Option<Uses> {
    let (checked, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
    let records = checked.strip_prefix(&MAGIC)?;
    if blake3::hash(checked).as_bytes() != checksum || !records.len().is_multiple_of(RECORD_BYTES) {
        return None;
    }
    let record = |record: &[u8]| (EntryId(bytes_at(record, 0)), u64_at(record, 32));
    Some(records.chunks_exact(RECORD_BYTES).map(record).collect())
}

fn merged(mut uses: Uses, more: &Uses) -> Uses {
    for (id, count) in more {
        let sum = uses.entry(*id).or_default();
        *sum = sum.saturating_add(*count);
    }
    uses
}
