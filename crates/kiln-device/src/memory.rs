//! What a device's memory is to the pool and to buffers: raw blocks, regions of them, and how the host reaches them.

use crate::observe::Recorder;
use kiln_ir::Result;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

/// Memory that a pool can stand on: it hands out raw blocks and knows which submissions are done.
///
/// A block goes back to the system when its [`RawBlock`] is dropped.
pub trait RawMemory: Any + Send + Sync {
    /// What this memory is and can do; the same for its whole life.
    fn properties(&self) -> MemoryProperties;

    /// Takes `bytes` bytes from the driver or system. Their contents are unspecified.
    ///
    /// # Errors
    /// `OutOfMemory` where freeing other blocks may help, `TooLarge` where it cannot.
    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock>;

    /// The newest submission that is known to be done, and with it all before it. Never blocks. `u64::MAX` once the device
    /// is lost: nothing touches its memory any more.
    ///
    /// Memory without submissions leaves the default: everything is always done.
    fn completed(&self) -> u64 {
        u64::MAX
    }

    /// Blocks until `submission` is done.
    ///
    /// # Errors
    /// The device's fault, where the submission never will be done.
    fn wait(&self, submission: u64) -> Result<()> {
        let _ = submission;
        Ok(())
    }

    /// Lets the host read a region, in place or through a copy. Calls `read` once, with exactly the region's bytes.
    ///
    /// # Errors
    /// The device's fault; then `read` was not called.
    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Lets the host read and write a region, as [`map`](Self::map) does.
    ///
    /// # Errors
    /// The device's fault; then `write` was not called, or its changes are lost.
    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()>;

    /// Bytes that the driver itself reports as allocated for this memory, where it does.
    fn driver_bytes(&self) -> Option<u64> {
        None
    }

    /// The pool's maintenance thread calls this whenever it has looked for idle blocks, from a point where nobody waits for
    /// it: what the freed blocks leave behind can be tidied up.
    fn tidy(&self) {}

    /// Where what happens is told; `None` where nobody can watch.
    fn recorder(&self) -> Option<&Recorder> {
        None
    }
}

/// What a [`RawMemory`] is and can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryProperties {
    /// The usage of a buffer that asks for none.
    pub default_usage: Usage,
    /// What a pool may reserve unless its settings say otherwise.
    pub default_budget_bytes: u64,
    /// The largest single block; a larger request can never be served.
    pub max_block_bytes: u64,
    /// Offsets and lengths of copies are multiples of this; a power of two, at most 64.
    pub copy_alignment: u64,
    /// Whether one raw block may serve as several buffers. Not so on a GPU, where two slices of one buffer cannot be
    /// bound for reading and for writing in the same dispatch.
    pub divisible: bool,
}

/// What a block is for. A block never serves a request of another usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Usage {
    /// Storage that the host reads and writes in place.
    Shared,
    /// Storage of the device alone; the host reaches it through staging.
    Storage,
    /// Staging that the host writes and the device reads.
    Upload,
    /// Staging that the device writes and the host reads.
    Download,
}

impl Usage {
    /// All usages.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Storage, Self::Upload, Self::Download];

    /// Whether the host reaches such memory in place.
    pub fn is_host_visible(self) -> bool {
        self != Self::Storage
    }

    /// Whether kernels can work on such memory.
    pub fn is_bindable(self) -> bool {
        matches!(self, Self::Shared | Self::Storage)
    }

    /// Whether commands can copy from such memory. The host reads downloads, the device does not.
    pub fn is_copied_from(self) -> bool {
        self != Self::Download
    }

    /// Whether commands can copy to such memory. The host writes uploads, the device does not.
    pub fn is_copied_to(self) -> bool {
        self != Self::Upload
    }
}

/// The name in reports and metrics.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How the host reaches a buffer that asks for no usage of its own: a choice that devices offer when they are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostAccess {
    /// In place where host and device share memory and the driver can map storage, through staging elsewhere.
    #[default]
    Auto,
    /// In place, also where the device has memory of its own and reaches mapped memory over the bus.
    InPlace,
    /// Through staging buffers of the pool, also where memory is shared. Slower there; it shows what the other way saves.
    Staged,
}

/// One block as its [`RawMemory`] made it. Only that memory knows what is inside; dropping it frees the memory.
pub struct RawBlock(Box<dyn Any + Send + Sync>);

impl RawBlock {
    /// Wraps what the memory needs to find the block again.
    pub fn new(block: impl Any + Send + Sync) -> Self {
        Self(Box::new(block))
    }

    /// What was wrapped, or `None` where it is of another type: the block is of another memory.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for RawBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawBlock")
    }
}

/// A range of bytes inside a raw block that nobody writes while this value lives.
///
/// Only this crate makes regions, from the lock of the block that owns the range. A [`RawMemory`] may rely on that.
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

    /// The raw block that the range is in.
    pub fn raw(&self) -> &'a RawBlock {
        self.raw
    }

    /// Where the range begins in the raw block.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How long the range is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A range of bytes inside a raw block that nobody else reads or writes while this value lives.
#[derive(Debug)]
pub struct RegionMut<'a> {
    region: Region<'a>,
    exclusive: PhantomData<&'a mut [u8]>,
}

impl<'a> RegionMut<'a> {
    pub(crate) fn new(raw: &'a RawBlock, offset: u64, bytes: u64) -> Self {
        Self { region: Region::new(raw, offset, bytes), exclusive: PhantomData }
    }

    /// The same range for reading.
    pub fn as_region(&self) -> Region<'_> {
        self.region
    }

    /// The raw block that the range is in.
    pub fn raw(&self) -> &'a RawBlock {
        self.region.raw
    }

    /// Where the range begins in the raw block.
    pub fn offset(&self) -> u64 {
        self.region.offset
    }

    /// How long the range is.
    pub fn bytes(&self) -> u64 {
        self.region.bytes
    }
}
