//! The key of a kernel: everything that can change its machine code (decision 0004).

use super::artifact::take_part;
use super::source::{KernelFlag, KernelOptions, KernelSource, Optimisation};
use crate::info::{DeviceInfo, DeviceKind};
use kiln_ir::{Error, ErrorKind, Result, error};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Everything that can change the machine code of a kernel. Compilation takes a key and nothing else.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{KernelKey, KernelSource, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
/// let key = KernelKey::new(&source, device.info())?;
/// let other = KernelKey::new(&source.constant("N", 2.0), device.info())?;
/// assert_ne!(key.hash(), other.hash());
/// assert_eq!(key.changes(&other), ["constants"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KernelKey {
    pub(crate) name: String,
    pub(crate) source: Arc<str>,
    pub(crate) entry: String,
    pub(crate) language: String,
    pub(crate) constants: BTreeMap<String, f64>,
    pub(crate) options: KernelOptions,
    /// Whether the kernel receives the offset of its part of the grid, because the grid exceeds the device's limit.
    pub(crate) wide_grid: bool,
    pub(crate) compiler: String,
    pub(crate) kiln_version: String,
    pub(crate) device: String,
    pub(crate) driver: String,
    pub(crate) driver_version: String,
    pub(crate) fingerprint: String,
    pub(crate) os: String,
    pub(crate) arch: String,
}

/// The identifier of a kernel in the cache: a BLAKE3 hash of its key.
///
/// Returned by [`KernelKey::hash`]; see [`KernelKey`] for an example.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelHash(pub(crate) [u8; 32]);

/// Incremented when a change of how a source is parsed and specialised (`module.rs`, `split_grid.rs`) changes its
/// result within a version of Kiln.
const PROGRAM_REVISION: u32 = 4;

/// More fields than any key has. Decoding stops here, so that damaged bytes are not read to their end.
const MAX_FIELDS: usize = 64;

impl KernelKey {
    /// Creates the key of a source on a device.
    ///
    /// # Errors
    /// Returns `Unsupported` if the device runs no WGSL kernels; `InvalidArgument` if the name of a constant is
    /// invalid.
    pub fn new(source: &KernelSource, device: &DeviceInfo) -> Result<Self> {
        let Some(compiler) = &device.compiler else {
            let advice = match device.kind {
                DeviceKind::Cpu => "; it needs the feature `wgsl`, and a processor that Cranelift supports",
                _ => "; use a GPU device",
            };
            let message = format!(
                "kernel `{}` expected a device that runs WGSL, found `{}` ({}), which does not{advice}",
                source.name, device.id, device.name
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        // Spaces and `=` separate constants in the encoded form, and never occur in WGSL names.
        if let Some(name) = source.constants.keys().find(|name| name.is_empty() || name.contains([' ', '='])) {
            let message = format!("kernel `{}` expected the name or id of a constant, found `{name}`", source.name);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(Self {
            name: source.name.clone(),
            source: Arc::clone(&source.text),
            entry: source.entry.clone().unwrap_or_default(),
            language: "wgsl".to_string(),
            constants: source.constants.clone(),
            options: source.options.clone(),
            wide_grid: false,
            compiler: compiler.clone(),
            // A new version of Kiln may translate the same source differently.
            kiln_version: format!("{} program {PROGRAM_REVISION}", env!("CARGO_PKG_VERSION")),
            device: device.name.clone(),
            driver: device.driver.clone(),
            driver_version: device.driver_version.clone(),
            fingerprint: device.fingerprint.clone(),
            os: std::env::consts::OS.to_string(),
            arch: std::env::consts::ARCH.to_string(),
        })
    }

    /// Returns the key of the variant for grids beyond the device's limit.
    pub(crate) fn for_split_grid(&self) -> Self {
        Self { wide_grid: true, ..self.clone() }
    }

    /// Returns the size in memory in bytes: the source and the names of compiler, device and driver.
    pub(super) fn bytes(&self) -> u64 {
        let texts = [&self.name, &self.entry, &self.compiler, &self.device, &self.driver, &self.driver_version];
        let texts = texts.into_iter().chain([&self.fingerprint]).map(String::len).sum::<usize>();
        (size_of::<Self>() + self.source.len() + texts) as u64
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the compile options.
    pub fn options(&self) -> &KernelOptions {
        &self.options
    }

    /// Returns the source that the key was created from.
    pub fn to_source(&self) -> KernelSource {
        KernelSource {
            name: self.name.clone(),
            text: Arc::clone(&self.source),
            entry: (!self.entry.is_empty()).then(|| self.entry.clone()),
            constants: self.constants.clone(),
            options: self.options.clone(),
        }
    }

    /// Returns whether the key is valid for this version of Kiln and this device, driver and system.
    pub fn is_for(&self, device: &DeviceInfo) -> bool {
        // Compares with a key created now, which covers every field of the environment.
        Self::new(&self.to_source(), device).is_ok_and(|own| Self { wide_grid: self.wide_grid, ..own } == *self)
    }

    /// Returns the name and value of every field, in a fixed order.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        // Destructured, so that a new field is a compile error until it is added here.
        let Self {
            name,
            source,
            entry,
            language,
            constants,
            options,
            wide_grid,
            compiler,
            kiln_version,
            device,
            driver,
            driver_version,
            fingerprint,
            os,
            arch,
        } = self;
        let KernelOptions { optimisation, debug_info, fast_math, bounds_checks, flags } = options;
        // Constants are compared bit by bit, so that 0.0 and -0.0 differ.
        let constants = constants.iter().map(|(name, value)| format!("{name}={:016x}", value.to_bits()));
        let flags = flags.iter().map(|flag| flag.name());
        // This order is hashed. Append new fields at the end.
        vec![
            ("name", name.clone()),
            ("source", source.to_string()),
            ("entry", entry.clone()),
            ("language", language.clone()),
            ("constants", constants.collect::<Vec<_>>().join(" ")),
            ("optimisation", optimisation.name().to_string()),
            ("debug_info", debug_info.to_string()),
            ("fast_math", fast_math.to_string()),
            ("bounds_checks", bounds_checks.to_string()),
            ("flags", flags.collect::<Vec<_>>().join(" ")),
            ("wide_grid", wide_grid.to_string()),
            ("compiler", compiler.clone()),
            ("kiln_version", kiln_version.clone()),
            ("device", device.clone()),
            ("driver", driver.clone()),
            ("driver_version", driver_version.clone()),
            ("fingerprint", fingerprint.clone()),
            ("os", os.clone()),
            ("arch", arch.clone()),
        ]
    }

    /// Returns the names of the fields in which two keys differ.
    pub fn changes(&self, other: &Self) -> Vec<&'static str> {
        let (own, other) = (self.fields(), other.fields());
        own.iter().zip(&other).filter(|(own, other)| own != other).map(|(own, _)| own.0).collect()
    }

    /// Returns the identifier in the cache.
    pub fn hash(&self) -> KernelHash {
        KernelHash(*blake3::hash(&self.encode()).as_bytes())
    }

    /// Encodes the key for hashing and storing: the name and value of each field, each preceded by its length.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.source.len() + 1024);
        for (name, value) in self.fields() {
            // Lengths come first, so that no two keys have the same bytes, whatever their texts contain.
            for text in [name, &value] {
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
        bytes
    }

    /// Decodes a key.
    ///
    /// # Errors
    /// Returns `Corrupt` if the bytes were not written by [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| error!(Corrupt, "kernel key expected {what}, found none");
        let mut rest = bytes;
        let mut values = BTreeMap::new();
        while !rest.is_empty() {
            let mut text = || take_text(&mut rest).ok_or_else(|| corrupt("a text"));
            values.insert(text()?, text()?);
            if values.len() > MAX_FIELDS {
                return Err(corrupt("the end"));
            }
        }
        let text = |field: &str| values.get(field).map(ToString::to_string).ok_or_else(|| corrupt(field));
        let flag = |field: &str| text(field)?.parse::<bool>().map_err(|_| corrupt("`true` or `false`"));
        let key = Self {
            name: text("name")?,
            source: text("source")?.into(),
            entry: text("entry")?,
            language: text("language")?,
            constants: words(&text("constants")?)
                .map(parse_constant)
                .collect::<Option<_>>()
                .ok_or_else(|| corrupt("constants"))?,
            options: KernelOptions {
                optimisation: parse_name(Optimisation::ALL, Optimisation::name, &text("optimisation")?)
                    .ok_or_else(|| corrupt("an optimisation"))?,
                debug_info: flag("debug_info")?,
                fast_math: flag("fast_math")?,
                bounds_checks: flag("bounds_checks")?,
                flags: words(&text("flags")?)
                    .map(|word| parse_name(KernelFlag::ALL, KernelFlag::name, word))
                    .collect::<Option<_>>()
                    .ok_or_else(|| corrupt("flags"))?,
            },
            wide_grid: flag("wide_grid")?,
            compiler: text("compiler")?,
            kiln_version: text("kiln_version")?,
            device: text("device")?,
            driver: text("driver")?,
            driver_version: text("driver_version")?,
            fingerprint: text("fingerprint")?,
            os: text("os")?,
            arch: text("arch")?,
        };
        // The encoding is canonical: other field orders and duplicate fields or constants are rejected.
        if key.encode() == bytes { Ok(key) } else { Err(corrupt("one form for each key")) }
    }
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_part(rest)?).ok()
}

pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

pub(super) fn parse_constant(word: &str) -> Option<(String, f64)> {
    let (name, bits) = word.rsplit_once('=')?;
    Some((name.to_string(), f64::from_bits(u64::from_str_radix(bits, 16).ok()?)))
}

fn parse_name<T: Copy>(all: impl IntoIterator<Item = T>, name: impl Fn(T) -> &'static str, word: &str) -> Option<T> {
    all.into_iter().find(|value| name(*value) == word)
}

impl KernelHash {
    /// Returns the hash as words, for use in other keys.
    pub fn words(&self) -> [u64; 4] {
        std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| self.0[8 * word + byte])))
    }

    /// Returns the first 12 hexadecimal digits, enough to distinguish kernels in a list.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_string()
    }
}

impl fmt::Display for KernelHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KernelHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelHash({self})")
    }
}
