//! Keeping to the limits: what is in the directory, and who goes when it is too much.

use super::entry::EntryId;
use super::error::{StoreError, StoreErrorKind};
use super::lock::{Held, Totals};
use super::{DiskStore, at, file};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Totals that were not checked against the directory for longer than this are not believed.
const LIST_EVERY: Duration = Duration::from_secs(3600);
/// A clock may be set back this much and times of last use are still believed.
const CLOCK_STEP: Duration = Duration::from_secs(3600);
/// On a slow disk an eviction ends here as soon as the limits hold: others wait for the lock, and not for ever.
const EVICT_FOR: Duration = Duration::from_secs(1);

/// An entry as its directory shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) id: EntryId,
    pub(super) bytes: u64,
    pub(super) last_used: SystemTime,
}

/// What is in the directory of entries.
#[derive(Default)]
pub(super) struct Listing {
    /// Least recently used first.
    pub(super) entries: Vec<Listed>,
    /// Folders, links and the like in the places of entries.
    pub(super) obstacles: Vec<EntryId>,
    /// What has no place there.
    pub(super) foreign: Vec<PathBuf>,
}

impl Listing {
    pub(super) fn totals(&self) -> Totals {
        self.entries.iter().fold(Totals::default(), |totals, entry| totals.plus(entry.bytes))
    }
}

/// What went and what stayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shrunk {
    pub(super) removed: Totals,
    pub(super) left: Totals,
}

impl DiskStore {
    /// Lists the directory of entries. A store that never held one is empty.
    pub(super) fn list(&self) -> Result<Listing, StoreError> {
        let fault = |error| StoreError::of_io("list", &self.entries, &error);
        let mut listing = Listing::default();
        let too_late = at(self.options.now().saturating_add(CLOCK_STEP));
        let folder = match fs::read_dir(&self.entries) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(listing),
            Err(error) => return Err(fault(error)),
        };
        for entry in folder {
            let entry = entry.map_err(fault)?;
            // An entry that is gone by now is no fault.
            let Ok(metadata) = entry.metadata() else { continue };
            match entry.file_name().to_str().and_then(EntryId::of_name) {
                Some(id) if metadata.is_file() => {
                    let last_used = metadata.modified().map_err(fault)?;
                    listing.entries.push(Listed { id, bytes: metadata.len(), last_used });
                }
                Some(id) => listing.obstacles.push(id),
                None => listing.foreign.push(entry.path()),
            }
        }
        listing.entries.sort_by_key(|Listed { id, last_used, .. }| {
            // A clock that was wrong must not keep an entry for years: nobody knows when it was used.
            let believed = if *last_used > too_late { UNIX_EPOCH } else { *last_used };
            (believed, *last_used, *id)
        });
        Ok(listing)
    }

    /// Makes room for an entry of this length; returns the length of the one it replaces. Without room, an error.
    pub(super) fn make_room(&self, held: &mut Held<'_>, id: &EntryId, bytes: u64) -> Result<Option<u64>, StoreError> {
        let fault = |error| StoreError::of_io("write totals of", &self.dir, &error);
        let old = self.length_in_place(held, id).map_err(fault)?;
        let with_new = |totals: Totals| old.map_or(totals, |old| totals.minus(old)).plus(bytes);
        let (max_entries, max_bytes) = (self.options.max_entries(), self.options.max_bytes());
        let fits = |totals: Totals| totals.entries <= max_entries && totals.bytes <= max_bytes;
        if held.totals(self.options.now(), LIST_EVERY).is_some_and(|totals| fits(with_new(totals))) {
            return Ok(old);
        }
        let listing = self.list()?;
        // A limit that is passed is passed by a tenth, so that the next listing is a tenth of the store away.
        let low = |limit: u64, is: u64| if is > limit { limit - limit / 10 } else { limit };
        let total = with_new(listing.totals());
        let (low_entries, low_bytes) = (low(max_entries, total.entries), low(max_bytes, total.bytes));
        let began = self.options.now();
        // A clock that is set back ends it too.
        let has_time = || self.options.now().checked_sub(began).is_some_and(|time| time < EVICT_FOR);
        let shrunk = self.shrink(held, &listing, |entry, left| {
            let total = with_new(left);
            let is_low = total.entries <= low_entries && total.bytes <= low_bytes;
            entry.id != *id && !is_low && (!fits(total) || has_time())
        })?;
        self.counters.count_evictions(shrunk.removed.entries);
        if fits(with_new(shrunk.left)) {
            return Ok(old);
        }
        let dir = self.entries.display();
        let message = format!("expected room for {bytes} bytes, found entries that cannot be removed: {dir}");
        Err(StoreError::new(StoreErrorKind::NotWritable, message))
    }

    /// Removes the unwanted entries of a fresh listing, told what would be left, and corrects totals and use counts.
    pub(super) fn shrink(
        &self,
        held: &mut Held<'_>,
        listing: &Listing,
        mut is_unwanted: impl FnMut(&Listed, Totals) -> bool,
    ) -> Result<Shrunk, StoreError> {
        let mut shrunk = Shrunk { left: listing.totals(), ..Shrunk::default() };
        let mut there = BTreeSet::new();
        for entry in &listing.entries {
            if is_unwanted(entry, shrunk.left) && file::remove(&self.place_of(&entry.id)).is_ok() {
                shrunk.left = shrunk.left.minus(entry.bytes);
                shrunk.removed = shrunk.removed.plus(entry.bytes);
            } else {
                there.insert(entry.id);
            }
        }
        let fault = |error| StoreError::of_io("write totals of", &self.dir, &error);
        held.set_listed(shrunk.left, self.options.now()).map_err(fault)?;
        // Counts are worth no error.
        let _ = self.usage.flush(&self.dir, 0, |id| there.contains(id));
        let _ = file::remove_left_overs(&self.dir);
        Ok(shrunk)
    }
}
