//! What every crate of Kiln shares and what needs no device: today [`Error`], later dtypes, shapes, the op table, the
//! graph and its passes. Pure functions only: no I/O, no device, no clock.
//!
//! ```
//! use kiln_ir::{Error, ErrorKind};
//!
//! let error = Error::new(ErrorKind::TooLarge, "expected at most 128 MiB, found 1 GiB").context("buffer `weights`");
//! assert_eq!(error.kind(), ErrorKind::TooLarge);
//! assert_eq!(error.to_string(), "buffer `weights`: expected at most 128 MiB, found 1 GiB");
//! ```

// The only unsafe item is the signature of `HostOutput::store`.
#![deny(unsafe_code)]

mod dtype;
mod error;
pub mod graph;
#[expect(unsafe_code, reason = "kernels store results from several threads, each its own")]
pub mod host;
pub mod kernel;
mod layout;
pub mod op;
pub mod plan;
mod shape;
mod simd;
pub mod wgsl;

pub use dtype::{Class, DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use kernel::KernelOp;
pub use layout::Layout;
pub use shape::Shape;
pub use simd::SimdLevel;
