//! The key of a kernel.

use crate::{on_disk, scale};
use kiln_device::{
    Device, DeviceInfo, KernelFlag, KernelKey, KernelOptions, KernelSource, NullDevice, Optimisation, Origin,
};

type Change = (&'static str, fn(KernelSource) -> KernelSource, fn(&mut DeviceInfo));

/// A change of everything that a caller or a machine can change, with the field of the key that it affects.
const CHANGES: [Change; 15] = [
    ("name", |source| source.named("other"), |_| ()),
    ("source", |source| other_text(&source), |_| ()),
    ("entry", |source| source.entry("main"), |_| ()),
    ("constants", |source| source.constant("ALPHA", 2.0), |_| ()),
    ("optimisation", |source| with(source, |o| o.optimisation = Optimisation::None), |_| ()),
    ("debug_info", |source| with(source, |o| o.debug_info = true), |_| ()),
    ("fast_math", |source| with(source, |o| o.fast_math = false), |_| ()),
    ("bounds_checks", |source| with(source, |o| o.bounds_checks = false), |_| ()),
    ("flags", |source| with(source, |o| o.flags = [KernelFlag::UnboundedLoops].into()), |_| ()),
    ("compiler", |source| source, |info| info.compiler = Some("null 2".into())),
    ("device", |source| source, |info| info.name.push('2')),
    ("driver", |source| source, |info| info.driver.push('2')),
    ("driver_version", |source| source, |info| info.driver_version.push('2')),
    ("fingerprint", |source| source, |info| info.fingerprint.push('2')),
    ("flags", |source| with(source, |o| o.flags = [KernelFlag::UninitialisedWorkgroup].into()), |_| ()),
];

/// Fields that cannot change within one build; the test changes them in the encoded form.
const FIXED: [&str; 5] = ["language", "wide_grid", "kiln_version", "os", "arch"];

fn other_text(source: &KernelSource) -> KernelSource {
    KernelSource::wgsl(format!("{} ", source.text())).named(source.name())
}

fn with(source: KernelSource, change: impl FnOnce(&mut KernelOptions)) -> KernelSource {
    let mut options = KernelOptions::default();
    change(&mut options);
    source.options(options)
}

fn info() -> DeviceInfo {
    NullDevice::new().into_device().unwrap().info().clone()
}

fn device(change: fn(&mut DeviceInfo), directory: &std::path::Path) -> Device {
    on_disk(&NullDevice::new().with_info(change), directory)
}

/// Changing one field is a miss, in memory and on disk; changing it back is a hit.
#[test]
fn each_field_changed_alone_is_a_miss() {
    let base = KernelKey::new(&scale(), &info()).unwrap();
    for (field, change_source, change_info) in CHANGES {
        let mut other = info();
        change_info(&mut other);
        let key = KernelKey::new(&change_source(scale()), &other).unwrap();
        assert_eq!(key.changes(&base), [field]);
        assert_ne!(key.hash(), base.hash(), "{field}");

        let directory = tempfile::tempdir().unwrap();
        let origin =
            |change: fn(&mut DeviceInfo), source| device(change, directory.path()).kernel(source).unwrap().origin();
        assert_eq!(origin(|_| (), scale()), Origin::Compiled);
        assert_eq!(origin(change_info, change_source(scale())), Origin::Compiled, "{field}");
        assert_eq!(origin(|_| (), scale()), Origin::Disk, "{field}");
        assert_eq!(origin(change_info, change_source(scale())), Origin::Disk, "{field}");
    }
    let table: std::collections::BTreeSet<&str> = CHANGES.iter().map(|change| change.0).chain(FIXED).collect();
    let fields: std::collections::BTreeSet<&str> = base.fields().iter().map(|(name, _)| *name).collect();
    assert_eq!(table, fields, "every field is changed by a test");
}

/// The encoded form contains every field: changing the bytes of one yields another key, or none.
#[test]
fn the_byte_form_is_the_key() {
    let source = scale().constant("ALPHA", -0.0).constant("7", f64::MAX);
    let source = with(source, |o| o.flags = [KernelFlag::UnboundedLoops].into());
    let key = KernelKey::new(&source, &info()).unwrap();
    let bytes = key.encode();
    assert_eq!(KernelKey::decode(&bytes).unwrap(), key);
    assert_eq!(KernelKey::decode(&bytes).unwrap().to_source(), source);
    for field in FIXED {
        let value = key.fields().into_iter().find(|(name, _)| *name == field).unwrap().1;
        let place = find(&bytes, field.as_bytes()) + field.len() + 8;
        assert_eq!(&bytes[place..place + value.len()], value.as_bytes());
        let mut other = bytes.clone();
        match field {
            "wide_grid" => {
                other.splice(place - 8..place + value.len(), 4u64.to_le_bytes().into_iter().chain(*b"true"));
            }
            _ => other[place] ^= 1,
        }
        let other = KernelKey::decode(&other).unwrap();
        assert_eq!(other.changes(&key), [field]);
        assert_ne!(other.hash(), key.hash());
    }
    for length in 0..bytes.len() {
        assert!(KernelKey::decode(&bytes[..length]).is_err(), "cut at {length}");
    }
    for place in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[place] ^= 0x20;
        assert!(KernelKey::decode(&flipped).map_or(true, |other| other != key), "flipped at {place}");
    }
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    let mut marked = (part.len() as u64).to_le_bytes().to_vec();
    marked.extend_from_slice(part);
    bytes.windows(marked.len()).position(|window| window == marked).unwrap() + 8
}

/// The hash of a fixed key. A new hash invalidates every stored kernel: change it only together with the stored format
/// or the list of fields.
#[test]
fn the_hash_of_a_fixed_key_stays() {
    let mut fixed = info();
    fixed.compiler = Some("compiler 1".into());
    fixed.name = "device".into();
    fixed.driver = "driver".into();
    fixed.driver_version = "1.2.3".into();
    fixed.fingerprint = "0123456789abcdef".into();
    let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}").named("fixed.wgsl").entry("main");
    let source = source.constant("A", 1.5).constant("B", 2.0);
    let bytes = KernelKey::new(&source, &fixed).unwrap().encode();
    // Values that differ between systems and releases are replaced by fixed ones in the encoded form.
    let mut text = String::from_utf8(bytes).unwrap();
    for (field, value) in [
        ("kiln_version", concat!(env!("CARGO_PKG_VERSION"), " program 4")),
        ("os", std::env::consts::OS),
        ("arch", std::env::consts::ARCH),
    ] {
        let entry = |value: &str| {
            format!("{field}{}{value}", String::from_utf8((value.len() as u64).to_le_bytes().to_vec()).unwrap())
        };
        assert!(text.contains(&entry(value)));
        text = text.replace(&entry(value), &entry("fixed"));
    }
    let key = KernelKey::decode(text.as_bytes()).unwrap();
    assert_eq!(key.hash().to_string(), "f3f8264fc39953d15990da9ca7032739443cdf67f6f5106625948511b7fe714f");
    assert_eq!(key.hash().short(), key.hash().to_string()[..12]);
}

/// A device that runs no kernels rejects them before it examines the source.
#[test]
fn a_device_without_a_compiler_refuses_kernels() {
    let null = NullDevice::new().with_info(|info| info.compiler = None);
    let error = null.into_device().unwrap().kernel(KernelSource::wgsl("not a kernel").named("x.wgsl")).unwrap_err();
    assert_eq!(error.kind(), kiln_ir::ErrorKind::Unsupported);
    let message = "kernel `x.wgsl` expected a device that runs WGSL, found `null` (null device), which does not; use a GPU device";
    assert_eq!(error.to_string(), message);
}
