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

#![forbid(unsafe_code)]

mod error;

pub use error::{Error, ErrorKind, Result};
