//! The tracking mode of a thread, for the duration of a scope.

use std::cell::Cell;
use std::thread::LocalKey;

thread_local! {
    static IS_TRACKING: Cell<bool> = const { Cell::new(true) };
    static IS_RECOMPUTING: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function without tracking its results, on this thread.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// let x = kiln::Tensor::from_slice(&[1.0f32], 1, &device)?.requires_grad()?;
/// let y = kiln::no_grad(|| x.exp())?;
/// assert!(!y.is_tracked() && x.exp()?.is_tracked());
/// # Ok(())
/// # }
/// ```
pub fn no_grad<T>(function: impl FnOnce() -> T) -> T {
    tracking(false, function)
}

/// Calls a function with tracking on or off.
pub(super) fn tracking<T>(is_on: bool, function: impl FnOnce() -> T) -> T {
    // Restored by a guard, so that a panic in `function` does not leave the thread in this mode.
    let _scope = Scope { flag: &IS_TRACKING, before: IS_TRACKING.replace(is_on) };
    function()
}

/// Calls a checkpointed function again, to compute its gradients. Its side effects, such as running
/// statistics, must not be repeated.
pub(super) fn recompute<T>(function: impl FnOnce() -> T) -> T {
    let _scope = Scope { flag: &IS_RECOMPUTING, before: IS_RECOMPUTING.replace(true) };
    tracking(true, function)
}

/// Returns whether a checkpointed function is running for the second time.
pub(crate) fn is_recomputing() -> bool {
    IS_RECOMPUTING.get()
}

pub(crate) fn is_tracking() -> bool {
    IS_TRACKING.get()
}

/// Restores the previous mode on drop, also on panic.
struct Scope {
    flag: &'static LocalKey<Cell<bool>>,
    before: bool,
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}
