//! Writes entries: to a temporary file that is renamed into place. After a failure, puts are skipped for a while.

use super::entry::{EntryId, HEADER_BYTES, Head, MAX_KEY_BYTES};
use super::error::StoreError;
use super::file::Temporary;
use super::statistics::Writing;
use super::{DiskStore, directory, file, system_time};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long puts are skipped after one failed.
const PAUSE: Duration = Duration::from_secs(30);
/// The number of attempts to write an entry whose temporary file or directory is removed meanwhile.
const ATTEMPTS: u32 = 4;

/// The result of a put that did not fail.
///
/// Returned by [`DiskStore::put`]; see the [module documentation](crate::store) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutOutcome {
    /// The entry is in the store.
    Stored,
    /// Skipped: the entry is larger than `max_bytes`, or its key longer than [`MAX_KEY_BYTES`].
    TooLarge,
    /// Skipped: the directory could not be written when the store was opened.
    ReadOnly,
    /// Skipped: a put failed less than 30 seconds ago.
    Paused,
}

pub(super) struct Pause {
    since: Duration,
    reason: StoreError,
}

impl DiskStore {
    /// Stores a payload under a key, replacing the existing one.
    ///
    /// # Errors
    /// Returns an error of the file system, or `Busy`. The store is then unchanged, and puts are skipped for 30
    /// seconds, unless only the path of this entry is at fault.
    pub fn put(&self, key: &[u8], payload: &[u8]) -> Result<PutOutcome, StoreError> {
        let began = Instant::now();
        let outcome = match self.refusal(key.len(), payload.len()) {
            Some(outcome) => Ok(outcome),
            None => match Head::new(key, payload, self.options.now()) {
                Some(head) => self.write(&head, payload),
                None => Ok(PutOutcome::TooLarge),
            },
        };
        self.counters.count_put(&outcome, began.elapsed());
        outcome
    }

    /// Does the same as [`put`](Self::put), for an entry that was read from an archive.
    pub(super) fn put_entry(&self, head: &Head, payload: &[u8]) -> Result<PutOutcome, StoreError> {
        let began = Instant::now();
        let refusal = self.refusal(head.key.len(), payload.len());
        let outcome = refusal.map_or_else(|| self.write(head, payload), Ok);
        self.counters.count_put(&outcome, began.elapsed());
        outcome
    }

    /// Returns why a put is skipped.
    fn refusal(&self, key_bytes: usize, payload_bytes: usize) -> Option<PutOutcome> {
        let total = key_bytes.checked_add(payload_bytes).and_then(|sum| sum.checked_add(HEADER_BYTES));
        let fits = total.is_some_and(|total| total as u64 <= self.options.max_bytes());
        match self.writing() {
            Writing::ReadOnly(_) => Some(PutOutcome::ReadOnly),
            Writing::Paused(_) => Some(PutOutcome::Paused),
            Writing::On if !fits || key_bytes > MAX_KEY_BYTES => Some(PutOutcome::TooLarge),
            Writing::On => None,
        }
    }

    fn write(&self, head: &Head, payload: &[u8]) -> Result<PutOutcome, StoreError> {
        // Abandoned files that cannot be removed do no harm.
        self.cleanup.call_once(|| drop(file::remove_abandoned_files(&self.dir)));
        let id = EntryId::from_key(&head.key);
        let mut attempt = 1;
        let written = loop {
            match self.commit(&id, head, payload) {
                Ok(()) => break Ok(PutOutcome::Stored),
                Err(CommitFault::Vanished(_)) if attempt < ATTEMPTS => {
                    attempt += 1;
                    // The directory itself may be gone; otherwise this changes nothing.
                    let made = directory::make(&self.dir).and_then(|()| directory::require_trusted(&self.dir));
                    if let Err(error) = made.and_then(|()| directory::make(&self.entries)) {
                        break Err(error);
                    }
                }
                Err(CommitFault::Vanished(error) | CommitFault::Failed(error)) => break Err(error),
                // Other entries may be writable, so this is no reason to pause.
                Err(CommitFault::Obstructed(error)) => return Err(error),
            }
        };
        *self.pause.lock() = written.as_ref().err().map(|reason| {
            self.warn(reason);
            Pause { since: self.options.now(), reason: reason.clone() }
        });
        written
    }

    /// Writes the entry to a temporary file, makes room, and renames it. Only the last two steps hold the lock.
    fn commit(&self, id: &EntryId, head: &Head, payload: &[u8]) -> Result<(), CommitFault> {
        let place = self.entry_path(id);
        let mut temporary =
            Temporary::create(&self.dir).map_err(|error| CommitFault::of("create a file in", &self.dir, &error))?;
        // The modification time is the time of last use. It is set from the clock of the store, as hits do. Nothing is
        // synced: `fsync` makes a put at least 56 times slower (decision 0009), and the checksum rejects torn entries.
        let written = head
            .write(payload, &mut temporary.file)
            .and_then(|()| temporary.file.set_modified(system_time(self.options.now())));
        written.map_err(|error| CommitFault::of("write", temporary.path(), &error))?;
        let mut guard = self.acquire_lock().map_err(|error| match self.dir.exists() {
            true => CommitFault::Failed(error),
            false => CommitFault::Vanished(error),
        })?;
        let bytes = head.file_bytes();
        let old = self.make_room(&mut guard, id, bytes).map_err(CommitFault::Failed)?;
        let totals_fault = |error| CommitFault::Failed(StoreError::from_io("write totals of", &self.dir, &error));
        // Raised before the rename: a process that is killed in between leaves totals that are too high, never too low.
        guard.change(|totals| totals.plus(bytes)).map_err(totals_fault)?;
        let renamed = temporary.rename(&place);
        // Lowered after the rename: by the replaced entry, or by the new one if the rename failed.
        let lost = if renamed.is_ok() { old } else { Some(bytes) };
        if let Some(lost) = lost {
            guard.change(|totals| totals.minus(lost)).map_err(totals_fault)?;
        }
        renamed.map_err(|error| match CommitFault::of("rename a temporary file to", &place, &error) {
            CommitFault::Failed(error) if place.symlink_metadata().is_ok_and(|found| found.is_dir()) => {
                CommitFault::Obstructed(error)
            }
            fault => fault,
        })
    }

    pub(super) fn writing(&self) -> Writing {
        if let Err(reason) = &self.lock {
            return Writing::ReadOnly(reason.to_string());
        }
        match &*self.pause.lock() {
            // A clock that was set back ends the pause.
            Some(Pause { since, reason })
                if self.options.now().checked_sub(*since).is_some_and(|time| time < PAUSE) =>
            {
                Writing::Paused(reason.to_string())
            }
            _ => Writing::On,
        }
    }

    pub(super) fn warn(&self, reason: &StoreError) {
        self.warning
            .call_once(|| tracing::warn!(directory = %self.dir.display(), %reason, "the store is not written to"));
    }
}

/// Why an entry was not put in place.
enum CommitFault {
    /// A temporary file or a directory vanished; worth another attempt.
    Vanished(StoreError),
    /// A directory that cannot be removed has the name of this entry.
    Obstructed(StoreError),
    Failed(StoreError),
}

impl CommitFault {
    fn of(attempt: &str, path: &Path, error: &std::io::Error) -> Self {
        let vanished = error.kind() == std::io::ErrorKind::NotFound;
        let error = StoreError::from_io(attempt, path, error);
        if vanished { Self::Vanished(error) } else { Self::Failed(error) }
    }
}
