//! Buffers: device memory for kernels, copies and host access.
//!
//! A [`Buffer`] is a range of bytes and a [`TypedBuffer`] a range of elements. Both come from the [pool](crate::pool) of their device and
//! return to it when the last handle is dropped. Clones and slices share memory.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! let device = kiln::Device::cpu()?;
//! let numbers = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//! let copy = device.buffer_of::<f32>(3)?;
//! numbers.copy_to(&copy)?;
//! assert_eq!(copy.read()?, [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```

pub use kiln_device::{Buffer, BufferOptions, PendingRead, TypedBuffer, Usage};
