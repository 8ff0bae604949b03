//! Whether what is computed is tracked: a matter of the thread, for as long as a scope lasts.

use std::cell::Cell;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(true) };
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
    let _scope = Scope { before: IS_ON.replace(is_on) };
    function()
}

pub(super) fn is_tracking() -> bool {
    IS_ON.get()
}

/// Sets back what was before, also when the function panics.
struct Scope {
    before: bool,
}

impl Drop for Scope {
    fn drop(&mut self) {
        IS_ON.set(self.before);
    }
}
