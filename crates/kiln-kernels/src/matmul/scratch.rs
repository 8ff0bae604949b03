//! Scratch memory that a thread keeps from one kernel to the next.

use std::cell::Cell;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
#[expect(dead_code, reason = "written through a pointer")]
struct Line([f32; LINE]);

const LINE: usize = 16;

/// Larger buffers are freed after each use, so that one large product does not hold memory forever.
const KEPT_BYTES: usize = 32 << 20;

thread_local! {
    /// A stack of free buffers: a kernel that runs nested in another on this thread takes its own.
    static KEPT: Cell<Vec<Vec<Line>>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with a buffer for each of these lengths in `f32`, aligned to cache lines. Their content is left from earlier uses.
///
/// Threads keep the memory because faulting in fresh pages takes as long as a small product.
pub(crate) fn with<const PARTS: usize, R>(lengths: [usize; PARTS], work: impl FnOnce([*mut f32; PARTS]) -> R) -> R {
    let mut lines = keep(Vec::pop).unwrap_or_default();
    let needed: usize = lengths.iter().map(|length| length.div_ceil(LINE)).sum();
    if lines.len() < needed {
        lines.resize(needed, Line([0.0; LINE]));
    }
    let mut start = lines.as_mut_ptr();
    let parts = lengths.map(|length| {
        let part = start.cast::<f32>();
        // Within `lines` or one past its end, because it is as long as all parts together.
        start = start.wrapping_add(length.div_ceil(LINE));
        part
    });
    // If `work` panics, the buffer is freed instead of kept.
    let result = work(parts);
    if size_of_val(&*lines) <= KEPT_BYTES {
        keep(|kept| kept.push(lines));
    }
    result
}

fn keep<R>(change: impl FnOnce(&mut Vec<Vec<Line>>) -> R) -> R {
    // The list is empty while `change` runs, so `change` must not call `keep`: what that added would be overwritten.
    let mut kept = KEPT.take();
    let result = change(&mut kept);
    KEPT.set(kept);
    result
}
