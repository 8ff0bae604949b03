//! Verifies every byte of a store.

use super::entry::{EntryId, Fault, OpenEntry, Reject};
use super::error::StoreError;
use super::usage::Stored;
use super::{DiskStore, file};
use std::path::Path;
use std::{fmt, fs};

/// The result of [`DiskStore::verify`].
///
/// ```
/// use kiln_resource_cache::store::{BadEntry, Problem, Reject, VerifyReport};
///
/// let bad = BadEntry { name: "a1".into(), problem: Problem::Rejected(Reject::Truncated), removed: false };
/// let report = VerifyReport { bad: vec![bad], ..VerifyReport::default() };
/// assert!(!report.is_clean());
/// assert_eq!(report.bad[0].problem.to_string(), "truncated");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// Valid entries.
    pub entries: u64,
    /// The total length of their files.
    pub bytes: u64,
    /// Invalid files, by name.
    pub bad: Vec<BadEntry>,
    /// Temporary files whose writers are gone.
    pub abandoned_files: u64,
    /// Whether the file of use counts is damaged.
    pub usage_is_damaged: bool,
    /// Whether all of the above was removed; false if a removal failed.
    pub repaired: bool,
}

impl VerifyReport {
    /// Returns whether no fault was found.
    pub fn is_clean(&self) -> bool {
        self.bad.is_empty() && self.abandoned_files == 0 && !self.usage_is_damaged
    }
}

/// A file in the directory of entries that is not a valid entry.
///
/// See [`VerifyReport`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BadEntry {
    /// The file name.
    pub name: String,
    /// The fault.
    pub problem: Problem,
    /// Whether it was removed.
    pub removed: bool,
}

/// The fault of a [`BadEntry`].
///
/// See [`VerifyReport`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// The content is invalid.
    Rejected(Reject),
    /// The file system cannot read it; the text is the reason.
    Unreadable(String),
    /// The name is not that of an entry.
    ForeignName,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(reject) => reject.fmt(f),
            Self::Unreadable(message) => f.write_str(message),
            Self::ForeignName => f.write_str("not a valid entry name"),
        }
    }
}

impl DiskStore {
    /// Verifies everything in the store and reports what is invalid. Other processes may use the store meanwhile.
    ///
    /// With `repair`, invalid entries and abandoned temporary files are removed, and entries and bytes are counted
    /// again. The directory of entries belongs to the store: repair removes every file in it that is not a valid entry,
    /// and every directory with the name of an entry; a directory with another name is removed only if it is empty.
    /// Files that cannot be read are kept. Files next to that directory are ignored.
    pub fn verify(&self, repair: bool) -> Result<VerifyReport, StoreError> {
        let mut report = VerifyReport::default();
        let listing = self.list()?;
        for path in &listing.foreign {
            self.verify_foreign(path, repair, &mut report);
        }
        for id in listing.non_files.iter().chain(listing.entries.iter().map(|entry| &entry.id)) {
            self.verify_entry(id, repair, &mut report);
        }
        report.bad.sort_by(|a, b| a.name.cmp(&b.name));
        let fault = |error| StoreError::from_io("list", &self.dir, &error);
        report.abandoned_files = file::abandoned_files(&self.dir).map_err(fault)?.len() as u64;
        report.usage_is_damaged = matches!(self.usage.stored(), Stored::Damaged);
        if repair {
            self.finish_repair(&mut report)?;
        }
        Ok(report)
    }

    fn verify_entry(&self, id: &EntryId, repair: bool, report: &mut VerifyReport) {
        let place = self.entry_path(id);
        let problem = match OpenEntry::check(&place, id) {
            Ok(bytes) => {
                report.entries += 1;
                report.bytes += bytes;
                return;
            }
            // Evicted in the meantime.
            Err(Fault::Missing) => return,
            Err(Fault::Rejected(reject)) => Problem::Rejected(reject),
            Err(Fault::Io(error)) => Problem::Unreadable(StoreError::from_io("read", &place, &error).to_string()),
        };
        // `discard` checks again under the lock, because the entry may have been replaced meanwhile.
        let removed = repair && self.discard(id);
        report.bad.push(BadEntry { name: id.name(), problem, removed });
    }

    fn verify_foreign(&self, path: &Path, repair: bool, report: &mut VerifyReport) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let remove = || fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        let removed = repair && self.acquire_lock().is_ok_and(|_guard| remove().is_ok());
        report.bad.push(BadEntry { name, problem: Problem::ForeignName, removed });
    }

    fn finish_repair(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let mut guard = self.acquire_lock()?;
        let usage_is_right = !report.usage_is_damaged || self.usage.clear().is_ok();
        // Corrects totals and use counts, and removes abandoned files.
        let listing = self.list()?;
        self.shrink(&mut guard, &listing, |_, _| false)?;
        drop(guard);
        report.repaired = usage_is_right
            && report.bad.iter().all(|bad| bad.removed)
            && file::abandoned_files(&self.dir).is_ok_and(|paths| paths.is_empty());
        Ok(())
    }
}
