//! Translated kernels, as they are loaded by a device and stored on disk.

use super::reflect::Reflection;
use kiln_ir::{Result, error};
use std::fmt;

/// A translated kernel, from which [`DeviceApi::load`](crate::DeviceApi::load) creates a kernel without its source.
///
/// Returned by [`DeviceApi::translate`](crate::DeviceApi::translate); see [`DeviceApi`](crate::DeviceApi) for an
/// example.
#[derive(Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The interface of the kernel.
    pub reflection: Reflection,
    /// The code.
    pub code: Code,
    /// The driver's compiled form of the code, if it reports a non-empty one. Only valid for this driver version.
    pub driver_blob: Option<Vec<u8>>,
    /// Options that the driver needs when it loads the code.
    pub checks: RuntimeChecks,
}

/// Translated code.
///
/// Part of an [`Artifact`]; see [`DeviceApi`](crate::DeviceApi) for an example.
#[derive(Clone, PartialEq, Eq)]
pub enum Code {
    /// SPIR-V, passed to the driver unchanged.
    Spirv(Vec<u32>),
    /// WGSL with overrides resolved and bindings numbered, for devices that accept only WGSL.
    Wgsl(String),
    /// Machine code in the device's own format.
    Machine(Vec<u8>),
}

/// Checks that are added when a device loads WGSL; SPIR-V already contains them.
///
/// Part of an [`Artifact`]; see [`DeviceApi`](crate::DeviceApi) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeChecks {
    /// Clamps indices into arrays and buffers.
    pub bounds: bool,
    /// Bounds loops, so that they terminate.
    pub loops: bool,
    /// Zero-initialises workgroup memory.
    pub zero_workgroup: bool,
}

impl Artifact {
    /// Returns the approximate size in memory or on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        let code = match &self.code {
            Code::Spirv(words) => size_of_val(words.as_slice()),
            Code::Wgsl(text) => text.len(),
            Code::Machine(bytes) => bytes.len(),
        };
        (code + self.driver_blob.as_ref().map_or(0, Vec::len)) as u64
    }

    /// Encodes the artifact as four parts, each preceded by its length.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let reflection = serde_json::to_vec(&self.reflection)
            .map_err(|error| error!(Internal, "expected a reflection as JSON").with_source(error))?;
        let (language, code) = match &self.code {
            Code::Spirv(words) => (b's', words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            Code::Wgsl(text) => (b'w', text.clone().into_bytes()),
            Code::Machine(bytes) => (b'm', bytes.clone()),
        };
        let checks = self.checks;
        let flags = [language, checks.bounds.into(), checks.loops.into(), checks.zero_workgroup.into()];
        let mut bytes = Vec::new();
        for part in [&flags[..], &reflection, &code, self.driver_blob.as_deref().unwrap_or_default()] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| error!(Corrupt, "stored kernel expected {what}, found none");
        let mut rest = bytes;
        let mut part = |what| take_part(&mut rest).ok_or_else(|| corrupt(what));
        let (flags, reflection, code, blob) = (part("flags")?, part("a reflection")?, part("code")?, part("a blob")?);
        if !rest.is_empty() {
            return Err(corrupt("an end after its last part"));
        }
        let &[language, bounds @ 0..=1, loops @ 0..=1, zero_workgroup @ 0..=1] = flags else {
            return Err(corrupt("four flags"));
        };
        let code = match language {
            b's' if code.len() % 4 == 0 => Code::Spirv(
                code.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect(),
            ),
            b'm' => Code::Machine(code.to_vec()),
            b'w' => Code::Wgsl(String::from_utf8(code.to_vec()).map_err(|_| corrupt("UTF-8"))?),
            _ => return Err(corrupt("a known language")),
        };
        let reflection: Reflection = serde_json::from_slice(reflection).map_err(|_| corrupt("a reflection as JSON"))?;
        // The checksum of the store detects damage, not foreign content.
        if !reflection.is_consistent() {
            return Err(corrupt("a valid reflection"));
        }
        Ok(Self {
            reflection,
            code,
            driver_blob: (!blob.is_empty()).then(|| blob.to_vec()),
            checks: RuntimeChecks { bounds: bounds == 1, loops: loops == 1, zero_workgroup: zero_workgroup == 1 },
        })
    }
}

/// Takes the next part: a length of eight bytes, then that many bytes.
pub(super) fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<8>()?;
    // Checked conversions and slices only: the bytes come from a file.
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let part = after.get(..length)?;
    *rest = &after[length..];
    Some(part)
}

impl fmt::Debug for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match &self.code {
            Code::Spirv(words) => format!("{} words of SPIR-V", words.len()),
            Code::Wgsl(text) => format!("{} bytes of WGSL", text.len()),
            Code::Machine(bytes) => format!("{} bytes of machine code", bytes.len()),
        };
        f.debug_struct("Artifact")
            .field("entry", &self.reflection.entry)
            .field("code", &code)
            .field("driver_blob", &self.driver_blob.as_ref().map(Vec::len))
            .finish_non_exhaustive()
    }
}
