//! The locks and atomics of this crate, switched to loom's under `--cfg loom`.
//!
//! Everything concurrent in the crate takes its primitives from here, so that the model checker sees it all.

#[cfg(loom)]
pub(crate) use self::model::*;
#[cfg(not(loom))]
pub(crate) use self::native::*;

#[cfg(not(loom))]
mod native {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use std::thread::{self, ThreadId};
}

/// loom's primitives behind the shape of parking_lot's (no poisoning, `wait(&mut guard)`).
#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use loom::thread::{self, ThreadId};
    use std::ops::{Deref, DerefMut};

    const HELD: &str = "the guard is only empty inside `wait`";
    const NO_PANIC: &str = "loom tests do not panic inside a lock";

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect(NO_PANIC)))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
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

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(inner).expect(NO_PANIC));
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
