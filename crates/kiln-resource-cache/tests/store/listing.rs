//! Listing, removal of selected entries, and verification.

use crate::fixture::{Fixture, hit, names, on_disk};
use kiln_resource_cache::MockClock;
use kiln_resource_cache::store::{
    ClearReport, Lookup, Problem, PruneReport, PruneTarget, Reject, StoreOptions, Writing,
};
use std::fs;
use std::time::{Duration, UNIX_EPOCH};

/// Creates five entries of 100, 200 ... 500 bytes, one used each hour.
fn five() -> (Fixture, MockClock) {
    let clock = MockClock::new();
    let fixture = Fixture::with(StoreOptions::new().with_clock(clock.clone()));
    for (number, key) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        clock.advance(Duration::from_secs(3600));
        fixture.store.put(key.as_bytes(), &vec![7; 100 * (number + 1) - 65]).unwrap();
    }
    (fixture, clock)
}

fn keys(fixture: &Fixture) -> String {
    fixture.store.entries().unwrap().into_iter().map(|entry| String::from_utf8(entry.key).unwrap()).collect()
}

#[test]
fn entries_are_listed_by_key_with_times_and_lengths() {
    let (fixture, clock) = five();
    clock.advance(Duration::from_secs(60));
    fixture.store.get(b"b");
    let entries = fixture.store.entries().unwrap();
    assert_eq!(keys(&fixture), "abcde");
    let b = &entries[1];
    assert_eq!((b.payload_bytes, b.file_bytes, b.uses), (135, 200, 1));
    assert_eq!(b.written, UNIX_EPOCH + Duration::from_secs(2 * 3600));
    assert_eq!(b.last_used, UNIX_EPOCH + Duration::from_secs(5 * 3600 + 60));
    fs::write(fixture.file_of(b"a"), "damage").unwrap();
    fs::rename(fixture.file_of(b"c"), fixture.file_of(b"other")).unwrap();
    assert_eq!(keys(&fixture), "bde", "a damaged head and a foreign key are left out");
}

#[test]
fn prune_keeps_the_most_recently_used_entries() {
    let all = PruneTarget::default();
    for (target, left) in [
        (all, "abcde"),
        (PruneTarget { max_entries: Some(2), ..all }, "de"),
        (PruneTarget { max_bytes: Some(900), ..all }, "de"),
        (PruneTarget { max_bytes: Some(899), ..all }, "e"),
        (PruneTarget { unused_for: Some(Duration::from_secs(2 * 3600)), ..all }, "cde"),
        (PruneTarget { max_entries: Some(1), max_bytes: Some(1200), ..all }, "e"),
        (PruneTarget { max_entries: Some(0), ..all }, ""),
    ] {
        let (fixture, _clock) = five();
        let report = fixture.store.prune(target).unwrap();
        assert_eq!(keys(&fixture), left, "{target:?}");
        let (kept, kept_bytes) = on_disk(&fixture.dir);
        let removed = PruneReport { removed: 5 - kept, removed_bytes: 1500 - kept_bytes, kept, kept_bytes };
        assert_eq!(report, removed, "{target:?}");
        let statistics = fixture.store.statistics();
        assert_eq!((statistics.entries, statistics.bytes), (kept, kept_bytes));
    }
}

/// A clock that was set back makes no entry old.
#[test]
fn prune_by_age_keeps_entries_used_in_the_future() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let (fixture, clock) = five();
    let file = fs::File::options().write(true).open(fixture.file_of(b"a")).unwrap();
    file.set_modified(UNIX_EPOCH + hours(1000)).unwrap();
    clock.advance(hours(95));
    fixture.store.put(b"f", b"payload").unwrap();
    let report = fixture.store.prune(PruneTarget { unused_for: Some(hours(50)), ..PruneTarget::default() }).unwrap();
    assert_eq!((keys(&fixture).as_str(), report.removed), ("af", 4));
}

/// Opening and verifying a store changes nothing in it; the first put removes abandoned files.
#[test]
fn abandoned_files_are_kept_until_a_put() {
    let (fixture, _clock) = five();
    fs::write(fixture.dir.join("tmp-1-left"), "over").unwrap();
    let store = fixture.reopen();
    for _ in 0..2 {
        let report = store.verify(false).unwrap();
        assert_eq!((report.abandoned_files, report.is_clean()), (1, false));
    }
    assert_eq!(names(&fixture.dir), ["entries", "lock", "tmp-1-left"]);
    store.put(b"f", b"payload").unwrap();
    assert_eq!(names(&fixture.dir), ["entries", "lock"]);
}

#[test]
fn removal_by_predicate_by_key_and_of_all() {
    let (fixture, _clock) = five();
    let report = fixture.store.remove_where(|entry| entry.key == b"b" || entry.file_bytes == 400).unwrap();
    assert_eq!((keys(&fixture).as_str(), report.removed, report.removed_bytes), ("ace", 2, 600));
    assert!(fixture.store.remove(b"a").unwrap());
    assert!(!fixture.store.remove(b"a").unwrap());
    assert_eq!(fixture.store.statistics().bytes, 800);
    fs::write(fixture.dir.join("tmp-1-left"), "over").unwrap();
    fs::write(fixture.dir.join("somebody's"), "file").unwrap();
    assert_eq!(fixture.store.clear().unwrap(), ClearReport { entries: 2, bytes: 800 });
    assert_eq!(names(&fixture.dir), ["entries", "lock", "somebody's"]);
    assert_eq!((keys(&fixture).as_str(), fixture.store.statistics().entries), ("", 0));
    assert_eq!(fixture.store.get(b"c"), Lookup::Miss);
}

/// Verify reports every invalid entry with its reason, and only removes it if asked to.
#[test]
fn verify_reports_and_repairs_invalid_entries() {
    let (fixture, _clock) = five();
    let entries = fixture.dir.join("entries");
    let name = |key: &[u8]| blake3::hash(key).to_hex().to_string();
    fs::write(fixture.file_of(b"a"), "damage").unwrap();
    let mut bytes = fs::read(fixture.file_of(b"b")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(fixture.file_of(b"b"), bytes).unwrap();
    fs::copy(fixture.file_of(b"c"), fixture.file_of(b"other")).unwrap();
    fs::write(entries.join("stranger"), "x").unwrap();
    fs::create_dir(entries.join(name(b"folder"))).unwrap();
    fs::write(fixture.dir.join("tmp-1-left"), "over").unwrap();
    fs::write(fixture.dir.join("usage"), "damage").unwrap();
    let mut expected = vec![
        (name(b"a"), Problem::Rejected(Reject::Truncated)),
        (name(b"b"), Problem::Rejected(Reject::Checksum)),
        (name(b"other"), Problem::Rejected(Reject::OtherKey)),
        (name(b"folder"), Problem::Rejected(Reject::NotAFile)),
        ("stranger".to_owned(), Problem::ForeignName),
    ];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    for repair in [false, true] {
        let report = fixture.store.verify(repair).unwrap();
        let found: Vec<_> = report.bad.iter().map(|bad| (bad.name.clone(), bad.problem.clone())).collect();
        assert_eq!(found, expected);
        assert!(report.bad.iter().all(|bad| bad.removed == repair));
        assert_eq!((report.entries, report.bytes), (3, 1200));
        assert_eq!((report.abandoned_files, report.usage_is_damaged, report.repaired), (1, true, repair));
        assert!(!report.is_clean());
    }
    assert!(fixture.store.verify(false).unwrap().is_clean());
    assert_eq!(on_disk(&fixture.dir), (3, 1200));
    assert_eq!(fixture.store.statistics().bytes, 1200);
    assert_eq!(fixture.store.statistics().rejected_total(), 0, "a check is no lookup");
}

#[test]
fn statistics_count_operations() {
    let fixture = Fixture::new();
    let fresh = fixture.store.statistics();
    assert_eq!((fresh.mean_hit_time, fresh.mean_put_time), (Duration::ZERO, Duration::ZERO));
    fixture.store.put(b"key", b"payload").unwrap();
    assert_eq!(fixture.store.get(b"key"), hit(b"payload"));
    fixture.store.get(b"key");
    fixture.store.get(b"none");
    let statistics = fixture.store.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.puts, statistics.unreadable), (2, 1, 1, 0));
    assert_eq!((statistics.entries, statistics.bytes, statistics.writing.clone()), (1, 74, Writing::On));
    assert!(statistics.mean_hit_time > Duration::ZERO && statistics.mean_put_time > Duration::ZERO);
    let json = serde_json::to_string(&statistics).unwrap();
    assert!(json.contains(r#""writing":{"state":"on"}"#) && json.contains(r#""rejected":{}"#), "{json}");
}
