//! The record of operations on the null device.

use crate::kernel::RuntimeChecks;
use crate::memory::Usage;

/// An operation on a [`NullDevice`](super::NullDevice).
///
/// Returned by [`NullDevice::records`](crate::NullDevice::records); see [`NullDevice`](crate::NullDevice) for an
/// example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A raw block was allocated.
    Allocate {
        /// Its size in bytes.
        bytes: u64,
        /// Its usage.
        usage: Usage,
    },
    /// An allocation was refused.
    AllocationFailed {
        /// The requested size in bytes.
        bytes: u64,
        /// The requested usage.
        usage: Usage,
    },
    /// A raw block was freed.
    Release {
        /// Its size in bytes.
        bytes: u64,
    },
    /// The host mapped memory.
    Map {
        /// The number of bytes.
        bytes: u64,
        /// Whether it was mapped for writing.
        write: bool,
        /// Whether a fault was injected.
        failed: bool,
    },
    /// A kernel was translated.
    Translate {
        /// Its name.
        kernel: String,
    },
    /// A translated kernel was loaded.
    Load {
        /// The size of its code in bytes.
        bytes: u64,
        /// The checks that it was loaded with.
        checks: RuntimeChecks,
    },
    /// A dispatch was submitted.
    Dispatch {
        /// The name of its kernel.
        kernel: String,
        /// Workgroups along each axis.
        workgroups: [u32; 3],
    },
    /// Commands were submitted.
    Submit {
        /// The number of the submission.
        submission: u64,
        /// The number of commands.
        commands: usize,
    },
    /// A submission completed.
    Complete {
        /// Its number.
        submission: u64,
    },
}
