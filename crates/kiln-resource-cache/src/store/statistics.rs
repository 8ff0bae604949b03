//! Counters of a store.

use super::entry::Reject;
use super::error::StoreError;
use super::{Lookup, PutOutcome};
use crate::metrics::MeanTime;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counters of a [`DiskStore`](super::DiskStore) since it was opened, and the content of its directory.
///
/// Returned by [`DiskStore::statistics`](super::DiskStore::statistics); see the [module documentation](crate::store)
/// for an example of a store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StoreStatistics {
    /// Lookups that returned a payload.
    pub hits: u64,
    /// Lookups that found no entry.
    pub misses: u64,
    /// Lookups that found an invalid entry, by reason. Reasons that did not occur are omitted.
    pub rejected: BTreeMap<Reject, u64>,
    /// Lookups that failed because of the file system.
    pub unreadable: u64,
    /// Entries written.
    pub puts: u64,
    /// Writes that failed because of the file system or a busy lock.
    pub put_failures: u64,
    /// Puts that were skipped: too large, read-only, or paused after a failure.
    pub puts_not_tried: u64,
    /// Entries evicted to make room.
    pub evictions: u64,
    /// Entries in the directory, of all processes. May be too high for up to an hour after a process was killed during
    /// a put, until the directory is listed again.
    pub entries: u64,
    /// The total length of their files, with the same precision as `entries`.
    pub bytes: u64,
    /// Mean duration of a hit; zero before the first.
    pub mean_hit_time: Duration,
    /// Mean duration of a successful put; zero before the first.
    pub mean_put_time: Duration,
    /// Whether the store currently writes, or the reason why not.
    pub writing: Writing,
}

impl StoreStatistics {
    /// Returns the number of rejected entries of all reasons.
    pub fn rejected_total(&self) -> u64 {
        self.rejected.values().sum()
    }
}

/// Whether a store writes.
///
/// Part of [`StoreStatistics`]; see the [module documentation](crate::store) for an example of a store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum Writing {
    /// Puts are written.
    On,
    /// Puts are skipped until the store is opened again: the directory could not be written when it was opened.
    ReadOnly(String),
    /// Puts are skipped for a while, because the last one failed.
    Paused(String),
}

/// The counters that [`StoreStatistics`] reports.
#[derive(Default)]
pub(super) struct Counters {
    hits: MeanTime,
    misses: AtomicU64,
    rejected: [AtomicU64; Reject::ALL.len()],
    unreadable: AtomicU64,
    puts: MeanTime,
    put_failures: AtomicU64,
    puts_not_tried: AtomicU64,
    evictions: AtomicU64,
}

impl Counters {
    pub(super) fn count_get(&self, lookup: &Lookup, time: Duration) {
        match lookup {
            Lookup::Hit(_) => self.hits.record(time),
            Lookup::Miss => add(&self.misses, 1),
            Lookup::Rejected(reject) => add(&self.rejected[*reject as usize], 1),
            Lookup::Unreadable(_) => add(&self.unreadable, 1),
        }
    }

    pub(super) fn count_put(&self, outcome: &Result<PutOutcome, StoreError>, time: Duration) {
        match outcome {
            Ok(PutOutcome::Stored) => self.puts.record(time),
            Ok(_) => add(&self.puts_not_tried, 1),
            Err(_) => add(&self.put_failures, 1),
        }
    }

    pub(super) fn count_evictions(&self, count: u64) {
        add(&self.evictions, count);
    }

    pub(super) fn report(&self, (entries, bytes): (u64, u64), writing: Writing) -> StoreStatistics {
        let rejected = Reject::ALL.into_iter().map(|reject| (reject, get(&self.rejected[reject as usize])));
        StoreStatistics {
            hits: self.hits.count(),
            misses: get(&self.misses),
            rejected: rejected.filter(|(_, count)| *count > 0).collect(),
            unreadable: get(&self.unreadable),
            puts: self.puts.count(),
            put_failures: get(&self.put_failures),
            puts_not_tried: get(&self.puts_not_tried),
            evictions: get(&self.evictions),
            entries,
            bytes,
            mean_hit_time: self.hits.mean().unwrap_or_default(),
            mean_put_time: self.puts.mean().unwrap_or_default(),
            writing,
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
