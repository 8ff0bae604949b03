//! Slots: state that lives in a registry beside its caches, one value per type.

use super::budget::Budget;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, ThreadId, thread};
use std::any::{Any, type_name};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// State that is not a keyed resource, yet belongs to a registry: the key/value cache of a model, prepared tensors.
///
/// The registry reaches it when everything is cleared or trimmed, and counts its bytes in the budget.
pub trait CacheRegistrySlot: Send + 'static {
    /// Empties the slot: gives its memory back, stays usable.
    fn clear_slot(&mut self);

    /// Bytes that the slot holds now.
    fn bytes(&self) -> u64 {
        0
    }
}

/// Exclusive access to a slot; see [`CacheRegistry::slot_mut`](crate::CacheRegistry::slot_mut).
pub struct SlotMut<'a, T: CacheRegistrySlot> {
    cell: &'a SlotCell<T>,
    /// In the order of the drop: the ownership ends before the lock is released.
    held: Option<(Ownership<'a>, MutexGuard<'a, Option<T>>)>,
}

/// A slot without its type.
pub(super) trait ErasedSlot: Any + Send + Sync {
    fn type_name(&self) -> &'static str;
    fn bytes(&self) -> u64;
    /// Clears the slot now or, if someone is using it, as soon as they are done. True if it was now.
    fn clear(&self) -> bool;
}

pub(super) struct SlotCell<T> {
    /// `None` until the first use.
    value: Mutex<Option<T>>,
    /// Locked after `value` or alone, never before it.
    claims: Mutex<Claims>,
    /// As of the end of the last use, so that reports need not wait for the slot.
    bytes: AtomicU64,
    budget: Arc<Budget>,
}

/// Who has a slot, and what it is wanted for.
#[derive(Default)]
struct Claims {
    /// The thread that uses the slot, to refuse a second use by it instead of hanging.
    owner: Option<ThreadId>,
    /// Someone wanted to clear the slot while it was in use; whoever lets go of it does so.
    clear_wanted: bool,
    /// The owner is clearing it.
    clearing: bool,
}

/// Makes this thread the owner of a slot whose lock it holds, for as long as this lives, also through a panic.
struct Ownership<'a>(&'a Mutex<Claims>);

impl<'a> Ownership<'a> {
    fn new(claims: &'a Mutex<Claims>) -> Self {
        claims.lock().owner = Some(thread::current().id());
        Self(claims)
    }
}

impl Drop for Ownership<'_> {
    fn drop(&mut self) {
        let mut claims = self.0.lock();
        claims.owner = None;
        claims.clearing = false;
    }
}

impl<T: CacheRegistrySlot> SlotCell<T> {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { value: Mutex::new(None), claims: Mutex::default(), bytes: AtomicU64::new(0), budget }
    }

    /// Waits for the slot and fills it on first use.
    ///
    /// # Panics
    /// If this thread holds the slot already, because waiting for itself would never end.
    pub(super) fn lock(&self, init: impl FnOnce() -> T) -> SlotMut<'_, T> {
        let me = thread::current().id();
        assert!(
            self.claims.lock().owner != Some(me),
            "slot `{}`: this thread holds it already; drop the first `SlotMut` before asking again",
            type_name::<T>()
        );
        let value = self.value.lock();
        let ownership = Ownership::new(&self.claims);
        // From here on the slot's drop ends the ownership, also if `clear_slot` or `init` panics.
        let mut slot = SlotMut { cell: self, held: Some((ownership, value)) };
        if let Some((_, guard)) = slot.held.as_mut() {
            self.clear_if_wanted(guard);
            guard.get_or_insert_with(init);
        }
        slot
    }

    /// Clears the slot as long as someone wants it and nobody uses it. False if someone does, who will see the wish.
    fn clear_if_free(&self) -> bool {
        while self.claims.lock().clear_wanted {
            let Some(mut guard) = self.value.try_lock() else {
                return false;
            };
            let _ownership = Ownership::new(&self.claims);
            self.clear_if_wanted(&mut guard);
        }
        true
    }

    fn clear_if_wanted(&self, value: &mut Option<T>) {
        let wanted = std::mem::take(&mut self.claims.lock().clear_wanted);
        if wanted && let Some(value) = value {
            self.claims.lock().clearing = true;
            value.clear_slot();
            self.claims.lock().clearing = false;
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

    /// The wish is written down before the lock is tried, and looked for after the lock is released: whichever of two
    /// threads comes second sees what the first one left.
    fn clear(&self) -> bool {
        let mut claims = self.claims.lock();
        if claims.clearing && claims.owner == Some(thread::current().id()) {
            // Asked for by `clear_slot` itself: it is under way.
            return true;
        }
        claims.clear_wanted = true;
        drop(claims);
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
        if let Some((ownership, mut guard)) = self.held.take() {
            // Declared after the guard, hence dropped before it, also if the user's code panics.
            let _ownership = ownership;
            self.cell.clear_if_wanted(&mut guard);
            self.cell.account(guard.as_ref().map_or(0, CacheRegistrySlot::bytes));
        }
        // Someone may have wanted it between the last look and the release.
        self.cell.clear_if_free();
        self.cell.budget.enforce();
    }
}
