//! Slots: state in a registry that is not a cached resource, one value per type.

use super::budget::Budget;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, ThreadId, thread};
use std::any::{Any, type_name};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// State that is not a keyed resource but belongs to a registry, such as the key/value cache of a model.
///
/// The registry clears it when it is cleared or trimmed, and counts its bytes in the budget.
///
/// See [`CacheRegistry::slot_mut`](crate::CacheRegistry::slot_mut) for an example.
pub trait CacheRegistrySlot: Send + 'static {
    /// Releases the memory of the slot, which stays usable.
    fn clear_slot(&mut self);

    /// Returns the bytes that the slot holds.
    fn bytes(&self) -> u64 {
        0
    }
}

/// Exclusive access to a slot; see [`CacheRegistry::slot_mut`](crate::CacheRegistry::slot_mut).
///
/// See [`CacheRegistry::slot_mut`](crate::CacheRegistry::slot_mut) for an example.
pub struct SlotMut<'a, T: CacheRegistrySlot> {
    cell: &'a SlotCell<T>,
    /// Dropped in order: the ownership ends before the lock is released.
    held: Option<(OwnerGuard<'a>, MutexGuard<'a, Option<T>>)>,
}

/// A slot without its type.
pub(super) trait ErasedSlot: Any + Send + Sync {
    fn type_name(&self) -> &'static str;
    fn bytes(&self) -> u64;
    /// Clears the slot at once, or when its current user releases it. Returns true if it was cleared at once.
    fn clear(&self) -> bool;
}

pub(super) struct SlotCell<T> {
    /// `None` until the first use.
    value: Mutex<Option<T>>,
    /// Lock order: `value` before `state`.
    state: Mutex<SlotState>,
    /// The bytes at the end of the last use, so that reports need not wait for the slot.
    bytes: AtomicU64,
    budget: Arc<Budget>,
}

/// The owner of a slot and pending requests.
#[derive(Default)]
struct SlotState {
    /// The thread that holds the slot, to panic instead of a deadlock if it locks the slot again.
    owner: Option<ThreadId>,
    /// Whether a clear was requested while the slot was in use; the owner clears it on release.
    clear_requested: bool,
    /// Whether the owner is clearing the slot.
    clearing: bool,
}

/// Makes this thread the owner of a slot whose lock it holds, until it is dropped, also during a panic.
struct OwnerGuard<'a>(&'a Mutex<SlotState>);

impl<'a> OwnerGuard<'a> {
    fn new(state: &'a Mutex<SlotState>) -> Self {
        state.lock().owner = Some(thread::current().id());
        Self(state)
    }
}

impl Drop for OwnerGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.owner = None;
        state.clearing = false;
    }
}

impl<T: CacheRegistrySlot> SlotCell<T> {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { value: Mutex::new(None), state: Mutex::default(), bytes: AtomicU64::new(0), budget }
    }

    /// Waits for the slot and fills it on first use.
    ///
    /// # Panics
    /// Panics if this thread already holds the slot, where waiting would be a deadlock.
    pub(super) fn lock(&self, init: impl FnOnce() -> T) -> SlotMut<'_, T> {
        let me = thread::current().id();
        // Cannot be outdated: only this thread makes itself the owner, or ends that.
        assert!(
            self.state.lock().owner != Some(me),
            "slot `{}`: this thread holds it already; drop the first `SlotMut` before calling `slot_mut` again",
            type_name::<T>()
        );
        let value = self.value.lock();
        let owner_guard = OwnerGuard::new(&self.state);
        // From here on, dropping `slot` ends the ownership, also if `clear_slot` or `init` panics.
        let mut slot = SlotMut { cell: self, held: Some((owner_guard, value)) };
        if let Some((_, guard)) = slot.held.as_mut() {
            self.clear_if_requested(guard);
            guard.get_or_insert_with(init);
        }
        slot
    }

    /// Clears the slot while a clear is requested and the slot is free. Returns false if it is in use; its owner then
    /// clears it.
    fn clear_if_free(&self) -> bool {
        // Checked again after each release: a thread whose request came while the slot was locked here has left it to
        // this thread.
        while self.state.lock().clear_requested {
            let Some(mut guard) = self.value.try_lock() else {
                return false;
            };
            let _owner_guard = OwnerGuard::new(&self.state);
            self.clear_if_requested(&mut guard);
        }
        true
    }

    fn clear_if_requested(&self, value: &mut Option<T>) {
        let requested = std::mem::take(&mut self.state.lock().clear_requested);
        if requested && let Some(value) = value {
            // `state` is not locked during `clear_slot`, which is user code and may request a clear of its own slot.
            self.state.lock().clearing = true;
            value.clear_slot();
            self.state.lock().clearing = false;
            self.account(value.bytes());
        }
    }

    fn account(&self, now: u64) {
        self.budget.adjust(self.bytes.swap(now, Ordering::Relaxed), now);
    }
}

impl<T: CacheRegistrySlot> ErasedSlot for SlotCell<T> {
    fn type_name(&self) -> &'static str {
        type_name::<T>()
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets the request before trying the lock. The owner checks for it after releasing the lock, so that one of the
    /// two threads always sees it.
    fn clear(&self) -> bool {
        let mut state = self.state.lock();
        if state.clearing && state.owner == Some(thread::current().id()) {
            // Called by `clear_slot` itself, which is already clearing.
            return true;
        }
        state.clear_requested = true;
        drop(state);
        self.clear_if_free()
    }
}

impl<T: CacheRegistrySlot> Deref for SlotMut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().and_then(|(_, guard)| guard.as_ref()).expect("the slot is filled before it is handed out")
    }
}

impl<T: CacheRegistrySlot> DerefMut for SlotMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().and_then(|(_, guard)| guard.as_mut()).expect("the slot is filled before it is handed out")
    }
}

impl<T: CacheRegistrySlot + fmt::Debug> fmt::Debug for SlotMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: CacheRegistrySlot> Drop for SlotMut<'_, T> {
    fn drop(&mut self) {
        if let Some((owner_guard, mut guard)) = self.held.take() {
            // Declared after the guard and hence dropped before it, also if user code panics.
            let _owner_guard = owner_guard;
            self.cell.clear_if_requested(&mut guard);
            self.cell.account(guard.as_ref().map_or(0, CacheRegistrySlot::bytes));
        }
        // A clear may have been requested between the last check and the release of the lock.
        self.cell.clear_if_free();
        self.cell.budget.enforce();
    }
}
