//! What is in a store, for people and for preloading, and removal by choice.

use super::entry::{EntryId, OpenEntry};
use super::error::StoreError;
use super::evict::Shrunk;
use super::{DiskStore, at};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// One entry, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// The whole key.
    pub key: Vec<u8>,
    /// The length of the payload.
    pub payload_bytes: u64,
    /// The length of the file.
    pub file_bytes: u64,
    /// When it was written.
    pub written: SystemTime,
    /// When it was last written or read.
    pub last_used: SystemTime,
    /// How often it was read, by all processes, as far as they have said so (see the module).
    pub uses: u64,
}

/// What [`DiskStore::prune`] keeps. Without limits it keeps everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneTarget {
    /// Keeps at most this many bytes.
    pub max_bytes: Option<u64>,
    /// Keeps at most this many entries.
    pub max_entries: Option<u64>,
    /// Keeps what was used within this time, and what was used in the future: the clock was set back since.
    pub unused_for: Option<Duration>,
}

/// What a removal by choice did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PruneReport {
    /// Entries removed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Entries left.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

impl DiskStore {
    /// All entries, by key. Reads no payloads, so an entry with a damaged one is listed; entries whose head is damaged
    /// are left out, and [`verify`](Self::verify) names both.
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
        let mut held = self.hold()?;
        let oldest = target.unused_for.and_then(|time| at(self.options.now()).checked_sub(time));
        let listing = self.list()?;
        let shrunk = self.shrink(&mut held, &listing, |entry, left| {
            target.max_bytes.is_some_and(|max| left.bytes > max)
                || target.max_entries.is_some_and(|max| left.entries > max)
                || oldest.is_some_and(|oldest| entry.last_used < oldest)
        })?;
        Ok(shrunk.into())
    }

    /// Removes the entries for which the predicate is true. Entries with a damaged head are not asked about and stay.
    pub fn remove_where(&self, mut predicate: impl FnMut(&EntryInfo) -> bool) -> Result<PruneReport, StoreError> {
        // The user's code runs without the lock.
        let unwanted: BTreeSet<EntryId> =
            self.entries()?.iter().filter(|entry| predicate(entry)).map(|entry| EntryId::of_key(&entry.key)).collect();
        let mut held = self.hold()?;
        let listing = self.list()?;
        Ok(self.shrink(&mut held, &listing, |entry, _| unwanted.contains(&entry.id))?.into())
    }

    /// The head of an entry, without its uses.
    fn info(&self, id: &EntryId) -> Option<EntryInfo> {
        let OpenEntry { head, last_used, .. } = OpenEntry::open(&self.place_of(id), u64::MAX).ok()?;
        (EntryId::of_key(&head.key) == *id).then(|| EntryInfo {
            payload_bytes: head.payload_bytes,
            file_bytes: head.file_bytes(),
            written: at(head.written()),
            key: head.key,
            last_used,
            uses: 0,
        })
    }
}

impl From<Shrunk> for PruneReport {
    fn from(Shrunk { removed, left }: Shrunk) -> Self {
        Self { removed: removed.entries, removed_bytes: removed.bytes, kept: left.entries, kept_bytes: left.bytes }
    }
}
