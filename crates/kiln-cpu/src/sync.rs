//! The locks, atomics and threads of this crate, which the model checker sees under `--cfg loom`.

pub(crate) use kiln_resource_cache::sync::thread::{Builder, JoinHandle};
pub(crate) use kiln_resource_cache::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering};
#[cfg(not(loom))]
use std::time::{Duration, Instant};

/// How long an idle worker spins before it parks. Longer than the pause between two small kernels, so that the second finds its
/// workers awake: to wake one takes several times as long as such a kernel (`cargo bench -p kiln-cpu`).
#[cfg(not(loom))]
const SPIN: Duration = Duration::from_micros(300);

/// Spins until there is `news`, for a short time; says whether there was any.
#[cfg(not(loom))]
pub(crate) fn spin_until(news: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if news() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= SPIN {
            return false;
        }
    }
}

/// One look instead of many: waiting is only worth modelling where it blocks.
#[cfg(loom)]
pub(crate) fn spin_until(news: impl Fn() -> bool) -> bool {
    news()
}
