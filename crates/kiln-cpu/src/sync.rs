//! The locks, atomics and threads of this crate, switched to loom's under `--cfg loom`.
//!
//! [`Threads`](crate::Threads) takes its primitives from here, so that the model checker sees it all.

#[cfg(loom)]
pub(crate) use self::model::*;
#[cfg(not(loom))]
pub(crate) use self::native::*;

#[cfg(not(loom))]
mod native {
    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(crate) use std::thread::{Builder, JoinHandle};
    use std::time::{Duration, Instant};

    /// How long a thread looks for news before it gives its core back. Longer than the pause between two small kernels,
    /// so that the second finds its threads awake: one that sleeps comes several times as long as such a kernel too late
    /// (`cargo bench -p kiln-cpu`).
    const SPIN: Duration = Duration::from_micros(300);

    /// Looks for `news` for a short time; says whether there was any.
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
}

/// loom's primitives behind the shape of parking_lot's (no poisoning, `wait(&mut guard)`).
#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(crate) use loom::thread::{Builder, JoinHandle};
    use std::ops::{Deref, DerefMut};

    const HELD: &str = "the guard is only empty inside `wait`";
    const NO_PANIC: &str = "loom tests do not panic inside a lock";

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect(NO_PANIC)))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect(HELD)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(inner).expect(NO_PANIC));
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// One look instead of many: waiting is only worth modelling where it blocks.
    pub(crate) fn spin_until(news: impl Fn() -> bool) -> bool {
        news()
    }
}
