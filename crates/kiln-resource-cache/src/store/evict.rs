//! Enforces the limits of the store: lists the directory and removes the least recently used entries.

use super::entry::EntryId;
use super::error::{StoreError, StoreErrorKind};
use super::lock::{LockGuard, Totals};
use super::{DiskStore, file, system_time};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Totals that were not compared with the directory for longer than this are not trusted.
const RELIST_INTERVAL: Duration = Duration::from_secs(3600);
/// The clock may be set back by this much. Entries whose last use is further in the future are evicted first.
const MAX_CLOCK_STEP: Duration = Duration::from_secs(3600);
/// On a slow disk, an eviction stops after this time once the limits hold, because other processes wait for the lock.
const MAX_EVICTION_TIME: Duration = Duration::from_secs(1);

/// An entry as listed in the directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedEntry {
    pub(super) id: EntryId,
    pub(super) bytes: u64,
    pub(super) last_used: SystemTime,
}

/// The content of the directory of entries.
#[derive(Default)]
pub(super) struct Listing {
    /// Entries, least recently used first.
    pub(super) entries: Vec<ListedEntry>,
    /// Directories, links and other non-files with the name of an entry.
    pub(super) non_files: Vec<EntryId>,
    /// Files whose names are not those of entries.
    pub(super) foreign: Vec<PathBuf>,
}

impl Listing {
    pub(super) fn totals(&self) -> Totals {
        self.entries.iter().fold(Totals::default(), |totals, entry| totals.plus(entry.bytes))
    }
}

/// The totals of removed and remaining entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShrinkResult {
    pub(super) removed: Totals,
    pub(super) left: Totals,
}

impl DiskStore {
    /// Lists the directory of entries. A store that never contained an entry is empty.
    pub(super) fn list(&self) -> Result<Listing, StoreError> {
        let fault = |error| StoreError::from_io("list", &self.entries, &error);
        let mut listing = Listing::default();
        let latest_plausible = system_time(self.options.now().saturating_add(MAX_CLOCK_STEP));
        let folder = match fs::read_dir(&self.entries) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(listing),
            Err(error) => return Err(fault(error)),
        };
        for entry in folder {
            let entry = entry.map_err(fault)?;
            // The entry may have been removed since the directory was read.
            let Ok(metadata) = entry.metadata() else { continue };
            match entry.file_name().to_str().and_then(EntryId::from_name) {
                Some(id) if metadata.is_file() => {
                    let last_used = metadata.modified().map_err(fault)?;
                    listing.entries.push(ListedEntry { id, bytes: metadata.len(), last_used });
                }
                Some(id) => listing.non_files.push(id),
                None => listing.foreign.push(entry.path()),
            }
        }
        listing.entries.sort_by_key(|ListedEntry { id, last_used, .. }| {
            // A time in the future is wrong, and must not protect the entry for years: it sorts first.
            let sort_time = if *last_used > latest_plausible { UNIX_EPOCH } else { *last_used };
            (sort_time, *last_used, *id)
        });
        Ok(listing)
    }

    /// Makes room for an entry of `bytes` bytes and returns the length of the entry that it replaces. That entry is not
    /// evicted: a lookup finds it until the new file is renamed over it.
    pub(super) fn make_room(
        &self,
        guard: &mut LockGuard<'_>,
        id: &EntryId,
        bytes: u64,
    ) -> Result<Option<u64>, StoreError> {
        let fault = |error| StoreError::from_io("write totals of", &self.dir, &error);
        let old = self.entry_len(guard, id).map_err(fault)?;
        let with_new = |totals: Totals| old.map_or(totals, |old| totals.minus(old)).plus(bytes);
        let (max_entries, max_bytes) = (self.options.max_entries(), self.options.max_bytes());
        let fits = |totals: Totals| totals.entries <= max_entries && totals.bytes <= max_bytes;
        if guard.totals(self.options.now(), RELIST_INTERVAL).is_some_and(|totals| fits(with_new(totals))) {
            return Ok(old);
        }
        let listing = self.list()?;
        // Evicts to 90 % of the exceeded limit, so that the next listing is only due after a tenth of the store was
        // written.
        let low = |limit: u64, total: u64| if total > limit { limit - limit / 10 } else { limit };
        let total = with_new(listing.totals());
        let (low_entries, low_bytes) = (low(max_entries, total.entries), low(max_bytes, total.bytes));
        let began = self.options.now();
        // A clock that is set back also ends the eviction.
        let has_time = || self.options.now().checked_sub(began).is_some_and(|time| time < MAX_EVICTION_TIME);
        let result = self.shrink(guard, &listing, |entry, left| {
            let total = with_new(left);
            let is_low = total.entries <= low_entries && total.bytes <= low_bytes;
            entry.id != *id && !is_low && (!fits(total) || has_time())
        })?;
        self.counters.count_evictions(result.removed.entries);
        if fits(with_new(result.left)) {
            return Ok(old);
        }
        let dir = self.entries.display();
        let message = format!("expected room for {bytes} bytes, found entries that cannot be removed: {dir}");
        Err(StoreError::new(StoreErrorKind::NotWritable, message))
    }

    /// Removes the unwanted entries of a fresh listing, and corrects totals and use counts. `is_unwanted` receives the
    /// totals that are left.
    pub(super) fn shrink(
        &self,
        guard: &mut LockGuard<'_>,
        listing: &Listing,
        mut is_unwanted: impl FnMut(&ListedEntry, Totals) -> bool,
    ) -> Result<ShrinkResult, StoreError> {
        let mut result = ShrinkResult { left: listing.totals(), ..ShrinkResult::default() };
        let mut remaining = BTreeSet::new();
        for entry in &listing.entries {
            if is_unwanted(entry, result.left) && file::remove(&self.entry_path(&entry.id)).is_ok() {
                result.left = result.left.minus(entry.bytes);
                result.removed = result.removed.plus(entry.bytes);
            } else {
                remaining.insert(entry.id);
            }
        }
        let fault = |error| StoreError::from_io("write totals of", &self.dir, &error);
        // After the removals: a process that is killed in between leaves totals that are too high, never too low.
        guard.set_listed(result.left, self.options.now()).map_err(fault)?;
        // Use counts are not important enough to fail the operation.
        let _ = self.usage.flush(&self.dir, 0, |id| remaining.contains(id));
        let _ = file::remove_abandoned_files(&self.dir);
        Ok(result)
    }
}
