//! Requests to a pool.

use crate::memory::Usage;
use kiln_ir::{Result, error};

/// A request for a buffer: its size, usage and label.
///
/// ```
/// use kiln_device::{BufferOptions, Usage};
///
/// let options = BufferOptions::of::<f32>(1024)?.label("weights").usage(Usage::Storage);
/// assert_eq!(options.bytes(), 4096);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct BufferOptions<'a> {
    pub(crate) bytes: u64,
    pub(crate) usage: Option<Usage>,
    pub(crate) label: Option<&'a str>,
}

impl<'a> BufferOptions<'a> {
    /// Creates a request for `bytes` bytes. Zero is allowed.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, usage: None, label: None }
    }

    /// Creates a request for `len` elements.
    ///
    /// # Errors
    /// Returns `TooLarge` if the size in bytes exceeds 64 bits.
    pub fn of<T>(len: usize) -> Result<Self> {
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64).ok_or_else(|| {
            error!(TooLarge, "buffer expected a size within 64 bits, found {len} elements of {} bytes", size_of::<T>())
        })?;
        Ok(Self::new(bytes))
    }

    /// Sets the usage. Default: that of the device.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the label, which reports and out-of-memory errors show.
    pub fn label(mut self, label: &'a str) -> Self {
        self.label = Some(label);
        self
    }

    /// Returns the requested bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl From<u64> for BufferOptions<'_> {
    fn from(bytes: u64) -> Self {
        Self::new(bytes)
    }
}
