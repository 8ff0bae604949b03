//! The memory interface of a device, as used by the pool and by buffers: raw blocks, regions, and host access.

use crate::observe::Recorder;
use kiln_ir::Result;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

/// Memory that a pool can manage: it allocates raw blocks and knows which submissions are done.
///
/// A block is freed when its [`RawBlock`] is dropped.
///
/// ```
/// use kiln_device::NullDevice;
///
/// let device = NullDevice::new().into_device()?;
/// let properties = device.api().properties();
/// assert_eq!((properties.copy_alignment, properties.divisible), (4, false));
/// assert_eq!(device.api().completed(), 0);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub trait RawMemory: Any + Send + Sync {
    /// Returns the properties of this memory, which never change.
    fn properties(&self) -> MemoryProperties;

    /// Allocates `bytes` bytes from the driver or system, with unspecified content.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if freeing other blocks may help, `TooLarge` if it cannot.
    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock>;

    /// Returns the newest submission that is known to be done, and with it all before it. Never blocks. Returns
    /// `u64::MAX` once the device is lost, because nothing uses its memory any more.
    ///
    /// The default is for memory without submissions: everything is always done.
    fn completed(&self) -> u64 {
        u64::MAX
    }

    /// Blocks until `submission` is done.
    ///
    /// # Errors
    /// Returns the device's fault if the submission cannot complete.
    fn wait(&self, submission: u64) -> Result<()> {
        let _ = submission;
        Ok(())
    }

    /// Gives the host read access to a region, in place or through a copy. Calls `read` once, with exactly the bytes of
    /// the region.
    ///
    /// # Errors
    /// Returns the device's fault; `read` was not called then.
    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Gives the host read and write access to a region, as [`map`](Self::map) does.
    ///
    /// # Errors
    /// Returns the device's fault; then `write` was not called, or its changes are lost.
    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()>;

    /// Returns the bytes that the driver reports as allocated for this memory, if it does.
    fn driver_bytes(&self) -> Option<u64> {
        None
    }

    /// Called by the maintenance thread of the pool after each sweep, with no lock held. The memory can clean up after
    /// freed blocks here.
    fn tidy(&self) {}

    /// Returns the recorder of events, or `None` if the memory has none.
    fn recorder(&self) -> Option<&Recorder> {
        None
    }
}

/// The properties of a [`RawMemory`].
///
/// Returned by [`RawMemory::properties`]; see [`RawMemory`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryProperties {
    /// The usage of a buffer that requests none.
    pub default_usage: Usage,
    /// The default budget of a pool, in bytes.
    pub default_budget_bytes: u64,
    /// The size of the largest block; a larger request always fails.
    pub max_block_bytes: u64,
    /// The alignment of offsets and lengths of copies: a power of two, at most 64.
    pub copy_alignment: u64,
    /// Whether a raw block may be divided into several buffers. False on a GPU, where two slices of one buffer cannot
    /// be bound for reading and writing in the same dispatch.
    pub divisible: bool,
}

/// The usage of a block. A block is never reused for another usage.
///
/// See [`BufferOptions`](crate::BufferOptions) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Usage {
    /// Storage that the host accesses in place.
    Shared,
    /// Device-only storage, which the host accesses through staging buffers.
    Storage,
    /// Staging memory that the host writes and the device reads.
    Upload,
    /// Staging memory that the device writes and the host reads.
    Download,
}

impl Usage {
    /// All usages.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Storage, Self::Upload, Self::Download];

    /// Returns whether the host can access such memory in place.
    pub fn is_host_visible(self) -> bool {
        self != Self::Storage
    }

    /// Returns whether kernels can use such memory.
    pub fn is_bindable(self) -> bool {
        matches!(self, Self::Shared | Self::Storage)
    }

    /// Returns whether commands can copy from such memory. Only the host reads downloads.
    pub fn is_copied_from(self) -> bool {
        self != Self::Download
    }

    /// Returns whether commands can copy to such memory. Only the host writes uploads.
    pub fn is_copied_to(self) -> bool {
        self != Self::Upload
    }
}

/// Formats the name used in reports and metrics.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How the host accesses buffers that request no usage; an option for opening a device.
///
/// ```
/// use kiln_device::HostAccess;
///
/// assert_eq!(HostAccess::default(), HostAccess::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostAccess {
    /// In place if host and device share memory and the driver can map storage, otherwise through staging buffers.
    #[default]
    Auto,
    /// In place, even if the device has dedicated memory and accesses mapped memory over the bus.
    InPlace,
    /// Through staging buffers, even if memory is shared. Slower there; useful for comparison.
    Staged,
}

/// A block as allocated by its [`RawMemory`], which alone knows its content. Dropping it frees the memory.
///
/// ```
/// use kiln_device::memory::RawBlock;
///
/// let block = RawBlock::new(vec![0u8; 64]);
/// assert_eq!(block.downcast_ref::<Vec<u8>>().map(Vec::len), Some(64));
/// assert!(block.downcast_ref::<String>().is_none(), "a block of another memory");
/// ```
pub struct RawBlock(Box<dyn Any + Send + Sync>);

impl RawBlock {
    /// Wraps the memory's representation of a block.
    pub fn new(block: impl Any + Send + Sync) -> Self {
        Self(Box::new(block))
    }

    /// Returns the wrapped value, or `None` if it has another type, because the block belongs to another memory.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for RawBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawBlock")
    }
}

/// A range of bytes in a raw block that is not written while this value exists.
///
/// Only this crate creates regions, from the lock of the block that owns the range. Implementations of [`RawMemory`]
/// may rely on that.
///
/// Returned by [`Access::region`](crate::pool::Access::region); see [`Allocation`](crate::pool::Allocation) for an
/// example.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    raw: &'a RawBlock,
    offset: u64,
    bytes: u64,
}

impl<'a> Region<'a> {
    pub(crate) fn new(raw: &'a RawBlock, offset: u64, bytes: u64) -> Self {
        Self { raw, offset, bytes }
    }

    /// Returns the raw block that contains the range.
    pub fn raw(&self) -> &'a RawBlock {
        self.raw
    }

    /// Returns the offset of the range in the raw block.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A range of bytes in a raw block that nothing else reads or writes while this value exists.
///
/// Returned by [`AccessMut::region_mut`](crate::pool::AccessMut::region_mut); see
/// [`Allocation`](crate::pool::Allocation) for an example.
#[derive(Debug)]
pub struct RegionMut<'a> {
    region: Region<'a>,
    exclusive: PhantomData<&'a mut [u8]>,
}

impl<'a> RegionMut<'a> {
    pub(crate) fn new(raw: &'a RawBlock, offset: u64, bytes: u64) -> Self {
        Self { region: Region::new(raw, offset, bytes), exclusive: PhantomData }
    }

    /// Returns the same range for reading.
    pub fn as_region(&self) -> Region<'_> {
        self.region
    }

    /// Returns the raw block that contains the range.
    pub fn raw(&self) -> &'a RawBlock {
        self.region.raw
    }

    /// Returns the offset of the range in the raw block.
    pub fn offset(&self) -> u64 {
        self.region.offset
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.region.bytes
    }
}
