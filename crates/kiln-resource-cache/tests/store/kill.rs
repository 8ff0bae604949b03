//! Writers that are killed at random moments.

use crate::fixture::{Fixture, Random, child, child_dir, names, on_disk, payload_of, seed};
use kiln_resource_cache::store::{DiskStore, Lookup, PutOutcome, StoreOptions};
use std::process::Child;
use std::time::Duration;

const WRITERS: u64 = 4;
const KILLS: u64 = 200;
/// Few, so that writers and readers use the same entries, and twice as many as the store holds.
const KEYS: u64 = 60;
const MAX_ENTRIES: u64 = 30;
const MAX_BYTES: u64 = 1 << 20;
const MAX_PAYLOAD: usize = 60_000;
const TEST: &str = "kill::killed_writers_leave_no_wrong_payload_and_no_junk";

/// Kills its processes on drop, also if the test fails.
struct Writers(Vec<Child>);

impl Writers {
    /// Kills a running writer.
    fn kill(&mut self, victim: usize) {
        let writer = &mut self.0[victim];
        assert_eq!(
            writer.try_wait().unwrap(),
            None,
            "a writer exited on its own: it read a wrong payload or had an error"
        );
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        for writer in &mut self.0 {
            let _ = writer.kill();
            let _ = writer.wait();
        }
    }
}

fn options() -> StoreOptions {
    StoreOptions::new().with_max_entries(MAX_ENTRIES).with_max_bytes(MAX_BYTES)
}

/// Four writers on one directory, killed 200 times: commits are atomic and the limits hold.
#[cfg(unix)]
#[test]
fn killed_writers_leave_no_wrong_payload_and_no_junk() {
    if let Some(dir) = child_dir() {
        write_forever(&DiskStore::open(dir, options()).unwrap());
    }
    let fixture = Fixture::with(options());
    let mut random = Random::new(0x6b69_6c6e);
    let start = |number| child(TEST, &fixture.dir, number).spawn().unwrap();
    let mut writers = Writers((0..WRITERS).map(start).collect());
    let mut left_overs = 0;
    for number in WRITERS..WRITERS + KILLS {
        std::thread::sleep(Duration::from_micros(2_000 + random.below(20_000)));
        let victim = usize::try_from(random.below(WRITERS)).unwrap();
        writers.kill(victim);
        left_overs += names(&fixture.dir).iter().filter(|name| name.starts_with("tmp-")).count();
        writers.0[victim] = start(number);
    }
    std::thread::sleep(Duration::from_millis(100));
    (0..writers.0.len()).for_each(|writer| writers.kill(writer));
    let (entries, bytes) = on_disk(&fixture.dir);
    assert!(entries > 10, "{entries}: the writers did write");
    assert!(entries <= MAX_ENTRIES && bytes <= MAX_BYTES, "{entries} entries, {bytes} bytes");
    assert!(left_overs > 0, "no kill met a write; the test tests too little");
    let store = fixture.reopen();
    let hits = (0..KEYS).filter(|number| {
        let key = number.to_le_bytes();
        match store.get(&key) {
            Lookup::Hit(payload) => payload == payload_of(&key, MAX_PAYLOAD) || panic!("a wrong payload"),
            Lookup::Miss => false,
            other => panic!("a kill tears no entry, found {other:?}"),
        }
    });
    assert_eq!(hits.count() as u64, entries);
    let found = store.verify(false).unwrap();
    assert!(found.bad.is_empty() && !found.usage_is_damaged, "{found:?}");
    // After kills the totals are at most too high, and correct after a listing.
    let known = store.statistics();
    assert!(known.entries >= entries && known.bytes >= bytes, "{known:?}");
    assert!(store.verify(true).unwrap().repaired);
    assert_eq!(names(&fixture.dir), ["entries", "lock", "usage"], "temporary files are gone");
    assert_eq!((store.statistics().entries, store.statistics().bytes), (entries, bytes));
    assert_eq!(store.put(b"new", b"entry").unwrap(), PutOutcome::Stored);
}

fn write_forever(store: &DiskStore) -> ! {
    let mut random = Random::new(seed());
    loop {
        let key = random.below(KEYS).to_le_bytes();
        let payload = payload_of(&key, MAX_PAYLOAD);
        match random.below(2) {
            0 => match store.get(&key) {
                Lookup::Hit(found) => assert!(found == payload, "a wrong payload"),
                Lookup::Miss => {}
                other => panic!("expected a hit or a miss, found {other:?}"),
            },
            _ => assert_eq!(store.put(&key, &payload).unwrap(), PutOutcome::Stored),
        }
    }
}
