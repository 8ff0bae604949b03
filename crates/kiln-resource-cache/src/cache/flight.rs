//! Single flight: one thread creates a value, the other threads that request the same key wait for it.

use crate::error::{CacheError, CacheErrorKind};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, ThreadId, thread};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A creation in progress.
pub(crate) struct Flight<V> {
    owner: ThreadId,
    is_done: AtomicBool,
    outcome: Mutex<Option<Outcome<V>>>,
    done: Condvar,
}

/// The result of a creation. The error is type-erased, because each caller of a cache chooses its own error type.
pub(crate) enum Outcome<V> {
    /// The value and its size in bytes.
    Created(Arc<V>, u64),
    Failed(Arc<dyn Any + Send + Sync>),
    Panicked,
}

impl<V> Clone for Outcome<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Created(value, bytes) => Self::Created(Arc::clone(value), *bytes),
            Self::Failed(error) => Self::Failed(Arc::clone(error)),
            Self::Panicked => Self::Panicked,
        }
    }
}

impl<V> Flight<V> {
    /// Creates a flight owned by the calling thread, which is about to run the creation.
    pub(crate) fn new() -> Self {
        Self {
            owner: thread::current().id(),
            is_done: AtomicBool::new(false),
            outcome: Mutex::new(None),
            done: Condvar::new(),
        }
    }

    /// Stores the outcome and wakes all waiting threads.
    pub(crate) fn complete(&self, outcome: Outcome<V>) {
        let mut guard = self.outcome.lock();
        *guard = Some(outcome);
        // Release pairs with the acquire in `is_complete`, which is read without the mutex.
        self.is_done.store(true, Ordering::Release);
        drop(guard);
        // After the unlock, so that woken threads do not block on the mutex at once.
        self.done.notify_all();
    }

    fn wait(&self) -> Outcome<V> {
        let mut guard = self.outcome.lock();
        loop {
            if let Some(outcome) = guard.as_ref() {
                return outcome.clone();
            }
            self.done.wait(&mut guard);
        }
    }
}

/// The type-independent part of a flight, for the wait graph.
trait Pending: Send + Sync {
    fn owner(&self) -> ThreadId;
    fn is_complete(&self) -> bool;
}

impl<V: Send + Sync> Pending for Flight<V> {
    fn owner(&self) -> ThreadId {
        self.owner
    }

    fn is_complete(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

/// The wait graph: which thread waits for which creation.
type Waiting = Vec<(ThreadId, Arc<dyn Pending>)>;

// Process-wide, because a creation may look up any cache of any registry, and a cycle is only visible if all waits are
// in one list. An entry lives only as long as its wait.
#[cfg(not(loom))]
static WAITING: Mutex<Waiting> = Mutex::new(Vec::new());
#[cfg(loom)]
loom::lazy_static! {
    static ref WAITING: Mutex<Waiting> = Mutex::new(Vec::new());
}

/// Waits for a flight of another thread. Returns `Reentrant` if the wait would close a cycle.
///
/// A creation may look up other resources. If those lookups lead back to a creation that waits for this one, all
/// threads on the cycle would wait forever; the last one to wait detects it here.
pub(crate) fn wait<V: Send + Sync + 'static>(
    flight: &Arc<Flight<V>>,
    cache: &str,
    key: &dyn Debug,
) -> Result<Outcome<V>, CacheError> {
    let me = thread::current().id();
    // The check and the new edge are one step under the lock. Otherwise two threads that close a cycle at the same time
    // would both miss it.
    let mut waiting = WAITING.lock();
    let is_cycle = closes_cycle(&waiting, flight.as_ref(), me);
    if !is_cycle {
        waiting.push((me, Arc::clone(flight) as Arc<dyn Pending>));
    }
    // Released before the key is formatted, because `Debug` is user code.
    drop(waiting);
    if is_cycle {
        return Err(CacheError::new(
            CacheErrorKind::Reentrant,
            format!("cache `{cache}`: the creation of {key:?} depends on itself"),
        ));
    }
    let outcome = flight.wait();
    // A blocked thread waits for one flight only, so this removes exactly the edge added above.
    WAITING.lock().retain(|(thread, _)| *thread != me);
    Ok(outcome)
}

/// Follows the edges "waits for a creation by" from `flight`. Returns true if they lead back to `me`.
///
/// A completed flight ends the walk: threads still listed as waiting for it are about to return.
fn closes_cycle(waiting: &[(ThreadId, Arc<dyn Pending>)], flight: &dyn Pending, me: ThreadId) -> bool {
    // A thread waits for at most one flight, so this is a walk along a path. It ends: every edge was checked here before
    // it was added, so a cycle in `waiting` contains a completed flight.
    let mut at = flight;
    loop {
        if at.is_complete() {
            return false;
        }
        let owner = at.owner();
        if owner == me {
            return true;
        }
        match waiting.iter().find(|(thread, _)| *thread == owner) {
            Some((_, next)) => at = next.as_ref(),
            None => return false,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn flight_of(owner: ThreadId) -> Arc<Flight<u32>> {
        Arc::new(Flight { owner, ..Flight::new() })
    }

    /// Returns whether waiting for `flight` would close a cycle.
    fn is_cycle(waiting: &[(ThreadId, &Arc<Flight<u32>>)], flight: &Arc<Flight<u32>>) -> bool {
        let waiting: Vec<_> =
            waiting.iter().map(|&(thread, flight)| (thread, Arc::clone(flight) as Arc<dyn Pending>)).collect();
        closes_cycle(&waiting, flight.as_ref(), thread::current().id())
    }

    #[test]
    fn cycles_are_detected_across_threads_and_end_at_completed_flights() {
        let me = thread::current().id();
        let [a, b] = [(); 2].map(|()| thread::spawn(|| thread::current().id()).join().unwrap());
        let (mine, of_a, of_b) = (flight_of(me), flight_of(a), flight_of(b));
        assert!(is_cycle(&[], &mine), "my own flight");
        assert!(!is_cycle(&[], &of_a), "a waits for nobody");
        assert!(!is_cycle(&[(a, &of_b)], &of_a), "b waits for nobody");
        assert!(is_cycle(&[(a, &of_b), (b, &mine)], &of_a), "a waits for b, b for me");
        mine.complete(Outcome::Created(Arc::new(1), 4));
        assert!(!is_cycle(&[(a, &of_b), (b, &mine)], &of_a), "b is on its way out");
    }
}
