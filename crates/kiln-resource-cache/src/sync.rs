//! Locks, atomics and threads; replaced by loom's under `--cfg loom`, so that the model checker sees them.
//!
//! Used by this crate and by the thread pool of `kiln-cpu`. Not part of the public interface.

#[cfg(loom)]
pub use self::model::*;
#[cfg(not(loom))]
pub use self::native::*;

#[cfg(not(loom))]
mod native {
    pub use parking_lot::{Condvar, Mutex, MutexGuard};
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use std::thread::{self, ThreadId};
}

/// loom's primitives with the interface of parking_lot (no poisoning, `wait(&mut guard)`).
#[cfg(loom)]
mod model {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use loom::thread::{self, ThreadId};
    use std::ops::{Deref, DerefMut};

    const HELD: &str = "the guard is only empty inside `wait`";
    const NO_PANIC: &str = "loom tests do not panic inside a lock";

    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect(NO_PANIC)))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
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
    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(inner).expect(NO_PANIC));
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
