//! The miss path: runs the creation once, stores its result and wakes the waiting threads.

use super::evict::Incoming;
use super::flight::{self, Flight, Outcome};
use super::shard::Lookup;
use super::{Cache, Evicted};
use crate::error::{CacheError, CacheErrorKind};
use crate::kernel::{CacheKey, CreationError};
use std::sync::Arc;
use std::time::Duration;

/// How a lookup that may create obtained its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Hit,
    /// Another thread was creating the value, and this thread waited for it.
    Joined,
    Created,
}

/// The first step of a lookup that may create.
enum Start<V> {
    Hit { value: Arc<V>, bytes: u64 },
    Join(Arc<Flight<V>>),
    Create(Arc<Flight<V>>),
}

impl<K: CacheKey, V: Send + Sync + 'static> Cache<K, V> {
    /// Returns the value of a key, creating it on a miss, once for all threads that request it.
    ///
    /// # Errors
    /// Returns `Reentrant` if the creation requests its own key, and `CreationFailed` or `CreationPanicked` if the
    /// creation ran in another thread and failed there. A panic of this thread's own creation propagates to the caller;
    /// the cache stays usable, and the next call runs the creation again.
    pub fn get_or_insert_with(&self, key: &K, create: impl FnOnce() -> V) -> Result<Arc<V>, CacheError> {
        self.get_or_try_insert_with(key, || Ok(create()))
    }

    /// Returns the value of a key, creating it on a miss, once for all threads that request it.
    ///
    /// An error of the creation is returned to all of them and is not cached; the next call runs the creation again.
    ///
    /// `create` may look up other keys and other caches. If it requests its own key, directly or through creations in
    /// other threads, the lookup that closes the cycle fails with [`Reentrant`](CacheErrorKind::Reentrant) instead of a
    /// deadlock. Cycles through work that a creation hands to another thread and waits for are not detected.
    ///
    /// ```
    /// use kiln_resource_cache::{Cache, CacheError};
    ///
    /// let cache: Cache<String, usize> = Cache::builder("files").build()?;
    /// let error = cache.get_or_try_insert_with(&"missing".to_owned(), || {
    ///     Err::<usize, MyError>(MyError("no such file".into()))
    /// });
    /// assert_eq!(error, Err(MyError("no such file".into())));
    ///
    /// #[derive(Clone, Debug, PartialEq)]
    /// struct MyError(String);
    /// impl From<CacheError> for MyError {
    ///     fn from(error: CacheError) -> Self {
    ///         MyError(error.to_string())
    ///     }
    /// }
    /// # Ok::<(), CacheError>(())
    /// ```
    #[inline]
    pub fn get_or_try_insert_with<E: CreationError>(
        &self,
        key: &K,
        create: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        self.find_or_create(key, true, create).map(|(value, _)| value)
    }

    /// Does the same and also returns how the value was obtained. If `counted` is false, as in a warm-up, neither a hit
    /// nor a miss is counted.
    #[inline]
    pub(crate) fn find_or_create<E: CreationError>(
        &self,
        key: &K,
        counted: bool,
        create: impl FnOnce() -> Result<V, E>,
    ) -> Result<(Arc<V>, Found), E> {
        let hash = self.hash(key);
        // A fast hit counts and renews the entry. A warm-up does neither, so it skips the fast path.
        if counted && let Some(value) = self.fast_hit(hash, key) {
            return Ok((value, Found::Hit));
        }
        self.find_or_create_slow(hash, key, counted, create)
    }

    /// The slow path of `find_or_create`: events, expiry, sampling and creation.
    #[inline(never)]
    fn find_or_create_slow<E: CreationError>(
        &self,
        hash: u64,
        key: &K,
        counted: bool,
        create: impl FnOnce() -> Result<V, E>,
    ) -> Result<(Arc<V>, Found), E> {
        let began = self.start_if_sampled();
        match self.start(hash, key, counted) {
            Start::Hit { value, bytes } => {
                if let Some(began) = began {
                    self.record_hit_time(began);
                }
                if self.is_observed() && counted {
                    self.emit_access(key, true, bytes);
                }
                Ok((value, Found::Hit))
            }
            Start::Join(flight) => self.join(hash, key, counted, &flight),
            Start::Create(flight) => {
                let created = self.create(hash, key, counted, &flight, create)?;
                // With no lock held, because it evicts from other caches.
                self.budget.enforce();
                Ok(created)
            }
        }
    }

    fn start(&self, hash: u64, key: &K, counted: bool) -> Start<V> {
        let mut time = self.lookup_time();
        // `peek` ignores the idle limit and never returns `Stale`, so an uncounted lookup evicts stale entries first.
        if !counted {
            self.expire();
        }
        let mut own_key = None;
        loop {
            let mut shard = self.shard(hash).lock();
            let found = if counted { shard.touch(hash, key, time, &self.sample_next) } else { shard.peek(hash, key) };
            match found {
                Lookup::Hit { value, bytes } => return Start::Hit { value, bytes },
                Lookup::Stale => {
                    drop(shard);
                    // The shard is unlocked first: expiry takes the eviction lock, which comes before a shard's lock.
                    time = self.expire_for(hash, key, time);
                }
                Lookup::Miss => {
                    if let Some(flight) = shard.find_flight(hash, key) {
                        return Start::Join(Arc::clone(flight));
                    }
                    let Some(own_key) = own_key.take() else {
                        // `Clone` is user code and must not run under the lock. Look up again after it.
                        drop(shard);
                        own_key = Some(key.clone());
                        continue;
                    };
                    if counted {
                        shard.count_miss(hash);
                    }
                    let flight = Arc::new(Flight::new());
                    shard.add_flight(hash, own_key, Arc::clone(&flight));
                    return Start::Create(flight);
                }
            }
        }
    }

    #[cold]
    fn join<E: CreationError>(
        &self,
        hash: u64,
        key: &K,
        counted: bool,
        flight: &Arc<Flight<V>>,
    ) -> Result<(Arc<V>, Found), E> {
        let outcome = flight::wait(flight, self.name, key).map_err(E::from).and_then(|outcome| match outcome {
            Outcome::Created(value, bytes) => Ok((value, bytes)),
            // Each call chooses its error type. The original error is only returned if both calls use the same one.
            Outcome::Failed(error) => Err(error.downcast_ref::<E>().cloned().unwrap_or_else(|| {
                E::from(self.waiter_error(key, CacheErrorKind::CreationFailed, "failed with an error of another type"))
            })),
            Outcome::Panicked => {
                Err(E::from(self.waiter_error(key, CacheErrorKind::CreationPanicked, "panicked in another thread")))
            }
        });
        if counted {
            let mut shard = self.shard(hash).lock();
            // Counted after the wait: only the outcome decides whether this lookup was a hit or a miss.
            match &outcome {
                Ok(_) => shard.count_joined(hash),
                Err(_) => shard.count_miss(hash),
            }
            drop(shard);
            if self.is_observed() {
                let bytes = outcome.as_ref().map_or(0, |(_, bytes)| *bytes);
                self.emit_access(key, outcome.is_ok(), bytes);
            }
        }
        outcome.map(|(value, _)| (value, Found::Joined))
    }

    #[cold]
    fn create<E: CreationError>(
        &self,
        hash: u64,
        key: &K,
        counted: bool,
        flight: &Arc<Flight<V>>,
        create: impl FnOnce() -> Result<V, E>,
    ) -> Result<(Arc<V>, Found), E> {
        // Created first, so that a panic in an eviction also wakes the waiting threads.
        let mut guard = FlightGuard { cache: self, hash, key, counted, flight, is_done: false };
        // Before the creation, so that the limit holds while the new value is inserted.
        self.make_room();
        let began = self.time.now();
        let result = create();
        let create_nanos = self.time.now().saturating_sub(began);
        // Failed creations count as well: they cost their callers the same time.
        self.create_times.record(Duration::from_nanos(create_nanos));
        let (result, bytes) = match result {
            Ok(value) => {
                // The weigher is user code, so it runs before any lock is taken.
                let bytes = self.weigh(key, &value);
                let value = Arc::new(value);
                let key = key.clone();
                let incoming = Incoming { hash, key, value: &value, bytes, create_nanos };
                let mut evicted = Evicted::default();
                // The flight is replaced by its entry under one shard lock, so that no other thread finds neither of
                // them and starts a second creation.
                let mut state = self.eviction.lock();
                let replaced = self.put(&mut state, incoming, Some(flight), &mut evicted);
                drop(state);
                drop(replaced);
                guard.complete(Outcome::Created(Arc::clone(&value), bytes));
                // After `complete`: the `Drop` of an evicted value may panic, which must not fail this creation.
                self.finish(evicted);
                (Ok((value, Found::Created)), bytes)
            }
            Err(error) => {
                // Removed before the waiting threads wake: one that retries at once must start a new creation and not
                // join the failed one. The guard's drop keeps the same order.
                self.remove_flight(hash, flight);
                guard.complete(Outcome::Failed(Arc::new(error.clone())));
                (Err(error), 0)
            }
        };
        if self.is_observed() && counted {
            self.emit_access(key, false, bytes);
        }
        result
    }

    /// Removes a flight from its shard. Its key is dropped outside of the lock, because `Drop` is user code.
    fn remove_flight(&self, hash: u64, flight: &Arc<Flight<V>>) {
        let key = self.shard(hash).lock().take_flight(flight);
        drop(key);
    }

    fn waiter_error(&self, key: &K, kind: CacheErrorKind, what: &str) -> CacheError {
        CacheError::new(kind, format!("cache `{}`: the creation of {key:?} {what}", self.name))
    }
}

/// Completes a flight on every path: if the creation unwinds, the waiting threads receive `Panicked`.
struct FlightGuard<'a, K: CacheKey, V: Send + Sync + 'static> {
    cache: &'a Cache<K, V>,
    hash: u64,
    key: &'a K,
    counted: bool,
    flight: &'a Arc<Flight<V>>,
    is_done: bool,
}

impl<K: CacheKey, V: Send + Sync + 'static> FlightGuard<'_, K, V> {
    fn complete(&mut self, outcome: Outcome<V>) {
        self.is_done = true;
        self.flight.complete(outcome);
    }
}

impl<K: CacheKey, V: Send + Sync + 'static> Drop for FlightGuard<'_, K, V> {
    fn drop(&mut self) {
        if !self.is_done {
            self.cache.remove_flight(self.hash, self.flight);
            self.flight.complete(Outcome::Panicked);
            if self.counted {
                self.cache.emit_access(self.key, false, 0);
            }
        }
    }
}
