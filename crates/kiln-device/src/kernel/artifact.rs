//! What is stored of a kernel: translated code, what it wants of its caller, and what the driver made of it.

use super::reflect::Reflection;
use kiln_ir::{Result, error};
use std::fmt;

/// A translated kernel. [`DeviceApi::load`](crate::DeviceApi::load) makes a kernel of it without looking at the source.
#[derive(Clone, PartialEq, Eq)]
pub struct Artifact {
    /// What the kernel wants of its caller.
    pub reflection: Reflection,
    /// The code.
    pub code: Code,
    /// What the driver made of the code, where it tells and where that is more than nothing. It is for this very driver.
    pub driver_blob: Option<Vec<u8>>,
    /// The options that the driver has to know when it loads the code.
    pub checks: RuntimeChecks,
}

/// Translated code.
#[derive(Clone, PartialEq, Eq)]
pub enum Code {
    /// SPIR-V, handed to the driver as it is.
    Spirv(Vec<u32>),
    /// WGSL with constants in place and bindings numbered, for devices that take nothing else.
    Wgsl(String),
    /// Machine code in a form of the device's own.
    Machine(Vec<u8>),
}

/// Checks that are added to the code when a device loads WGSL; in SPIR-V they already are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeChecks {
    /// Indices stay inside of arrays and buffers.
    pub bounds: bool,
    /// Loops end.
    pub loops: bool,
    /// Workgroup memory begins as zeros.
    pub zero_workgroup: bool,
}

impl Artifact {
    /// Bytes that it takes in memory or on disk, about.
    pub fn bytes(&self) -> u64 {
        let code = match &self.code {
            Code::Spirv(words) => size_of_val(words.as_slice()),
            Code::Wgsl(text) => text.len(),
            Code::Machine(bytes) => bytes.len(),
        };
        (code + self.driver_blob.as_ref().map_or(0, Vec::len)) as u64
    }

    /// The stored form: four parts with their lengths in front.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let reflection = serde_json::to_vec(&self.reflection)
            .map_err(|error| error!(Internal, "expected a reflection as JSON").with_source(error))?;
        let (language, code) = match &self.code {
            Code::Spirv(words) => (b's', words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            Code::Wgsl(text) => (b'w', text.clone().into_bytes()),
            Code::Machine(bytes) => (b'm', bytes.clone()),
        };
        let checks = self.checks;
        let switches = [language, checks.bounds.into(), checks.loops.into(), checks.zero_workgroup.into()];
        let mut bytes = Vec::new();
        for part in [&switches[..], &reflection, &code, self.driver_blob.as_deref().unwrap_or_default()] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| error!(Corrupt, "stored kernel expected {what}, found none");
        let mut rest = bytes;
        let mut part = |what| take_part(&mut rest).ok_or_else(|| corrupt(what));
        let (switches, reflection, code, blob) =
            (part("switches")?, part("a reflection")?, part("code")?, part("a blob")?);
        if !rest.is_empty() {
            return Err(corrupt("an end"));
        }
        let &[language, bounds @ 0..=1, loops @ 0..=1, zero_workgroup @ 0..=1] = switches else {
            return Err(corrupt("four switches"));
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
        if !reflection.is_sound() {
            return Err(corrupt("a reflection that can be"));
        }
        Ok(Self {
            reflection,
            code,
            driver_blob: (!blob.is_empty()).then(|| blob.to_vec()),
            checks: RuntimeChecks { bounds: bounds == 1, loops: loops == 1, zero_workgroup: zero_workgroup == 1 },
        })
    }
}

/// The next part of a byte form: eight bytes of length, then as many bytes.
pub(super) fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<8>()?;
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
