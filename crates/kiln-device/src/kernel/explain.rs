//! Explains why a kernel would be compiled: the most similar stored kernel, and the fields that differ.

use super::key::{KernelHash, KernelKey, parse_constant, words};
use super::source::KernelSource;
use crate::device::Device;
use kiln_ir::Result;
use serde::Serialize;
use std::fmt;

/// How a request for a kernel would be served now, and why. Its `Display` form is a sentence.
///
/// ```
/// use kiln_device::{KernelSource, NullDevice, Outcome};
///
/// let device = NullDevice::new().into_device()?;
/// let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
/// let found = device.explain_kernel(&source)?;
/// assert_eq!(found.outcome, Outcome::Miss);
/// found.changes.iter().for_each(|change| println!("{}: {}", change.field, change.wanted));
/// device.kernel(&source)?;
/// assert_eq!(device.explain_kernel(&source)?.outcome, Outcome::MemoryHit);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelExplanation {
    /// The name of the kernel.
    pub kernel: String,
    /// Its short hash, which identifies it in the cache.
    pub hash: String,
    /// How a request would be served.
    pub outcome: Outcome,
    /// The differences from the most similar stored kernel, if the request would miss and there is one.
    pub changes: Vec<Change>,
    /// The number of kernels on disk.
    pub stored: usize,
    /// The number of kernels on disk that this device can no longer use, because of the same change of driver, device
    /// or version.
    pub stale: usize,
}

/// How a request for a kernel would be served.
///
/// See [`KernelExplanation`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// From memory.
    MemoryHit,
    /// By loading translated code from disk.
    DiskHit,
    /// By compiling the source.
    Miss,
}

/// A field of the key that differs.
///
/// Part of a [`KernelExplanation`], which has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The name of the field.
    pub field: &'static str,
    /// Its value in the stored kernel; for the source, the first line that differs.
    pub stored: String,
    /// Its value in the request.
    pub wanted: String,
}

/// Fields that describe the environment a kernel was compiled for. The fingerprint comes last: it follows from the
/// others, and is only reported if none of them changed.
const ENVIRONMENT: [&str; 8] =
    ["compiler", "kiln_version", "device", "driver", "driver_version", "os", "arch", "fingerprint"];

pub(crate) fn explain(device: &Device, source: &KernelSource) -> Result<KernelExplanation> {
    let key = KernelKey::new(source, device.info())?;
    let hash = key.hash();
    let stored = stored_keys(device);
    let in_memory = device.kernels().is_in_memory(hash);
    let outcome = match () {
        () if in_memory => Outcome::MemoryHit,
        () if stored.iter().any(|stored| stored.hash() == hash) => Outcome::DiskHit,
        () => Outcome::Miss,
    };
    let (changes, stale) = if outcome == Outcome::Miss { compare(&key, &stored) } else { (Vec::new(), 0) };
    Ok(KernelExplanation {
        kernel: key.name,
        hash: KernelHash::short(&hash),
        outcome,
        changes,
        stored: stored.len(),
        stale,
    })
}

/// Returns the keys on disk, most recently used first.
fn stored_keys(device: &Device) -> Vec<KernelKey> {
    let mut entries = device.kernels().store().and_then(|store| store.entries().ok()).unwrap_or_default();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.last_used));
    entries.iter().filter_map(|entry| KernelKey::decode(&entry.key).ok()).collect()
}

/// Returns the differences from the most similar stored kernel, and the number of kernels that are stale for the same
/// reason.
fn compare(key: &KernelKey, stored: &[KernelKey]) -> (Vec<Change>, usize) {
    // A kernel with neither the same name nor the same source is not similar.
    let related = stored.iter().filter(|other| other.name == key.name || other.source == key.source);
    let Some(nearest) = related.min_by_key(|other| distance(key, other)) else { return (Vec::new(), 0) };
    let mut changes: Vec<Change> = (nearest.fields().into_iter().zip(key.fields()))
        .filter(|(stored, wanted)| stored != wanted)
        .map(|((field, stored), (_, wanted))| change(field, stored, wanted))
        .collect();
    let environment = |change: &Change| ENVIRONMENT.contains(&change.field);
    let stale = changes.iter().any(environment).then(|| {
        let is_stale = |other: &&KernelKey| {
            let fields = other.fields();
            changes.iter().filter(|c| environment(c)).all(|c| fields.contains(&(c.field, c.stored.clone())))
        };
        stored.iter().filter(is_stale).count()
    });
    if changes.iter().filter(|change| environment(change)).count() > 1 {
        changes.retain(|change| change.field != "fingerprint");
    }
    (changes, stale.unwrap_or(0))
}

fn distance(key: &KernelKey, other: &KernelKey) -> usize {
    // The source has the highest weight: to its author, the same text is the same kernel.
    // 20 exceeds the sum of the other 18 fields.
    key.changes(other).iter().map(|field| if *field == "source" { 20 } else { 1 }).sum()
}

fn change(field: &'static str, stored: String, wanted: String) -> Change {
    match field {
        "source" => {}
        // The key contains the bits of each number; show the number instead.
        "constants" => return Change { field, stored: format_constants(&stored), wanted: format_constants(&wanted) },
        _ => return Change { field, stored, wanted },
    }
    let differing = stored.lines().zip(wanted.lines()).position(|(one, other)| one != other);
    let line = differing.unwrap_or_else(|| stored.lines().count().min(wanted.lines().count()));
    let show = |text: &str| match text.lines().nth(line) {
        Some(found) => format!("line {}: {}", line + 1, found.trim()),
        None => format!("line {}: the end", line + 1),
    };
    Change { field, stored: show(&stored), wanted: show(&wanted) }
}

/// Formats the constants of a key as `ALPHA=2`.
fn format_constants(constants: &str) -> String {
    let constants = words(constants).filter_map(parse_constant).map(|(name, value)| format!("{name}={value}"));
    constants.collect::<Vec<_>>().join(" ")
}

impl fmt::Display for KernelExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}` ({})", self.kernel, self.hash)?;
        match self.outcome {
            Outcome::MemoryHit => return f.write_str(" is in memory"),
            Outcome::DiskHit => return f.write_str(" is on disk"),
            Outcome::Miss if self.stored == 0 => return f.write_str(" misses because nothing is on disk"),
            Outcome::Miss if self.changes.is_empty() => {
                return write!(f, " misses because none of the {} kernels on disk has its name or source", self.stored);
            }
            Outcome::Miss => f.write_str(" misses because ")?,
        }
        for (position, Change { field, stored, wanted }) in self.changes.iter().enumerate() {
            let and = if position == 0 { "" } else { " and " };
            let quoted = |text: &str| if text.is_empty() { "nothing".to_string() } else { format!("`{text}`") };
            write!(f, "{and}`{field}` changed from {} to {}", quoted(stored), quoted(wanted))?;
        }
        match (self.stale, self.changes.iter().find(|change| ENVIRONMENT.contains(&change.field))) {
            (1.., Some(change)) => {
                let (entries, are) = if self.stale == 1 { ("entry", "is") } else { ("entries", "are") };
                let what = change.field.strip_suffix("_version").unwrap_or(change.field);
                write!(f, "; {} {entries} of the old {what} {are} stale", self.stale)
            }
            _ => Ok(()),
        }
    }
}
