//! Several processes that end normally.

use crate::fixture::{Fixture, Random, child, child_dir, on_disk, payload_of, seed};
use kiln_resource_cache::store::{DiskStore, PutOutcome, StoreOptions};

const TEST: &str = "processes::four_writers_keep_to_the_limits";

fn options() -> StoreOptions {
    StoreOptions::new().with_max_entries(50).with_max_bytes(300_000)
}

/// After the last put of each process, the limits hold and the counts are exact.
#[test]
fn four_writers_keep_to_the_limits() {
    if let Some(dir) = child_dir() {
        let store = DiskStore::open(dir, options()).unwrap();
        let mut random = Random::new(seed());
        for round in 0..250_u64 {
            let key = [seed().to_le_bytes(), round.to_le_bytes()].concat();
            assert_eq!(store.put(&key, &payload_of(&key, 20_000)).unwrap(), PutOutcome::Stored);
            let past = [seed().to_le_bytes(), random.below(round + 1).to_le_bytes()].concat();
            if let Some(payload) = store.get(&past).into_payload() {
                assert!(payload == payload_of(&past, 20_000), "a wrong payload");
            }
        }
        return;
    }
    let fixture = Fixture::with(options());
    let writers: Vec<_> = (0..4).map(|number| child(TEST, &fixture.dir, number).spawn().unwrap()).collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let (entries, bytes) = on_disk(&fixture.dir);
    assert!(entries <= 50 && bytes <= 300_000, "{entries} entries, {bytes} bytes");
    assert!(entries > 20 || bytes > 200_000, "{entries} entries, {bytes} bytes: no more went than had to");
    let statistics = fixture.store.statistics();
    assert_eq!((statistics.entries, statistics.bytes), (entries, bytes));
    assert!(fixture.store.verify(false).unwrap().is_clean());
}
