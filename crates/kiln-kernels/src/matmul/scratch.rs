//! Scratch memory that a thread keeps from one kernel to the next.

use std::cell::Cell;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
#[expect(dead_code, reason = "written through a pointer")]
struct Line([f32; LINE]);

const LINE: usize = 16;

/// More than this is given back after each use, so that one large product does not hold memory for ever.
const KEPT_BYTES: usize = 32 << 20;

thread_local! {
    /// One for each kernel that runs inside of another one on this thread.
    static KEPT: Cell<Vec<Vec<Line>>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with memory for parts of these lengths in `f32`, each from the start of a cache line on. What is in them is left from
/// earlier uses.
///
/// Fresh pages cost as much as a small product, which is why a thread keeps them.
pub(crate) fn with<const PARTS: usize, R>(lengths: [usize; PARTS], work: impl FnOnce([*mut f32; PARTS]) -> R) -> R {
    let mut lines = keep(Vec::pop).unwrap_or_default();
    let needed: usize = lengths.iter().map(|length| length.div_ceil(LINE)).sum();
    if lines.len() < needed {
        lines.resize(needed, Line([0.0; LINE]));
    }
    let mut start = lines.as_mut_ptr();
    let parts = lengths.map(|length| {
        let part = start.cast::<f32>();
        // Inside of `lines` or one past its end, because it is as long as all parts together.
        start = start.wrapping_add(length.div_ceil(LINE));
        part
    });
    let result = work(parts);
    if size_of_val(&*lines) <= KEPT_BYTES {
        keep(|kept| kept.push(lines));
    }
    result
}

fn keep<R>(change: impl FnOnce(&mut Vec<Vec<Line>>) -> R) -> R {
    let mut kept = KEPT.take();
    let result = change(&mut kept);
    KEPT.set(kept);
    result
}
