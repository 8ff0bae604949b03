//! Times of last use and use counts, over processes, handles and restarts.

use crate::fixture::{Fixture, child, child_dir, hit};
use kiln_resource_cache::store::{DiskStore, StoreOptions};
use std::fs;

fn uses(store: &DiskStore) -> Vec<(String, u64)> {
    let entries = store.entries().unwrap();
    entries.into_iter().map(|entry| (String::from_utf8(entry.key).unwrap(), entry.uses)).collect()
}

fn counts(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect()
}

/// The most used entries are known after a restart, with the uses of all handles and processes.
#[test]
fn use_counts_survive_and_are_merged() {
    const TEST: &str = "usage::use_counts_survive_and_are_merged";
    if let Some(dir) = child_dir() {
        let store = DiskStore::open(dir, StoreOptions::new()).unwrap();
        (0..5).for_each(|_| drop(store.get(b"b")));
        return;
    }
    let fixture = Fixture::new();
    for key in [b"a", b"b", b"c"] {
        fixture.store.put(key, b"payload").unwrap();
    }
    let other = fixture.reopen();
    fixture.store.get(b"a");
    (0..3).for_each(|_| drop(other.get(b"b")));
    other.get(b"a");
    other.get(b"none");
    assert_eq!(uses(&fixture.store), counts(&[("a", 1), ("b", 0), ("c", 0)]), "its own are there at once");
    drop(other);
    assert_eq!(uses(&fixture.store), counts(&[("a", 2), ("b", 3), ("c", 0)]));
    assert!(child(TEST, &fixture.dir, 0).status().unwrap().success());
    assert_eq!(uses(&fixture.store), counts(&[("a", 2), ("b", 8), ("c", 0)]));
    fixture.store.put(b"b", b"another payload").unwrap();
    assert_eq!(uses(&fixture.reopen())[1].1, 8, "a new payload keeps them");
}

/// Counts are written periodically, not only at the end, which a crash skips.
#[test]
fn use_counts_are_written_meanwhile() {
    let fixture = Fixture::new();
    fixture.store.put(b"a", b"payload").unwrap();
    (0..1500).for_each(|_| drop(fixture.store.get(b"a")));
    assert_eq!(uses(&fixture.reopen()), counts(&[("a", 1024)]));
}

#[test]
fn damaged_use_counts_are_ignored_and_rewritten() {
    let fixture = Fixture::new();
    fixture.store.put(b"a", b"payload").unwrap();
    let count = || (0..3).for_each(|_| drop(fixture.reopen().get(b"a")));
    count();
    assert_eq!(uses(&fixture.store), counts(&[("a", 3)]));
    let file = fixture.dir.join("usage");
    let good = fs::read(&file).unwrap();
    for index in 0..good.len() {
        let mut bytes = good.clone();
        bytes[index] ^= 0x10;
        fs::write(&file, bytes).unwrap();
        assert_eq!(uses(&fixture.store), counts(&[("a", 0)]), "byte {index}");
        fs::write(&file, &good[..index]).unwrap();
        assert_eq!(uses(&fixture.store), counts(&[("a", 0)]), "length {index}");
    }
    assert!(fixture.store.verify(false).unwrap().usage_is_damaged);
    count();
    assert_eq!(uses(&fixture.store), counts(&[("a", 3)]));
    assert!(fixture.store.verify(false).unwrap().is_clean());
}

/// The file of counts does not keep those of evicted entries.
#[test]
fn use_counts_of_evicted_entries_go_too() {
    let fixture = Fixture::with(StoreOptions::new().with_max_entries(10));
    for number in 0..200_u64 {
        let key = number.to_le_bytes();
        fixture.store.put(&key, b"payload").unwrap();
        fixture.store.get(&key);
    }
    drop(fixture.reopen());
    fixture.store.verify(true).unwrap();
    let header_and_checksum = 8 + 32;
    assert_eq!(fs::metadata(fixture.dir.join("usage")).unwrap().len(), header_and_checksum + 10 * 40);
}

/// Nor those of entries removed by key, which does not list the directory.
#[test]
fn use_counts_of_removed_entries_go_too() {
    let fixture = Fixture::new();
    fixture.store.put(b"stays", b"payload").unwrap();
    fixture.store.get(b"stays");
    for number in 0..3000_u64 {
        let key = number.to_le_bytes();
        fixture.store.put(&key, b"payload").unwrap();
        assert_eq!(fixture.store.get(&key), hit(b"payload"));
        fixture.store.remove(&key).unwrap();
    }
    let length = || fs::metadata(fixture.dir.join("usage")).unwrap().len();
    assert!(length() <= 40 + 2 * 40, "{}: the entry that stays, and the one that was read at the merge", length());
    assert_eq!(uses(&fixture.store), counts(&[("stays", 1)]));
}
