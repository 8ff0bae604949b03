//! Whether what is computed is tracked: a matter of the thread, for as long as a scope lasts.

use std::cell::Cell;
use std::thread::LocalKey;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(true) };
    static IS_AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function whose results are not tracked, on this thread.
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

/// Calls a function whose results are tracked or not.
pub(super) fn tracking<T>(is_on: bool, function: impl FnOnce() -> T) -> T {
    let _scope = Scope { flag: &IS_ON, before: IS_ON.replace(is_on) };
    function()
}

/// Calls a function for the second time, to have its gradients: what it changes beside its result is changed already.
pub(super) fn again<T>(function: impl FnOnce() -> T) -> T {
    let _scope = Scope { flag: &IS_AGAIN, before: IS_AGAIN.replace(true) };
    tracking(true, function)
}

/// Whether a function is called for the second time.
pub(crate) fn is_again() -> bool {
    IS_AGAIN.get()
}

pub(crate) fn is_tracking() -> bool {
    IS_ON.get()
}

/// Sets back what was before, also when the function panics.
struct Scope {
    flag: &'static LocalKey<Cell<bool>>,
    before: bool,
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}
