//! Functions that machine code calls: what has no instruction. Their places in the table are part of stored code.

use crate::abi::Helper;
use crate::sanitize::{self, Event};
use naga::MathFunction as Math;
use std::ffi::c_void;
use std::time::Instant;

/// A function on each of some singles, computed with twice the bits and rounded: the results replace the first arguments.
type OnFloats = unsafe extern "C" fn(*mut f32, u64);

macro_rules! on_floats {
    ($($name:ident($($argument:ident),+) = $value:expr;)+) => {
        mod functions {
            $(
                /// # Safety
                /// At `data` there are `count` elements for each argument.
                #[allow(non_snake_case)]
                pub(super) unsafe extern "C" fn $name(data: *mut f32, count: u64) {
                    let count = count as usize;
                    for lane in 0..count {
                        let mut at = lane;
                        $(
                            // SAFETY: the caller's promise.
                            let $argument = f64::from(unsafe { *data.add(at) });
                            at += count;
                        )+
                        let _ = at;
                        // SAFETY: as above.
                        unsafe { *data.add(lane) = $value as f32 };
                    }
                }
            )+
        }

        const ON_FLOATS: &[(Math, OnFloats)] = &[$((Math::$name, functions::$name)),+];
    };
}

on_floats! {
    Asin(x) = x.asin();
    Acos(x) = x.acos();
    Atan(x) = x.atan();
    Sinh(x) = x.sinh();
    Cosh(x) = x.cosh();
    Asinh(x) = x.asinh();
    Acosh(x) = x.acosh();
    Atanh(x) = x.atanh();
    Atan2(y, x) = y.atan2(x);
}

/// The place of a function of WGSL in the table; `None` where code computes it by itself.
pub(crate) fn place_of(function: Math) -> Option<i32> {
    ON_FLOATS.iter().position(|(known, _)| *known == function).map(|place| place as i32 + FIRST_FUNCTION)
}

/// The places of the others.
pub(crate) const REFUEL: i32 = 0;
const FIRST_FUNCTION: i32 = 1;

/// The place of a function of the sanitizer.
pub(crate) fn event_place(event: Event) -> i32 {
    FIRST_FUNCTION + ON_FLOATS.len() as i32 + event as i32
}

/// Statements and expressions that run between two looks at the clock, roughly: some milliseconds.
pub(crate) const FUEL: i64 = 1 << 19;

/// When loops have to end.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The moment, where there is one.
    pub(crate) deadline: Option<Instant>,
}

/// What may run before the next look, or a negative number where the time is over.
///
/// # Safety
/// `watch` points to a [`Watch`].
unsafe extern "C" fn refuel(watch: *mut c_void) -> i64 {
    // SAFETY: the caller's promise.
    let watch = unsafe { &*watch.cast::<Watch>() };
    if watch.deadline.is_some_and(|deadline| Instant::now() >= deadline) { -1 } else { FUEL }
}

/// The table, as code takes it.
pub(crate) fn table() -> Vec<Helper> {
    let refuel: unsafe extern "C" fn(*mut c_void) -> i64 = refuel;
    let on_floats = ON_FLOATS.iter().map(|(_, function)| *function as Helper);
    std::iter::once(refuel as Helper).chain(on_floats).chain(sanitize::table()).collect()
}
