//! Kernels: compiled once, found again in memory and on disk, launched with checked arguments.
//!
//! In the order of the flow: `source` what a user brings · `key` everything that can change the code · `cache` the two
//! tiers · `module`, `text` and `wide` from text to a validated module, `refusal` why there is none · `bindings` and `reflect` what it
//! wants of its caller · `artifact` what is stored · `launch`, `grid` and `value` a launch · `explain` and `warm` why something missed, and how to avoid it.

mod artifact;
mod bindings;
mod cache;
mod depth;
mod explain;
mod grid;
mod key;
mod launch;
mod module;
mod options;
mod reflect;
mod refusal;
mod source;
mod statistics;
mod text;
mod value;
mod warm;
mod wide;

pub use artifact::{Artifact, Code, RuntimeChecks};
pub(crate) use cache::KernelCache;
pub(crate) use explain::explain;
pub use explain::{Change, KernelExplanation, Outcome};
pub use grid::{Extent, Grid, GridPart};
pub use key::{KernelHash, KernelKey};
pub(crate) use launch::check_bound;
pub use launch::{Argument, Launch};
pub use module::KernelModule;
pub use options::{DiskTier, KernelCacheOptions};
pub use reflect::{Binding, BindingKind, BindingName, Member, Numbers, Reflection, Scalar, Tail};
pub use source::{KernelFlag, KernelOptions, KernelSource, Optimisation};
pub use statistics::{DiskTierState, KernelCacheStatistics};
pub use value::Value;
pub(crate) use warm::warm;
pub use warm::{KernelWarmFailure, KernelWarmReport, Preload};

use crate::device::{Device, DeviceApi};
use kiln_ir::Result;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

/// A compiled kernel on its device. Clones are the same kernel; it stays usable when the cache lets go of it.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{KernelSource, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let source = "
///     @group(0) @binding(0) var<storage, read> x: array<f32>;
///     @group(0) @binding(1) var<storage, read_write> y: array<f32>;
///     @group(0) @binding(2) var<uniform> alpha: f32;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if (id.x < arrayLength(&y)) { y[id.x] += alpha * x[id.x]; }
///     }";
/// let kernel = device.kernel(KernelSource::wgsl(source).named("saxpy.wgsl"))?;
/// let (x, mut y) = (device.buffer_of::<f32>(1000)?, device.buffer_of::<f32>(1000)?);
/// kernel.launch().bind("x", &x).bind("y", &mut y).value("alpha", 2.0f32).over(1000)?;
///
/// let error = kernel.launch().bind("x", &x).bind("z", &y).over(1000).unwrap_err();
/// assert!(error.to_string().contains("found `z`"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Kernel {
    device: Device,
    loaded: Arc<LoadedKernel>,
}

impl Kernel {
    pub(crate) fn new(device: Device, loaded: Arc<LoadedKernel>) -> Self {
        Self { device, loaded }
    }

    /// Begins a launch.
    pub fn launch(&self) -> Launch<'_> {
        Launch::new(self)
    }

    /// The name that its author gave it.
    pub fn name(&self) -> &str {
        self.loaded.name()
    }

    /// What it wants of its caller.
    pub fn reflection(&self) -> &Reflection {
        &self.loaded.reflection
    }

    /// Everything that it was compiled from and for. Its options are those of the kernel.
    pub fn key(&self) -> &KernelKey {
        &self.loaded.key
    }

    /// Its name in the cache.
    pub fn hash(&self) -> KernelHash {
        self.loaded.hash
    }

    /// Whether it was compiled in this process or loaded from disk.
    pub fn origin(&self) -> Origin {
        self.loaded.origin
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn loaded(&self) -> &Arc<LoadedKernel> {
        &self.loaded
    }

    /// The variant for grids beyond the device's limit, compiled or found like any other kernel.
    fn widened(&self) -> Result<Self> {
        self.device.prepare_key(self.key().widened()).kernel()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.loaded.hash.short();
        f.debug_struct("Kernel").field("name", &self.name()).field("hash", &hash).field("device", &self.device).finish()
    }
}

/// A kernel whose key is known: asking for it costs a lookup in the memory tier, and nothing of the source is hashed again.
///
/// Hold one where the same kernel is needed now and then; a [`Kernel`] itself is as fast to use, but keeps the compiled code
/// in memory when the cache would let go of it.
#[derive(Clone)]
pub struct PreparedKernel {
    device: Device,
    key: Arc<KernelKey>,
    hash: KernelHash,
}

impl PreparedKernel {
    pub(crate) fn new(device: Device, key: KernelKey) -> Self {
        let hash = key.hash();
        Self { device, key: Arc::new(key), hash }
    }

    /// The kernel: from memory, from disk, or compiled now.
    ///
    /// # Errors
    /// `CompileFailed` where the source is at fault, `Unsupported` where the device cannot run it; the device's fault.
    #[inline]
    pub fn kernel(&self) -> Result<Kernel> {
        let loaded = self.device.kernels().get(&self.device, self.hash, &self.key)?;
        Ok(Kernel::new(self.device.clone(), loaded))
    }

    /// The key.
    pub fn key(&self) -> &KernelKey {
        &self.key
    }

    /// The name in the cache.
    pub fn hash(&self) -> KernelHash {
        self.hash
    }
}

impl fmt::Debug for PreparedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedKernel").field("name", &self.key.name).field("hash", &self.hash.short()).finish()
    }
}

/// Where a kernel came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Its source was compiled in this process.
    Compiled,
    /// Its translated code was loaded from disk.
    Disk,
}

/// A kernel as the memory tier holds it, and as a device finds it in a [`Dispatch`](crate::Dispatch).
pub struct LoadedKernel {
    pub(crate) key: Arc<KernelKey>,
    pub(crate) hash: KernelHash,
    pub(crate) reflection: Reflection,
    pub(crate) raw: RawKernel,
    pub(crate) bytes: u64,
    pub(crate) device: Weak<dyn DeviceApi>,
    pub(crate) origin: Origin,
}

impl LoadedKernel {
    /// Joins what was translated with what the device made of it.
    fn new(
        device: &Arc<dyn DeviceApi>,
        hash: KernelHash,
        key: &Arc<KernelKey>,
        artifact: Artifact,
        raw: RawKernel,
        origin: Origin,
    ) -> Self {
        // The device keeps about as much as it was given: machine code as it is, a pipeline of about the size of its code.
        let bytes = artifact.bytes() + artifact.reflection.bytes() + key.bytes() + size_of::<Self>() as u64;
        let (key, reflection, device) = (Arc::clone(key), artifact.reflection, Arc::downgrade(device));
        Self { key, hash, reflection, raw, bytes, device, origin }
    }

    /// The name that its author gave it.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// What it wants of its caller.
    pub fn reflection(&self) -> &Reflection {
        &self.reflection
    }

    pub(crate) fn is_of(&self, device: &Arc<dyn DeviceApi>) -> bool {
        std::ptr::addr_eq(self.device.as_ptr(), Arc::as_ptr(device))
    }

    /// What the device made of it.
    pub fn raw(&self) -> &RawKernel {
        &self.raw
    }
}

impl fmt::Debug for LoadedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedKernel").field("name", &self.name()).field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// A kernel as its device made it. Only that device knows what is inside.
pub struct RawKernel(Box<dyn Any + Send + Sync>);

impl RawKernel {
    /// Wraps what the device needs to run the kernel.
    pub fn new(kernel: impl Any + Send + Sync) -> Self {
        Self(Box::new(kernel))
    }

    /// What was wrapped, or `None` where it is of another type: the kernel is of another device.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for RawKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawKernel")
    }
}
