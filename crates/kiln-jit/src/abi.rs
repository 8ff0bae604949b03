//! What machine code and its caller agree on.

use std::ffi::c_void;

/// A buffer or value as machine code finds it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bound {
    /// Where it begins.
    pub data: *mut u8,
    /// How long it is, at most [`MAX_BOUND_BYTES`].
    pub bytes: u64,
}

/// The most that is bound: offsets in it, and that of its end, fit into 31 bits.
pub const MAX_BOUND_BYTES: u64 = (1 << 31) - 16;

/// What a call of machine code is given. The places of the fields are part of the stored code.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// What is bound, in the order of the kernel's bindings: buffers, then values.
    pub bound: *const Bound,
    /// Memory of the running thread: that of the work-group with what it decided, then that of its invocations.
    pub scratch: *mut u8,
    /// Functions that the code calls.
    pub(crate) helpers: *const Helper,
    /// When the clock says so, loops end;
    pub watch: *mut c_void,
    /// Bytes of the memory of one vector of invocations, where all of a work-group keep theirs; otherwise 0.
    pub frame_bytes: u64,
    /// Work-groups along each axis.
    pub workgroups: [u32; 3],
    /// What watches the run; null where nothing does.
    pub(crate) sanitizer: *mut c_void,
}

/// A function that code calls by its place in a table.
pub(crate) type Helper = *const c_void;

pub(crate) const BOUND: i32 = std::mem::offset_of!(Call, bound) as i32;
pub(crate) const SCRATCH: i32 = std::mem::offset_of!(Call, scratch) as i32;
pub(crate) const HELPERS: i32 = std::mem::offset_of!(Call, helpers) as i32;
pub(crate) const WATCH: i32 = std::mem::offset_of!(Call, watch) as i32;
pub(crate) const FRAME_BYTES: i32 = std::mem::offset_of!(Call, frame_bytes) as i32;
pub(crate) const WORKGROUPS: i32 = std::mem::offset_of!(Call, workgroups) as i32;
pub(crate) const SANITIZER: i32 = std::mem::offset_of!(Call, sanitizer) as i32;
pub(crate) const BOUND_STRIDE: i32 = size_of::<Bound>() as i32;
pub(crate) const BOUND_BYTES: i32 = std::mem::offset_of!(Bound, bytes) as i32;

/// Runs the work-groups from the first to before the second, numbered along x, then y, then z.
pub(crate) type Entry = unsafe extern "C" fn(*const Call, u64, u64) -> u32;

/// The code ran to its end.
pub(crate) const DONE: u32 = 0;
/// A loop took longer than the limit.
pub(crate) const STOPPED: u32 = 1;
/// The code came to where it never comes.
pub(crate) const FAULT: u32 = 2;
