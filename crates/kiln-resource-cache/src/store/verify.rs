//! Checking every byte of a store.

use super::entry::{EntryId, Fault, OpenEntry, Reject};
use super::error::StoreError;
use super::usage::Stored;
use super::{DiskStore, file};
use std::path::Path;
use std::{fmt, fs};

/// What [`DiskStore::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// Good entries.
    pub entries: u64,
    /// The sum of the lengths of their files.
    pub bytes: u64,
    /// What is not good, by file name.
    pub bad: Vec<BadEntry>,
    /// Temporary files whose writers are gone.
    pub left_overs: u64,
    /// Whether the file with the use counts is damaged.
    pub usage_is_damaged: bool,
    /// Whether the faults above were removed; false also if a removal failed.
    pub repaired: bool,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.bad.is_empty() && self.left_overs == 0 && !self.usage_is_damaged
    }
}

/// Something in the directory of entries that is not a good entry.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BadEntry {
    /// The name of its file.
    pub name: String,
    /// What is wrong with it.
    pub problem: Problem,
    /// Whether it was removed.
    pub removed: bool,
}

/// What is wrong with a [`BadEntry`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// It is not what was written there.
    Rejected(Reject),
    /// The file system does not let it be read; the text says why.
    Unreadable(String),
    /// Its name is not one of an entry.
    ForeignName,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(reject) => reject.fmt(f),
            Self::Unreadable(message) => f.write_str(message),
            Self::ForeignName => f.write_str("the name is not one of an entry"),
        }
    }
}

impl DiskStore {
    /// Reads and checks everything in the store and names what is bad. With `repair`, removes it, and temporary files
    /// whose writers are gone, and counts entries and bytes anew. Other processes may go on using the store.
    ///
    /// The directory of entries belongs to the store: repair removes any file there that is no good entry, and any
    /// folder in the place of an entry, but one of a foreign name only if it is empty. What cannot be read stays.
    /// Foreign files beside that directory are not looked at.
    pub fn verify(&self, repair: bool) -> Result<VerifyReport, StoreError> {
        let mut report = VerifyReport::default();
        let listing = self.list()?;
        for path in &listing.foreign {
            self.judge_foreign(path, repair, &mut report);
        }
        for id in listing.obstacles.iter().chain(listing.entries.iter().map(|entry| &entry.id)) {
            self.judge(id, repair, &mut report);
        }
        report.bad.sort_by(|a, b| a.name.cmp(&b.name));
        let fault = |error| StoreError::of_io("list", &self.dir, &error);
        report.left_overs = file::left_overs(&self.dir).map_err(fault)?.len() as u64;
        report.usage_is_damaged = matches!(self.usage.stored(), Stored::Damaged);
        if repair {
            self.finish_repair(&mut report)?;
        }
        Ok(report)
    }

    fn judge(&self, id: &EntryId, repair: bool, report: &mut VerifyReport) {
        let place = self.place_of(id);
        let problem = match OpenEntry::check(&place, id) {
            Ok(bytes) => {
                report.entries += 1;
                report.bytes += bytes;
                return;
            }
            // Evicted by somebody meanwhile.
            Err(Fault::Missing) => return,
            Err(Fault::Rejected(reject)) => Problem::Rejected(reject),
            Err(Fault::Io(error)) => Problem::Unreadable(StoreError::of_io("read", &place, &error).to_string()),
        };
        let removed = repair && self.discard(id);
        report.bad.push(BadEntry { name: id.name(), problem, removed });
    }

    fn judge_foreign(&self, path: &Path, repair: bool, report: &mut VerifyReport) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let remove = || fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        let removed = repair && self.hold().is_ok_and(|_held| remove().is_ok());
        report.bad.push(BadEntry { name, problem: Problem::ForeignName, removed });
    }

    fn finish_repair(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let mut held = self.hold()?;
        let usage_is_right = !report.usage_is_damaged || self.usage.clear().is_ok();
        // Puts totals and use counts right, and removes left-overs.
        let listing = self.list()?;
        self.shrink(&mut held, &listing, |_, _| false)?;
        drop(held);
        report.repaired = usage_is_right
            && report.bad.iter().all(|bad| bad.removed)
            && file::left_overs(&self.dir).is_ok_and(|paths| paths.is_empty());
        Ok(())
    }
}
