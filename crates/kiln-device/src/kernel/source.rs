//! Kernel sources: text, entry point, constants and options.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The source of a kernel. [`Device::kernel`](crate::Device::kernel) compiles it, or finds it in the cache.
///
/// ```
/// use kiln_device::{KernelOptions, KernelSource};
///
/// let source = KernelSource::wgsl("@compute @workgroup_size(64) fn main() {}")
///     .named("nothing.wgsl")
///     .entry("main")
///     .options(KernelOptions { bounds_checks: false, ..KernelOptions::default() });
/// assert_eq!(source.name(), "nothing.wgsl");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct KernelSource {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
    pub(crate) entry: Option<String>,
    pub(crate) constants: BTreeMap<String, f64>,
    pub(crate) options: KernelOptions,
}

impl KernelSource {
    /// Creates a source from WGSL, with default options.
    pub fn wgsl(text: impl Into<Arc<str>>) -> Self {
        Self {
            name: "kernel".to_string(),
            text: text.into(),
            entry: None,
            constants: BTreeMap::new(),
            options: KernelOptions::default(),
        }
    }

    /// Sets the name in errors, lists and metrics, preferably the file name. Default: `kernel`.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the entry point. Not needed if the source has only one.
    pub fn entry(mut self, entry: impl Into<String>) -> Self {
        self.entry = Some(entry.into());
        self
    }

    /// Sets an `override` constant, by its name or its id (`@id`). Booleans are 0 and 1.
    pub fn constant(mut self, name: impl Into<String>, value: f64) -> Self {
        self.constants.insert(name.into(), value);
        self
    }

    /// Sets the compile options.
    pub fn options(mut self, options: KernelOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Compile options of a kernel. Every field is part of the [key](super::KernelKey).
///
/// ```
/// use kiln_device::{KernelFlag, KernelOptions, Optimisation};
///
/// let flags = [KernelFlag::UnboundedLoops].into();
/// let options = KernelOptions { optimisation: Optimisation::None, flags, ..KernelOptions::default() };
/// assert!(options.fast_math && options.bounds_checks);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelOptions {
    /// How the program is optimised before translation, and by the CPU device.
    pub optimisation: Optimisation,
    /// Includes names and source lines in the translated code, for debugging tools. Default: off. WGSL code contains
    /// the names in any case. The machine code of the CPU device contains neither; there the option only changes the
    /// key.
    pub debug_info: bool,
    /// Lets the driver contract a multiplication and an addition into one operation with a single rounding, as WGSL
    /// allows. Default: on. If off, each operation rounds separately. The CPU device supports that, and a Vulkan GPU
    /// with [`Feature::PassthroughShaders`](crate::Feature::PassthroughShaders); other GPUs return `Unsupported`.
    pub fast_math: bool,
    /// Checks that indices are within arrays and buffers. Default: on. If off, an index out of bounds is undefined
    /// behaviour on a GPU. The CPU device then omits only the checks that it proves redundant, because out of bounds is
    /// memory of the process.
    pub bounds_checks: bool,
    /// Rarely needed flags. Default: none.
    pub flags: BTreeSet<KernelFlag>,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            optimisation: Optimisation::default(),
            debug_info: false,
            fast_math: true,
            bounds_checks: true,
            flags: BTreeSet::new(),
        }
    }
}

/// How a program is optimised before translation. The CPU device also optimises its machine code accordingly.
///
/// See [`KernelOptions`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimisation {
    /// Keeps everything that the source declares, unless it has overrides, whose replacement removes unused
    /// declarations as well. The CPU device compiles faster, to slower code.
    None,
    /// Removes everything that the entry point does not need, so that including a library does not slow down loading.
    #[default]
    Full,
}

impl Optimisation {
    pub(crate) const ALL: [Self; 2] = [Self::None, Self::Full];

    /// Returns the name in keys and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Full => "full",
        }
    }
}

/// A rarely needed flag of [`KernelOptions`].
///
/// See [`KernelOptions`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum KernelFlag {
    /// Leaves loops unbounded. By default each loop has a counter that ends it after 2^64 iterations, because a driver
    /// may treat an infinite loop as undefined behaviour; the counter slows down compilation and prevents unrolling.
    /// On the CPU device, loops then do not check the time limit of the dispatch.
    UnboundedLoops,
    /// Leaves workgroup memory uninitialised. By default it is zero-initialised.
    UninitialisedWorkgroup,
}

impl KernelFlag {
    /// All flags.
    pub const ALL: [Self; 2] = [Self::UnboundedLoops, Self::UninitialisedWorkgroup];

    /// Returns the name in keys and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnboundedLoops => "unbounded-loops",
            Self::UninitialisedWorkgroup => "uninitialised-workgroup",
        }
    }
}

impl fmt::Display for KernelFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
