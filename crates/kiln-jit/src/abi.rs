//! The interface between compiled code and its caller: the entry point's signature, its context argument and
//! its return codes.

use std::ffi::c_void;

/// A buffer or uniform value bound to a kernel. Compiled code reads it through its `repr(C)` layout.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BoundBuffer {
    /// Start of the buffer.
    pub data: *mut u8,
    /// Size in bytes, at most [`MAX_BINDING_BYTES`].
    pub bytes: u64,
}

/// Maximum size of a binding. Offsets into it, and the offset of its end, fit into 31 bits, so that generated
/// code can compute them as `i32`.
///
/// See the [crate documentation](crate) for an example.
pub const MAX_BINDING_BYTES: u64 = (1 << 31) - 16;

/// The context argument of compiled code. Field offsets are baked into stored code: a change needs a new
/// [`REVISION`](crate::REVISION).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CallContext {
    /// The bound buffers, then the uniform values, in the order of their binding numbers.
    pub(crate) bindings: *const BoundBuffer,
    /// Scratch memory of the running thread: workgroup memory, then the frames of its gangs.
    pub(crate) scratch: *mut u8,
    /// Table of runtime functions, indexed as [`crate::libcalls`] says.
    pub(crate) libcalls: *const LibCall,
    /// A [`Deadline`](crate::libcalls::Deadline), passed to the `refuel` libcall.
    pub(crate) deadline: *mut c_void,
    /// Distance between the frames of two gangs. 0 when gangs run to completion one after another and share one
    /// frame.
    pub(crate) frame_bytes: u64,
    /// Number of workgroups along each axis.
    pub(crate) workgroups: [u32; 3],
    /// The [`Sanitizer`](crate::Sanitizer), or null.
    pub(crate) sanitizer: *mut c_void,
}

/// An untyped function pointer in the table of libcalls.
pub(crate) type LibCall = *const c_void;

// Field offsets and strides that `emit` writes into loads. `i32` is Cranelift's type for immediate offsets.
pub(crate) const BINDINGS: i32 = std::mem::offset_of!(CallContext, bindings) as i32;
pub(crate) const SCRATCH: i32 = std::mem::offset_of!(CallContext, scratch) as i32;
pub(crate) const LIBCALLS: i32 = std::mem::offset_of!(CallContext, libcalls) as i32;
pub(crate) const DEADLINE: i32 = std::mem::offset_of!(CallContext, deadline) as i32;
pub(crate) const FRAME_BYTES: i32 = std::mem::offset_of!(CallContext, frame_bytes) as i32;
pub(crate) const WORKGROUPS: i32 = std::mem::offset_of!(CallContext, workgroups) as i32;
pub(crate) const SANITIZER: i32 = std::mem::offset_of!(CallContext, sanitizer) as i32;
pub(crate) const BINDING_STRIDE: i32 = size_of::<BoundBuffer>() as i32;
pub(crate) const BINDING_BYTES: i32 = std::mem::offset_of!(BoundBuffer, bytes) as i32;

/// Entry point of compiled code: runs the workgroups of a half-open range of linear indices (x fastest, then y,
/// then z) and returns [`DONE`], [`TIMED_OUT`] or [`FAULT`].
pub(crate) type Entry = unsafe extern "C" fn(*const CallContext, u64, u64) -> u32;

/// All workgroups ran.
pub(crate) const DONE: u32 = 0;
/// The deadline passed while a loop ran.
pub(crate) const TIMED_OUT: u32 = 1;
/// Unreachable code was reached, or an elided bounds check failed verification.
pub(crate) const FAULT: u32 = 2;
