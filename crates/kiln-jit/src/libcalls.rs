//! Runtime functions that compiled code calls: math without an instruction, the clock, and the sanitizer.
//!
//! Compiled code loads their addresses from a table by index. The indices are part of stored code: a change of
//! their order, here or in [`Event`], needs a new [`REVISION`](crate::REVISION).

use crate::abi::LibCall;
use crate::sanitizer::{self, Event};
use naga::MathFunction as Math;
use std::ffi::c_void;
use std::time::Instant;

/// A function applied elementwise to `f32`s. It computes in `f64` and rounds once; the results overwrite the
/// first argument.
type FloatFunction = unsafe extern "C" fn(*mut f32, u64);

macro_rules! float_functions {
    ($($name:ident($($argument:ident),+) = $value:expr;)+) => {
        mod functions {
            $(
                /// # Safety
                /// `data` points to `count` elements for each argument, one argument after the other.
                #[allow(non_snake_case)]
                pub(super) unsafe extern "C" fn $name(data: *mut f32, count: u64) {
                    let count = count as usize;
                    for lane in 0..count {
                        let mut argument_index = lane;
                        $(
                            // SAFETY: the caller guarantees `count` elements per argument.
                            let $argument = f64::from(unsafe { *data.add(argument_index) });
                            argument_index += count;
                        )+
                        let _ = argument_index;
                        // SAFETY: `lane` is below `count`.
                        unsafe { *data.add(lane) = $value as f32 };
                    }
                }
            )+
        }

        const FLOAT_FUNCTIONS: &[(Math, FloatFunction)] = &[$((Math::$name, functions::$name)),+];
    };
}

float_functions! {
    // In `f64`: the error of the library function disappears when the result is rounded to `f32`.
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

/// Index of a WGSL function in the table; `None` if it is compiled inline.
pub(crate) fn index_of(function: Math) -> Option<i32> {
    FLOAT_FUNCTIONS.iter().position(|(known, _)| *known == function).map(|index| index as i32 + FIRST_FUNCTION)
}

/// Fixed indices: [`refuel`] first, then the float functions, then the sanitizer's functions.
pub(crate) const REFUEL: i32 = 0;
const FIRST_FUNCTION: i32 = 1;

/// Index of a sanitizer function.
pub(crate) fn event_index(event: Event) -> i32 {
    FIRST_FUNCTION + FLOAT_FUNCTIONS.len() as i32 + event as i32
}

/// Cost units (about one per statement or expression) that a kernel runs between two checks of the clock: a few
/// milliseconds. Reading the clock on every iteration would dominate short loops.
pub(crate) const FUEL: i64 = 1 << 19;

/// When loops have to stop; `None` for no limit.
#[derive(Debug)]
pub(crate) struct Deadline(pub(crate) Option<Instant>);

/// Returns the fuel until the next check of the clock, or a negative number when the deadline has passed.
///
/// # Safety
/// `deadline` points to a [`Deadline`].
unsafe extern "C" fn refuel(deadline: *mut c_void) -> i64 {
    // SAFETY: the caller passes the `deadline` field of the call context.
    let Deadline(deadline) = unsafe { &*deadline.cast::<Deadline>() };
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) { -1 } else { FUEL }
}

/// Returns the table of function addresses for [`CallContext`](crate::abi::CallContext).
pub(crate) fn table() -> Vec<LibCall> {
    let refuel: unsafe extern "C" fn(*mut c_void) -> i64 = refuel;
    let float_functions = FLOAT_FUNCTIONS.iter().map(|(_, function)| *function as LibCall);
    std::iter::once(refuel as LibCall).chain(float_functions).chain(sanitizer::table()).collect()
}
