//! Single flight: one thread creates, the others that want the same key wait for it.

use crate::error::{CacheError, CacheErrorKind};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, ThreadId, thread};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A creation under way.
pub(crate) struct Flight<V> {
    owner: ThreadId,
    landed: AtomicBool,
    outcome: Mutex<Option<Outcome<V>>>,
    landing: Condvar,
}

/// How a creation ended. The error is type-erased, because a cache does not fix the error type of its callers.
pub(crate) enum Outcome<V> {
    /// The value and its bytes.
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
    /// A creation that the calling thread is about to run.
    pub(crate) fn new() -> Self {
        Self {
            owner: thread::current().id(),
            landed: AtomicBool::new(false),
            outcome: Mutex::new(None),
            landing: Condvar::new(),
        }
    }

    /// Ends the creation and wakes everyone who waits for it.
    pub(crate) fn land(&self, outcome: Outcome<V>) {
        let mut guard = self.outcome.lock();
        *guard = Some(outcome);
        self.landed.store(true, Ordering::Release);
        drop(guard);
        self.landing.notify_all();
    }

    fn wait(&self) -> Outcome<V> {
        let mut guard = self.outcome.lock();
        loop {
            if let Some(outcome) = guard.as_ref() {
                return outcome.clone();
            }
            self.landing.wait(&mut guard);
        }
    }
}

/// The side of a flight that the wait graph needs.
trait Pending: Send + Sync {
    fn owner(&self) -> ThreadId;
    fn has_landed(&self) -> bool;
}

impl<V: Send + Sync> Pending for Flight<V> {
    fn owner(&self) -> ThreadId {
        self.owner
    }

    fn has_landed(&self) -> bool {
        self.landed.load(Ordering::Acquire)
    }
}

/// Which thread waits for which creation.
type Waiting = Vec<(ThreadId, Arc<dyn Pending>)>;

// Threads are process-wide, and a creation may look up any cache of any registry: only a process-wide list sees every
// circle. It holds nothing of a cache beyond the time of a wait.
#[cfg(not(loom))]
static WAITING: Mutex<Waiting> = Mutex::new(Vec::new());
#[cfg(loom)]
loom::lazy_static! {
    static ref WAITING: Mutex<Waiting> = Mutex::new(Vec::new());
}

/// Waits for a flight of another thread; an error, if that could never end.
///
/// A creation may look up other resources. When those look-ups come back to a creation that waits for this one, every
/// thread on the way would wait for ever; the last of them sees the circle here.
pub(crate) fn wait<V: Send + Sync + 'static>(
    flight: &Arc<Flight<V>>,
    cache: &str,
    key: &dyn Debug,
) -> Result<Outcome<V>, CacheError> {
    let me = thread::current().id();
    let mut waiting = WAITING.lock();
    let is_circle = closes_cycle(&waiting, flight.as_ref(), me);
    if !is_circle {
        waiting.push((me, Arc::clone(flight) as Arc<dyn Pending>));
    }
    // Before the key is formatted, which is the user's code.
    drop(waiting);
    if is_circle {
        return Err(CacheError::new(
            CacheErrorKind::Reentrant,
            format!("cache `{cache}`: the creation of {key:?} asks for itself"),
        ));
    }
    let outcome = flight.wait();
    WAITING.lock().retain(|(thread, _)| *thread != me);
    Ok(outcome)
}

/// Follows "waits for a creation by" from `flight`; true if that leads back to `me`.
///
/// A landed flight ends the walk: whoever waited for it is on its way out, though still in the list.
fn closes_cycle(waiting: &[(ThreadId, Arc<dyn Pending>)], flight: &dyn Pending, me: ThreadId) -> bool {
    let mut at = flight;
    loop {
        if at.has_landed() {
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

    /// What a thread that is about to wait for `flight` sees.
    fn is_circle(waiting: &[(ThreadId, &Arc<Flight<u32>>)], flight: &Arc<Flight<u32>>) -> bool {
        let waiting: Vec<_> =
            waiting.iter().map(|&(thread, flight)| (thread, Arc::clone(flight) as Arc<dyn Pending>)).collect();
        closes_cycle(&waiting, flight.as_ref(), thread::current().id())
    }

    #[test]
    fn circles_are_seen_over_any_number_of_threads_and_end_at_landed_flights() {
        let me = thread::current().id();
        let [a, b] = [(); 2].map(|()| thread::spawn(|| thread::current().id()).join().unwrap());
        let (mine, of_a, of_b) = (flight_of(me), flight_of(a), flight_of(b));
        assert!(is_circle(&[], &mine), "my own flight");
        assert!(!is_circle(&[], &of_a), "a waits for nobody");
        assert!(!is_circle(&[(a, &of_b)], &of_a), "b waits for nobody");
        assert!(is_circle(&[(a, &of_b), (b, &mine)], &of_a), "a waits for b, b for me");
        mine.land(Outcome::Created(Arc::new(1), 4));
        assert!(!is_circle(&[(a, &of_b), (b, &mine)], &of_a), "b is on its way out");
    }
}
