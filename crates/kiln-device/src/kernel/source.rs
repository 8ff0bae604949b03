//! What a user brings: source, entry point, constants and options.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A kernel as its author writes it. [`Device::kernel`](crate::Device::kernel) compiles it, or finds it in the cache.
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
    /// A kernel in WGSL, with default options.
    pub fn wgsl(text: impl Into<Arc<str>>) -> Self {
        Self {
            name: "kernel".to_string(),
            text: text.into(),
            entry: None,
            constants: BTreeMap::new(),
            options: KernelOptions::default(),
        }
    }

    /// The name in errors, lists and metrics: best the name of the file. Default: `kernel`.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The entry point. Not needed where the source has only one.
    pub fn entry(mut self, entry: impl Into<String>) -> Self {
        self.entry = Some(entry.into());
        self
    }

    /// The value of an `override` constant, by its name or by its number (`@id`). Booleans are 0 and 1.
    pub fn constant(mut self, name: impl Into<String>, value: f64) -> Self {
        self.constants.insert(name.into(), value);
        self
    }

    /// How it is compiled.
    pub fn options(mut self, options: KernelOptions) -> Self {
        self.options = options;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// How a kernel is compiled. Every field is a part of the [key](super::KernelKey).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelOptions {
    /// What is done to the program before the device translates it, and on the CPU device while it does.
    pub optimisation: Optimisation,
    /// Names and source lines in the translated code, for tools that show them. Off by default. A device that takes WGSL
    /// has the names in any case. The machine code of the CPU device has none: there it changes nothing but the key.
    pub debug_info: bool,
    /// Lets the driver join a product and a sum into one rounding, as WGSL allows. On by default. Without it each product,
    /// sum and difference is rounded by itself. Only devices that take translated code can turn it off.
    pub fast_math: bool,
    /// Keeps indices inside of arrays and buffers. On by default. Without it an index out of bounds is undefined on a GPU. The CPU
    /// device then leaves out the checks that it proves needless, and only those: out of bounds is memory of the process.
    pub bounds_checks: bool,
    /// Rarely needed switches. None by default.
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

/// What is done to a program before the device translates it. The CPU device also optimises its machine code accordingly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimisation {
    /// Nothing: the driver gets everything that the source declares, unless it has constants to fill in, which leaves out
    /// the rest as well. The CPU device compiles faster, to code that runs slower.
    None,
    /// What the entry point does not need is left out: a kernel that includes a library gets no slower to load by it.
    #[default]
    Full,
}

impl Optimisation {
    pub(crate) const ALL: [Self; 2] = [Self::None, Self::Full];

    /// The name in keys and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Full => "full",
        }
    }
}

/// A rarely needed switch of [`KernelOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum KernelFlag {
    /// Loops as they are. By default each gets a counter that ends it after 2^64 rounds, so that a driver does not take
    /// a loop without end for undefined behaviour; that makes loops slower to compile and keeps them from being unrolled.
    UnboundedLoops,
    /// Workgroup memory begins with whatever is there. By default it begins as zeros.
    UninitialisedWorkgroup,
}

impl KernelFlag {
    /// All flags.
    pub const ALL: [Self; 2] = [Self::UnboundedLoops, Self::UninitialisedWorkgroup];

    /// The name in keys and on the command line.
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
