//! Limits in bytes and entries, and least-recently-used eviction.

use crate::fixture::{Fixture, on_disk, payload_of};
use kiln_resource_cache::store::{DiskStore, Lookup, PutOutcome, StoreErrorKind, StoreOptions};
use kiln_resource_cache::{Clock, MockClock};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

struct Clocked {
    fixture: Fixture,
    clock: MockClock,
}

impl Clocked {
    fn new(options: StoreOptions) -> Self {
        let clock = MockClock::new();
        clock.advance(Duration::from_secs(1_700_000_000));
        Self { fixture: Fixture::with(options.with_clock(clock.clone())), clock }
    }

    fn put(&self, key: &str, payload_bytes: usize) {
        self.clock.advance(Duration::from_secs(1));
        let outcome = self.fixture.store.put(key.as_bytes(), &vec![7; payload_bytes]);
        assert_eq!(outcome.unwrap(), PutOutcome::Stored);
    }

    fn get(&self, key: &str) {
        self.clock.advance(Duration::from_secs(1));
        assert!(matches!(self.fixture.store.get(key.as_bytes()), Lookup::Hit(_)), "{key}");
    }

    fn keys(&self) -> String {
        let entries = self.fixture.store.entries().unwrap();
        entries.into_iter().map(|entry| String::from_utf8(entry.key).unwrap()).collect()
    }
}

/// LRU eviction by entries. A hit counts as a use, also by another handle; the order survives a restart.
#[test]
fn the_least_recently_used_entry_is_evicted_first() {
    let store = Clocked::new(StoreOptions::new().with_max_entries(4));
    for key in ["a", "b", "c", "d"] {
        store.put(key, 10);
    }
    store.get("a");
    store.clock.advance(Duration::from_secs(1));
    assert!(matches!(store.fixture.reopen().get(b"b"), Lookup::Hit(_)));
    store.put("e", 10);
    assert_eq!(store.keys(), "abde");
    store.put("f", 10);
    assert_eq!(store.keys(), "abef");
    store.put("b", 20);
    assert_eq!(store.keys(), "abef", "an entry that replaces another needs no room");
    let again = store.fixture.reopen();
    store.clock.advance(Duration::from_secs(1));
    again.put(b"g", b"").unwrap();
    assert_eq!(store.keys(), "befg");
    assert_eq!((store.fixture.store.statistics().evictions, again.statistics().evictions), (2, 1));
}

/// A time far in the future does not protect an entry. A clock that was set back a little has no effect.
#[test]
fn times_far_in_the_future_count_as_never() {
    let store = Clocked::new(StoreOptions::new().with_max_entries(3));
    for (key, ahead_s) in [("a", 3000), ("b", 7200), ("c", 0)] {
        store.put(key, 10);
        let file = fs::File::options().write(true).open(store.fixture.file_of(key.as_bytes())).unwrap();
        file.set_modified(UNIX_EPOCH + store.clock.now() + Duration::from_secs(ahead_s)).unwrap();
    }
    store.put("d", 10);
    assert_eq!(store.keys(), "acd");
    store.put("e", 10);
    assert_eq!(store.keys(), "ade");
}

/// The limit on bytes. File lengths count: 64 bytes of header, one byte of key.
#[test]
fn bytes_are_bounded() {
    let store = Clocked::new(StoreOptions::new().with_max_bytes(1000));
    for key in ["a", "b", "c", "d"] {
        store.put(key, 250 - 65);
    }
    assert_eq!((store.keys().as_str(), on_disk(&store.fixture.dir)), ("abcd", (4, 1000)));
    store.put("b", 249 - 65);
    assert_eq!(store.keys(), "abcd", "a smaller one in the place of another");
    store.put("e", 250 - 65);
    assert_eq!(store.keys(), "bde", "down to nine tenths");
    store.put("f", 1000 - 65);
    assert_eq!((store.keys().as_str(), on_disk(&store.fixture.dir)), ("f", (1, 1000)));
}

/// An eviction makes room for several puts, so that not every put lists the directory.
#[test]
fn eviction_goes_down_to_nine_tenths() {
    let store = Clocked::new(StoreOptions::new().with_max_entries(100));
    for number in 0..101 {
        store.put(&format!("{number:03}"), 10);
    }
    assert_eq!(on_disk(&store.fixture.dir).0, 90);
    for number in 101..111 {
        store.put(&format!("{number:03}"), 10);
    }
    assert_eq!((on_disk(&store.fixture.dir).0, store.fixture.store.statistics().evictions), (100, 11));
}

/// A clock that advances with each reading, once it is set to.
#[derive(Clone, Default)]
struct SlowClock {
    time: MockClock,
    look: Arc<AtomicU64>,
}

impl Clock for SlowClock {
    fn now(&self) -> Duration {
        self.time.advance(Duration::from_millis(self.look.load(Ordering::Relaxed)));
        self.time.now()
    }
}

/// Other processes wait for an eviction, so it takes at most a second longer than the limits require.
#[test]
fn slow_eviction_ends_when_the_limits_hold() {
    for (look_ms, left) in [(0, 90), (300, 97), (2000, 100)] {
        let clock = SlowClock::default();
        let fixture = Fixture::with(StoreOptions::new().with_max_entries(100).with_clock(clock.clone()));
        for number in 0..100_u8 {
            fixture.store.put(&[number], b"payload").unwrap();
        }
        clock.look.store(look_ms, Ordering::Relaxed);
        fixture.store.put(b"one more", b"payload").unwrap();
        assert_eq!(on_disk(&fixture.dir).0, left, "{look_ms} ms");
    }
}

#[test]
fn limits_of_zero_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for options in [StoreOptions::new().with_max_bytes(0), StoreOptions::new().with_max_entries(0)] {
        assert_eq!(DiskStore::open(&path, options).unwrap_err().kind(), StoreErrorKind::InvalidArgument);
    }
    assert!(!path.exists(), "nothing was made");
}

/// Lost or damaged totals are counted again; files that appear otherwise count from the next hour on.
#[test]
fn totals_are_put_right() {
    let store = Clocked::new(StoreOptions::new().with_max_entries(10));
    let other = Fixture::new();
    for number in 0..10 {
        store.put(&number.to_string(), 10);
        other.store.put(&[number], b"other").unwrap();
    }
    let lock = store.fixture.dir.join("lock");
    for (round, damage) in ["", "damage", &"damage".repeat(100)].iter().enumerate() {
        fs::write(&lock, damage).unwrap();
        assert_eq!(store.fixture.store.statistics().entries, 10);
        store.put(&format!("first {round}"), 10);
        assert_eq!(on_disk(&store.fixture.dir).0, 9, "down to nine tenths: all were counted");
        store.put(&format!("second {round}"), 10);
    }
    for number in 0..10 {
        let file = other.file_of(&[number]);
        fs::copy(&file, store.fixture.dir.join("entries").join(file.file_name().unwrap())).unwrap();
    }
    store.put("second 2", 10);
    assert_eq!(on_disk(&store.fixture.dir).0, 20, "files added by others are not counted yet");
    store.clock.advance(Duration::from_secs(3601));
    store.put("second 2", 10);
    assert!(on_disk(&store.fixture.dir).0 <= 10);
}

/// Eight threads and two handles on one directory: the limits hold, and no payload is wrong.
#[test]
fn threads_and_handles_share_a_directory() {
    let fixture = Fixture::with(StoreOptions::new().with_max_entries(40).with_max_bytes(200_000));
    let other = fixture.reopen();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let store = if thread % 2 == 0 { &fixture.store } else { &other };
            scope.spawn(move || {
                for round in 0..150 {
                    let key = ((thread * 31 + round * 7) % 100).to_le_bytes();
                    let payload = payload_of(&key, 10_000);
                    assert_eq!(store.put(&key, &payload).unwrap(), PutOutcome::Stored);
                    match store.get(&key) {
                        Lookup::Hit(found) => assert!(found == payload),
                        found => assert_eq!(found, Lookup::Miss),
                    }
                }
            });
        }
    });
    let (entries, bytes) = on_disk(&fixture.dir);
    assert!(entries <= 40 && bytes <= 200_000, "{entries} entries, {bytes} bytes");
    let statistics = other.statistics();
    assert_eq!((statistics.entries, statistics.bytes), (entries, bytes), "no process was killed: totals are exact");
    assert!(fixture.store.verify(false).unwrap().is_clean());
}
