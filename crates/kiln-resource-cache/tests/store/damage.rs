//! Damaged entries: always a miss, counted, never used, removed.

use crate::fixture::{Fixture, hit, on_disk};
use kiln_resource_cache::store::{DiskStore, Lookup, PutOutcome, Reject, StoreOptions};
use proptest::prelude::*;
use std::fs::{self, File};

const KEY: &[u8] = b"key";
const PAYLOAD: &[u8] = b"a payload of some bytes";

/// Replaces the file of an entry by `bytes`, and expects a miss with this reason, or any.
fn expect_rejected(fixture: &Fixture, bytes: &[u8], reason: Option<Reject>) {
    let file = fixture.file_of(KEY);
    fs::write(&file, bytes).unwrap();
    expect_rejected_in_place(fixture, reason);
    assert!(!file.exists(), "removed");
    assert_eq!(fixture.store.get(KEY), Lookup::Miss);
}

fn expect_rejected_in_place(fixture: &Fixture, reason: Option<Reject>) {
    let before = fixture.store.statistics();
    let lookup = fixture.store.get(KEY);
    let Lookup::Rejected(found) = lookup else { panic!("expected a rejected entry, found {lookup:?}") };
    assert!(reason.is_none_or(|reason| reason == found), "{found:?}");
    let after = fixture.store.statistics();
    assert_eq!(after.rejected_total(), before.rejected_total() + 1);
    assert_eq!(after.rejected[&found], before.rejected.get(&found).unwrap_or(&0) + 1);
    assert_eq!((after.hits, after.misses), (before.hits, before.misses));
}

fn entry_of(fixture: &Fixture) -> Vec<u8> {
    fixture.store.put(KEY, PAYLOAD).unwrap();
    fs::read(fixture.file_of(KEY)).unwrap()
}

/// A corrupted entry is a miss that is removed and counted.
#[test]
fn every_flipped_byte_is_rejected() {
    let fixture = Fixture::new();
    let good = entry_of(&fixture);
    for (index, flip) in (0..good.len()).flat_map(|index| [0x01, 0x80, 0xff].map(|flip| (index, flip))) {
        let mut bytes = good.clone();
        bytes[index] ^= flip;
        let reason = match index {
            0..8 => Some(Reject::ForeignMagic),
            8..12 => Some(Reject::Version),
            12..24 => None,
            _ => Some(Reject::Checksum),
        };
        expect_rejected(&fixture, &bytes, reason);
    }
    fs::write(fixture.file_of(KEY), &good).unwrap();
    assert_eq!(fixture.store.get(KEY), hit(PAYLOAD), "the entry itself is good");
}

/// A truncated entry is a miss that is removed and counted.
#[test]
fn every_length_but_the_right_one_is_rejected() {
    let fixture = Fixture::new();
    let good = entry_of(&fixture);
    for len in 0..good.len() {
        expect_rejected(&fixture, &good[..len], Some(Reject::Truncated));
    }
    for more in 1..100 {
        let longer = [good.as_slice(), &vec![0; more]].concat();
        expect_rejected(&fixture, &longer, Some(Reject::TrailingBytes));
    }
    expect_rejected(&fixture, &[0; 4096], Some(Reject::ForeignMagic));
}

/// A valid entry under the name of another key is a miss.
#[test]
fn entry_of_another_key_is_rejected() {
    let fixture = Fixture::new();
    fixture.store.put(b"other", PAYLOAD).unwrap();
    let other = fs::read(fixture.file_of(b"other")).unwrap();
    expect_rejected(&fixture, &other, Some(Reject::OtherKey));
    assert_eq!(fixture.store.get(b"other"), hit(PAYLOAD));
}

/// A length does not cause an allocation, neither one in the header nor that of a sparse file.
#[test]
fn absurd_lengths_are_rejected_without_allocating() {
    let fixture = Fixture::new();
    let good = entry_of(&fixture);
    for (at, len) in [(12, 4), (16, 8)] {
        let mut bytes = good.clone();
        bytes[at..at + len].fill(0xff);
        expect_rejected(&fixture, &bytes, Some(Reject::Truncated));
    }
    let payload_bytes: u64 = 1 << 40;
    let mut bytes = good.clone();
    bytes[16..24].copy_from_slice(&payload_bytes.to_le_bytes());
    let path = fixture.file_of(KEY);
    fs::write(&path, &bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(64 + 3 + payload_bytes).unwrap();
    expect_rejected_in_place(&fixture, Some(Reject::TooLarge));
}

/// An entry that is too large for one store may be valid for another with the same directory. A verification reads all
/// of it.
#[test]
fn entry_that_is_only_too_large_stays() {
    let large = Fixture::new();
    large.store.put(KEY, &[7; 5000]).unwrap();
    let small = DiskStore::open(&large.dir, StoreOptions::new().with_max_bytes(1000)).unwrap();
    assert_eq!(small.get(KEY), Lookup::Rejected(Reject::TooLarge));
    let report = small.verify(true).unwrap();
    assert!(report.is_clean() && report.entries == 1, "{report:?}");
    assert_eq!(small.entries().unwrap().len(), 1);
    assert_eq!(large.store.get(KEY), hit(&[7; 5000]));
    let mut bytes = fs::read(large.file_of(KEY)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(large.file_of(KEY), bytes).unwrap();
    assert_eq!(small.get(KEY), Lookup::Rejected(Reject::TooLarge));
    assert!(small.verify(true).unwrap().bad[0].removed, "a bad one does not");
}

/// Non-files are neither followed nor waited for.
#[cfg(unix)]
#[test]
fn links_pipes_sockets_and_folders_are_rejected() {
    let fixture = Fixture::new();
    let good = entry_of(&fixture);
    let (place, aside) = (fixture.file_of(KEY), fixture.dir.join("aside"));
    fs::write(&aside, good).unwrap();
    let make: [(&str, &dyn Fn()); 4] = [
        ("link", &|| std::os::unix::fs::symlink(&aside, &place).unwrap()),
        ("pipe", &|| assert!(std::process::Command::new("mkfifo").arg(&place).status().unwrap().success())),
        ("socket", &|| drop(std::os::unix::net::UnixListener::bind(&place).unwrap())),
        ("folder", &|| fs::create_dir(&place).unwrap()),
    ];
    for (name, make) in make {
        let _ = fs::remove_file(&place);
        make();
        expect_rejected_in_place(&fixture, Some(Reject::NotAFile));
        assert!(fs::symlink_metadata(&place).is_err(), "{name}: removed");
        make();
        fixture.store.put(KEY, PAYLOAD).unwrap();
        assert_eq!(fixture.store.get(KEY), hit(PAYLOAD), "{name}: a put replaces it");
    }
    assert!(aside.exists(), "what a link leads to stays");
}

/// A non-empty directory with the name of an entry does not obstruct lookups, puts, repairs or removals.
#[cfg(unix)]
#[test]
fn full_folders_in_the_places_of_files_are_removed() {
    let fixture = Fixture::new();
    let (place, linked) = (fixture.file_of(KEY), fixture.dir.join("linked"));
    fs::create_dir(&linked).unwrap();
    fs::write(linked.join("file"), "x").unwrap();
    let make = |place: &std::path::Path| {
        let _ = fs::remove_file(place);
        fs::create_dir_all(place.join("folder")).unwrap();
        fs::write(place.join("folder/file"), "x").unwrap();
        std::os::unix::fs::symlink(&linked, place.join("link")).unwrap();
    };
    make(&place);
    expect_rejected_in_place(&fixture, Some(Reject::NotAFile));
    assert!(!place.exists());
    make(&place);
    assert_eq!(fixture.store.put(KEY, PAYLOAD).unwrap(), PutOutcome::Stored);
    assert_eq!(fixture.store.put(b"other", PAYLOAD).unwrap(), PutOutcome::Stored);
    assert_eq!((fixture.store.get(KEY), fixture.store.statistics().entries), (hit(PAYLOAD), 2));
    for place in [place, fixture.dir.join("usage")] {
        make(&place);
        assert!(fixture.store.verify(true).unwrap().repaired, "{}", place.display());
        assert!(!place.exists());
        make(&place);
        fixture.store.clear().unwrap();
        assert!(!place.exists());
    }
    make(&fixture.dir.join("entries/foreign"));
    let report = fixture.store.verify(true).unwrap();
    assert!(!report.repaired && !report.bad[0].removed, "a foreign directory is not removed: {report:?}");
    assert!(linked.join("file").exists(), "links are not followed");
}

/// Totals stay correct when invalid entries are removed.
#[test]
fn removal_of_a_bad_entry_is_subtracted() {
    let fixture = Fixture::new();
    let good = entry_of(&fixture);
    fixture.store.put(b"other", PAYLOAD).unwrap();
    let mut bytes = good.clone();
    bytes[40] ^= 1;
    expect_rejected(&fixture, &bytes, Some(Reject::Checksum));
    let statistics = fixture.store.statistics();
    assert_eq!((statistics.entries, statistics.bytes), (1, good.len() as u64 + 2));
}

/// An entry that grew was counted with another length. Its removal or replacement must not leave totals that are too
/// low.
#[test]
fn entry_that_grew_does_not_break_the_limit() {
    type Undo = fn(&Fixture);
    let undo: [Undo; 4] = [
        |fixture| drop(fixture.store.get(KEY)),
        |fixture| assert!(fixture.store.remove(KEY).unwrap()),
        |fixture| assert_eq!(fixture.store.put(KEY, &[7; 10]).unwrap(), PutOutcome::Stored),
        |fixture| drop(fixture.store.verify(true).unwrap()),
    ];
    for undo in undo {
        let fixture = Fixture::with(StoreOptions::new().with_max_bytes(1000));
        fixture.store.put(KEY, &[7; 100]).unwrap();
        for key in 0..4_u8 {
            fixture.store.put(&[key], &[7; 100]).unwrap();
        }
        let grown = [fs::read(fixture.file_of(KEY)).unwrap(), vec![0; 700]].concat();
        fs::write(fixture.file_of(KEY), grown).unwrap();
        undo(&fixture);
        for key in 10..20_u8 {
            fixture.store.put(&[key], &[7; 100]).unwrap();
            let (entries, bytes) = on_disk(&fixture.dir);
            let statistics = fixture.store.statistics();
            assert_eq!((statistics.entries, statistics.bytes), (entries, bytes));
            assert!(bytes <= 1000, "{bytes}");
        }
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(Vec<(prop::sample::Index, u8)>),
    Cut(prop::sample::Index),
    Append(Vec<u8>),
    Replace(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4).prop_map(Damage::Flip),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        prop::collection::vec(any::<u8>(), 1..100).prop_map(Damage::Append),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Damage::Replace),
    ]
}

fn damaged(mut bytes: Vec<u8>, damage: &Damage) -> Vec<u8> {
    match damage {
        Damage::Flip(flips) => {
            for (index, flip) in flips {
                let index = index.index(bytes.len());
                bytes[index] ^= flip;
            }
        }
        Damage::Cut(index) => bytes.truncate(index.index(bytes.len())),
        Damage::Append(more) => bytes.extend(more),
        Damage::Replace(other) => bytes.clone_from(other),
    }
    bytes
}

/// A damaged entry is a miss, for any key, payload and damage.
#[test]
fn get_after_damage_is_the_payload_or_nothing() {
    let fixture = Fixture::with(StoreOptions::new().with_max_bytes(1 << 20));
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    let config = ProptestConfig {
        rng_seed: prop::test_runner::RngSeed::Fixed(4),
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    };
    proptest!(config, |(key in bytes(50), payload in bytes(300), damage in damage())| {
        let store = &fixture.store;
        store.put(&key, &payload).unwrap();
        prop_assert_eq!(store.get(&key), hit(&payload));
        let file = fixture.file_of(&key);
        let good = fs::read(&file).unwrap();
        let bad = damaged(good.clone(), &damage);
        fs::write(&file, &bad).unwrap();
        if bad == good {
            prop_assert_eq!(store.get(&key), hit(&payload));
        } else {
            prop_assert!(matches!(store.get(&key), Lookup::Rejected(_)));
            prop_assert_eq!(store.get(&key), Lookup::Miss);
        }
    });
}
