//! Synchronization primitives of [`Threads`](crate::Threads), replaced by loom's under `--cfg loom`, and spinning.

pub(crate) use kiln_resource_cache::sync::thread::{Builder, JoinHandle};
pub(crate) use kiln_resource_cache::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering};

/// Idle workers spin for this long before parking. Longer than the pause between two small kernels, so that the
/// second finds its threads awake: waking a parked thread takes several times as long as such a kernel
/// (`cargo bench -p kiln-cpu`).
#[cfg(not(loom))]
const SPIN: std::time::Duration = std::time::Duration::from_micros(300);

/// Spins until `news` holds, for a limited time; returns whether it did.
#[cfg(not(loom))]
pub(crate) fn spin_until(news: impl Fn() -> bool) -> bool {
    let start = std::time::Instant::now();
    loop {
        // Amortizes the cost of reading the clock.
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

/// Checks once: only blocking waits are worth modelling.
#[cfg(loom)]
pub(crate) fn spin_until(news: impl Fn() -> bool) -> bool {
    news()
}
