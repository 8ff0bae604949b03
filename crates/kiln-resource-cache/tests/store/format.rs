//! The byte format on disk: a change of the format without a new version number fails here.

use crate::fixture::{Fixture, hit};
use kiln_resource_cache::MockClock;
use kiln_resource_cache::store::{Lookup, Reject, StoreOptions};
use std::fs;
use std::time::Duration;

fn fixture() -> Fixture {
    let clock = MockClock::new();
    clock.advance(Duration::from_secs(1_700_000_000));
    Fixture::with(StoreOptions::new().with_clock(clock))
}

/// The name, then the bytes of the entry (`key`, `payload`), written on 14 November 2023, 22:13:20 UTC.
const NAME: &str = "ff8e2bab3b26e0c127002127905539b47eb421de85d554e15f55a446459b52b4";
const ENTRY: &str = concat!(
    "4b494c4e53544f52",                                                 // magic `KILNSTOR`
    "01000000",                                                         // version
    "03000000",                                                         // length of the key
    "0700000000000000",                                                 // length of the payload
    "00002a36fe9c9717",                                                 // time
    "8fcf317f3edbab7be2b75488d9034946e16d9fdfe49f4e217ac657db57c27e2c", // checksum
    "6b6579",                                                           // key
    "7061796c6f6164",                                                   // payload
);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn bytes_of_an_entry_are_fixed() {
    let fixture = fixture();
    fixture.store.put(b"key", b"payload").unwrap();
    let path = fixture.dir.join("entries").join(NAME);
    assert_eq!(hex(&fs::read(&path).unwrap()), ENTRY);
    assert_eq!(fixture.store.get(b"key"), hit(b"payload"));
}

/// An entry of another version is a miss that is removed and counted, although its checksum is right.
#[test]
fn entry_of_another_version_is_rejected() {
    let fixture = fixture();
    fixture.store.put(b"key", b"payload").unwrap();
    let path = fixture.file_of(b"key");
    for version in [0_u32, 2, u32::MAX] {
        let mut bytes = fs::read(&path).unwrap();
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let (checked, rest) = (bytes[..32].to_vec(), bytes[64..].to_vec());
        bytes[32..64].copy_from_slice(blake3::Hasher::new().update(&checked).update(&rest).finalize().as_bytes());
        fs::write(&path, bytes).unwrap();
        assert_eq!(fixture.store.get(b"key"), Lookup::Rejected(Reject::Version));
        assert!(!path.exists());
        fixture.store.put(b"key", b"payload").unwrap();
    }
}
