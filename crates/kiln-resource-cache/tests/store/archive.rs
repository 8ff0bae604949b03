//! Export and import.

use crate::fixture::{Fixture, hit, on_disk, payload_of};
use kiln_resource_cache::store::{DiskStore, ImportReport, Lookup, StoreErrorKind, StoreOptions};
use std::fs;

const KEYS: [&[u8]; 3] = [b"one", b"two", b"three"];

fn filled() -> Fixture {
    let fixture = Fixture::new();
    for key in KEYS {
        fixture.store.put(key, &payload_of(key, 40)).unwrap();
    }
    fixture
}

fn archive_of(store: &DiskStore) -> Vec<u8> {
    let mut archive = Vec::new();
    store.export(&mut archive, |_| true).unwrap();
    archive
}

/// Returns the number of entries that exist, and checks their payloads.
fn right_entries(store: &DiskStore) -> u64 {
    let rights = KEYS.iter().filter(|key| match store.get(key) {
        Lookup::Miss => false,
        found => found == hit(&payload_of(key, 40)) || panic!("{found:?}"),
    });
    rights.count() as u64
}

#[test]
fn round_trip_is_byte_for_byte() {
    let (from, to) = (filled(), Fixture::new());
    let archive = archive_of(&from.store);
    assert_eq!(archive, archive_of(&from.reopen()), "one store has one archive");
    let report = to.store.import(archive.as_slice(), |_| true).unwrap();
    assert_eq!(report, ImportReport { imported: 3, complete: true, ..ImportReport::default() });
    for key in KEYS {
        assert_eq!(fs::read(from.file_of(key)).unwrap(), fs::read(to.file_of(key)).unwrap());
    }
    assert_eq!(right_entries(&to.store), 3);
    assert_eq!(to.store.statistics().entries, 3);
}

#[test]
fn export_applies_the_filter_and_skips_damaged_entries() {
    let from = filled();
    let mut bytes = fs::read(from.file_of(b"two")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(from.file_of(b"two"), bytes).unwrap();
    let mut archive = Vec::new();
    let report = from.store.export(&mut archive, |entry| entry.key.starts_with(b"t")).unwrap();
    assert_eq!((report.entries, report.skipped), (1, 1));
    let to = Fixture::new();
    to.store.import(archive.as_slice(), |_| true).unwrap();
    assert_eq!((to.store.get(b"three"), on_disk(&to.dir).0), (hit(&payload_of(b"three", 40)), 1));
}

#[test]
fn import_applies_the_filter() {
    let to = Fixture::new();
    let archive = archive_of(&filled().store);
    let report = to.store.import(archive.as_slice(), |key| key != b"two").unwrap();
    assert_eq!((report.imported, report.refused, report.damaged, report.complete), (2, 1, 0, true));
    assert_eq!((to.store.get(b"two"), to.store.get(b"three")), (Lookup::Miss, hit(&payload_of(b"three", 40))));
}

/// A flipped byte removes an entry or is an error, and never yields a wrong payload.
#[test]
fn every_flipped_byte_of_an_archive_is_noticed() {
    let archive = archive_of(&filled().store);
    let to = Fixture::new();
    for index in 0..archive.len() {
        let mut bytes = archive.clone();
        bytes[index] ^= 0x21;
        match to.store.import(bytes.as_slice(), |_| true) {
            Ok(report) => {
                let is_noticed = report.imported < 3 || !report.complete;
                assert!(
                    index >= 12 && is_noticed && report.imported >= report.damaged.min(1) * 2,
                    "{index}: {report:?}"
                );
                assert_eq!(right_entries(&to.store), report.imported, "byte {index}");
            }
            Err(error) => assert!(index < 12 && error.kind() == StoreErrorKind::Corrupt, "byte {index}: {error}"),
        }
        to.store.clear().unwrap();
    }
}

#[test]
fn a_truncated_archive_yields_intact_entries() {
    let archive = archive_of(&filled().store);
    let to = Fixture::new();
    for len in 0..archive.len() {
        match to.store.import(&archive[..len], |_| true) {
            Ok(report) => {
                assert!(len >= 12 && !report.complete, "{len}: {report:?}");
                assert_eq!(right_entries(&to.store), report.imported);
            }
            Err(error) => assert!(len < 12 && error.kind() == StoreErrorKind::Corrupt, "length {len}: {error}"),
        }
        to.store.clear().unwrap();
    }
}

#[test]
fn garbage_and_other_versions_are_errors() {
    let mut newer = archive_of(&filled().store);
    newer[8] = 2;
    for (bytes, found) in
        [(b"{\"not\": \"an archive\"}".as_slice(), "found `{\\\"not\\\": `"), (&newer, "found version 2")]
    {
        let error = Fixture::new().store.import(bytes, |_| true).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        assert!(error.to_string().ends_with(found), "{error}");
    }
}

/// A length in an archive does not cause an allocation.
#[test]
fn entries_that_are_too_large_are_skipped() {
    let mut lengths = KEYS.map(|key| 64 + key.len() as u64 + payload_of(key, 40).len() as u64);
    lengths.sort_unstable();
    assert!(lengths[0] < lengths[1] && lengths[1] < lengths[2], "{lengths:?}");
    let to = Fixture::with(StoreOptions::new().with_max_bytes(lengths[1]));
    let report = to.store.import(archive_of(&filled().store).as_slice(), |_| true).unwrap();
    assert_eq!(report, ImportReport { imported: 1, too_large: 1, complete: true, ..ImportReport::default() });
    assert_eq!(on_disk(&to.dir).0, 1, "the second one took the place of the first");
}

/// The import report counts the entries that exist at the end.
#[test]
fn entries_that_are_evicted_again_are_not_counted() {
    let to = Fixture::with(StoreOptions::new().with_max_entries(2));
    let report = to.store.import(archive_of(&filled().store).as_slice(), |_| true).unwrap();
    assert_eq!(report, ImportReport { imported: 2, complete: true, ..ImportReport::default() });
    assert_eq!((on_disk(&to.dir).0, right_entries(&to.store)), (2, 2));
}
