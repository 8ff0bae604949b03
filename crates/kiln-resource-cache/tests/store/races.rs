//! Races between two steps of one operation. The lock, or a slow step, stops the operation in between.
#![cfg(unix)]

use crate::fixture::{Fixture, child_below, child_dir, hit, on_disk};
use kiln_resource_cache::store::{DiskStore, Lookup, PutOutcome, StoreOptions};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// Enough for a thread to reach the lock, and less than its timeout.
const HEAD_START: Duration = Duration::from_millis(300);
/// On a busy machine the thread may not reach the lock, so that an attempt shows nothing.
const ATTEMPTS: u32 = 10;

/// Runs the operation in a thread, and `meanwhile` while the operation waits for the lock.
fn while_it_waits<T: Send>(dir: &Path, operation: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
    let lock = File::options().write(true).open(dir.join("lock")).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(operation);
        std::thread::sleep(HEAD_START);
        meanwhile();
        lock.unlock().unwrap();
        thread.join().unwrap()
    })
}

/// An invalid entry that another process replaces by a valid one before its removal is kept.
#[test]
fn good_entry_in_the_place_of_a_bad_one_stays() {
    let fixture = Fixture::new();
    fixture.store.put(b"key", b"payload").unwrap();
    let (place, good) = (fixture.file_of(b"key"), fixture.dir.join("good"));
    let was_rejected = (0..ATTEMPTS).any(|_| {
        fs::copy(&place, &good).unwrap();
        fs::write(&place, "damage").unwrap();
        let meanwhile = || fs::rename(&good, &place).unwrap();
        let lookup = while_it_waits(&fixture.dir, || fixture.store.get(b"key"), meanwhile);
        assert_eq!(fixture.store.get(b"key"), hit(b"payload"));
        matches!(lookup, Lookup::Rejected(_))
    });
    assert!(was_rejected, "no lookup met the bad entry; the test tests too little");
}

/// A directory that is moved away while a put waits for its lock is created again.
#[test]
fn directory_that_is_moved_in_a_put_is_made_again() {
    let fixture = Fixture::new();
    let put = || fixture.store.put(b"key", b"payload").unwrap();
    let meanwhile = || fs::rename(&fixture.dir, fixture.dir.with_extension("moved")).unwrap();
    assert_eq!(while_it_waits(&fixture.dir, put, meanwhile), PutOutcome::Stored);
    assert_eq!((fixture.store.get(b"key"), on_disk(&fixture.dir).0), (hit(b"payload"), 1));
}

/// A repair that runs out of file descriptors cannot tell what is invalid, and removes nothing.
#[test]
fn repair_keeps_unreadable_entries() {
    const TEST: &str = "races::repair_keeps_unreadable_entries";
    if let Some(dir) = child_dir() {
        let store = DiskStore::open(&dir, StoreOptions::new()).unwrap();
        let mut files = Vec::new();
        let use_up = || files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        let report = while_it_waits(&dir, || store.verify(true), use_up);
        drop(files);
        assert_eq!(store.get(b"key"), hit(b"payload"));
        // It cannot even list the directory at the end.
        report.unwrap_err();
        return;
    }
    let fixture = Fixture::new();
    fixture.store.put(b"bad", b"payload").unwrap();
    fixture.store.put(b"key", b"payload").unwrap();
    fs::write(fixture.file_of(b"bad"), "damage").unwrap();
    // Older than the valid one, so that it is found first and the repair waits there.
    File::options().write(true).open(fixture.file_of(b"bad")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let script = "ulimit -n 100; exec \"$0\" \"$@\"";
    let output = child_below(&["sh", "-ec"], script, TEST, &fixture.dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(on_disk(&fixture.dir).0, 2);
}

/// Totals are raised before the rename: a process that is killed in between leaves them too high, never too low. The
/// name is taken by a directory that takes a while to remove.
#[test]
fn totals_are_raised_before_the_rename() {
    let fixture = Fixture::new();
    fixture.store.put(b"other", b"payload").unwrap();
    let (place, lock) = (fixture.file_of(b"key"), fixture.dir.join("lock"));
    let entries_in_totals = || fs::read(&lock).ok().and_then(|bytes| bytes.get(8..16)?.try_into().ok());
    let was_seen = (0..ATTEMPTS).any(|_| {
        fixture.store.remove(b"key").unwrap();
        fs::create_dir(&place).unwrap();
        (0..2000).for_each(|number| fs::write(place.join(number.to_string()), "").unwrap());
        std::thread::scope(|scope| {
            let put = scope.spawn(|| fixture.store.put(b"key", b"payload").unwrap());
            let mut was_seen = false;
            while !put.is_finished() {
                was_seen |= entries_in_totals().map(u64::from_le_bytes) == Some(2) && place.is_dir();
            }
            was_seen
        })
    });
    assert!(was_seen, "the folder was there for as long as the totals were not raised");
}
