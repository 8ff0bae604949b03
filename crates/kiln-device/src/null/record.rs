//! What the null device remembers.

use crate::kernel::RuntimeChecks;
use crate::memory::Usage;

/// One thing that happened to a [`NullDevice`](super::NullDevice).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A raw block was handed out.
    Allocate {
        /// Its size.
        bytes: u64,
        /// What it is for.
        usage: Usage,
    },
    /// A raw block was refused.
    AllocationFailed {
        /// The size that was asked for.
        bytes: u64,
        /// What it was for.
        usage: Usage,
    },
    /// A raw block came back.
    Release {
        /// Its size.
        bytes: u64,
    },
    /// The host read or wrote.
    Map {
        /// How many bytes.
        bytes: u64,
        /// Whether it could write.
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
        /// The bytes of its code.
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
        /// How many commands.
        commands: usize,
    },
    /// A submission ended.
    Complete {
        /// Its number.
        submission: u64,
    },
}
