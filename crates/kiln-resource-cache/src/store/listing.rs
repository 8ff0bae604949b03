//! Lists entries, for users and for preloading, and removes selected ones.

use super::entry::{EntryId, OpenEntry};
use super::error::StoreError;
use super::evict::ShrinkResult;
use super::{DiskStore, system_time};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// An entry without its payload.
///
/// Returned by [`DiskStore::entries`]; see the [module documentation](crate::store) for an example of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// The whole key.
    pub key: Vec<u8>,
    /// The length of the payload in bytes.
    pub payload_bytes: u64,
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// The time of writing.
    pub written: SystemTime,
    /// The time of the last write or read.
    pub last_used: SystemTime,
    /// The number of reads by all processes, as far as they have merged their counts (see the module documentation).
    pub uses: u64,
}

/// The limits that [`DiskStore::prune`] enforces. Without limits it removes nothing.
///
/// See the [module documentation](crate::store) for an example of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneTarget {
    /// The maximum total bytes.
    pub max_bytes: Option<u64>,
    /// The maximum number of entries.
    pub max_entries: Option<u64>,
    /// Removes entries that were not used for this long. Times in the future count as recent, because the clock was set
    /// back since.
    pub unused_for: Option<Duration>,
}

/// The result of a removal.
///
/// Returned by [`DiskStore::prune`] and [`DiskStore::remove_where`]; see the [module documentation](crate::store)
/// for an example of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PruneReport {
    /// Removed entries.
    pub removed: u64,
    /// Bytes of the removed entries.
    pub removed_bytes: u64,
    /// Remaining entries.
    pub kept: u64,
    /// Bytes of the remaining entries.
    pub kept_bytes: u64,
}

impl DiskStore {
    /// Returns all entries, by key.
    ///
    /// Payloads are not read, so an entry with a damaged payload is listed. Entries with a damaged head are omitted;
    /// [`verify`](Self::verify) reports both.
    pub fn entries(&self) -> Result<Vec<EntryInfo>, StoreError> {
        let uses = self.usage.counts();
        let mut entries = Vec::new();
        for listed in self.list()?.entries {
            if let Some(mut entry) = self.info(&listed.id) {
                entry.uses = uses.get(&listed.id).copied().unwrap_or_default();
                entries.push(entry);
            }
        }
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }

    /// Removes entries, least recently used first, until the store meets the target.
    pub fn prune(&self, target: PruneTarget) -> Result<PruneReport, StoreError> {
        let mut guard = self.acquire_lock()?;
        let oldest = target.unused_for.and_then(|time| system_time(self.options.now()).checked_sub(time));
        let listing = self.list()?;
        let result = self.shrink(&mut guard, &listing, |entry, left| {
            target.max_bytes.is_some_and(|max| left.bytes > max)
                || target.max_entries.is_some_and(|max| left.entries > max)
                || oldest.is_some_and(|oldest| entry.last_used < oldest)
        })?;
        Ok(result.into())
    }

    /// Removes the entries for which the predicate returns true. Entries with a damaged head are kept.
    pub fn remove_where(&self, mut predicate: impl FnMut(&EntryInfo) -> bool) -> Result<PruneReport, StoreError> {
        // The predicate is user code and runs without the lock.
        let unwanted: BTreeSet<EntryId> = self
            .entries()?
            .iter()
            .filter(|entry| predicate(entry))
            .map(|entry| EntryId::from_key(&entry.key))
            .collect();
        let mut guard = self.acquire_lock()?;
        let listing = self.list()?;
        Ok(self.shrink(&mut guard, &listing, |entry, _| unwanted.contains(&entry.id))?.into())
    }

    /// Reads the head of an entry. The number of uses is not set.
    fn info(&self, id: &EntryId) -> Option<EntryInfo> {
        let OpenEntry { head, last_used, .. } = OpenEntry::open(&self.entry_path(id), u64::MAX).ok()?;
        (EntryId::from_key(&head.key) == *id).then(|| EntryInfo {
            payload_bytes: head.payload_bytes,
            file_bytes: head.file_bytes(),
            written: system_time(head.written()),
            key: head.key,
            last_used,
            uses: 0,
        })
    }
}

impl From<ShrinkResult> for PruneReport {
    fn from(ShrinkResult { removed, left }: ShrinkResult) -> Self {
        Self { removed: removed.entries, removed_bytes: removed.bytes, kept: left.entries, kept_bytes: left.bytes }
    }
}
