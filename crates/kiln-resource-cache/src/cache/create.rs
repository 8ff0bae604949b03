//! The miss path: run the creation once, keep its result, wake those who wait.

use super::evict::Incoming;
use super::flight::{self, Flight, Outcome};
use super::shard::Lookup;
use super::{Cache, Evicted};
use crate::error::{CacheError, CacheErrorKind};
use crate::kernel::{CacheKey, CreationError};
use std::sync::Arc;
use std::time::Duration;

/// How `get_or_create` came by its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Hit,
    /// Another thread was creating it; this one waited.
    Joined,
    Created,
}

/// Where a lookup that may create starts from.
enum Start<V> {
    Hit { value: Arc<V>, bytes: u64 },
    Join(Arc<Flight<V>>),
    Create(Arc<Flight<V>>),
}

impl<K: CacheKey, V: Send + Sync + 'static> Cache<K, V> {
    /// The value of a key; created on a miss, once for all threads that ask.
    ///
    /// Fails only if the creation asks for its own key, or if it ran in another thread and failed or panicked there. A panic in
    /// this thread's own creation passes through to the caller; the cache stays usable and the next call tries again.
    pub fn get_or_insert_with(&self, key: &K, create: impl FnOnce() -> V) -> Result<Arc<V>, CacheError> {
        self.get_or_try_insert_with(key, || Ok(create()))
    }

    /// The value of a key; created on a miss, once for all threads that ask. An error of the creation reaches all of
    /// them, is not kept, and the next call tries again.
    ///
    /// `create` may look up other keys and other caches. If it comes back to its own key, directly or through
    /// creations in other threads, the lookup that closes the circle fails with
    /// [`Reentrant`](CacheErrorKind::Reentrant) instead of waiting for ever. (A creation that blocks on work which it
    /// handed to another thread is invisible here.)
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

    /// As above, and tells how the value came about. A warm-up is not `counted`: nobody asked for the value yet.
    #[inline]
    pub(crate) fn find_or_create<E: CreationError>(
        &self,
        key: &K,
        counted: bool,
        create: impl FnOnce() -> Result<V, E>,
    ) -> Result<(Arc<V>, Found), E> {
        let hash = self.hash(key);
        if counted && let Some(value) = self.quick_hit(hash, key) {
            return Ok((value, Found::Hit));
        }
        self.find_or_create_with_care(hash, key, counted, create)
    }

    /// The rest of `find_or_create`.
    #[inline(never)]
    fn find_or_create_with_care<E: CreationError>(
        &self,
        hash: u64,
        key: &K,
        counted: bool,
        create: impl FnOnce() -> Result<V, E>,
    ) -> Result<(Arc<V>, Found), E> {
        let began = self.sampled_start();
        match self.start(hash, key, counted) {
            Start::Hit { value, bytes } => {
                if let Some(began) = began {
                    self.measured_hit(began);
                }
                if self.is_heard() && counted {
                    self.tell_access(key, true, bytes);
                }
                Ok((value, Found::Hit))
            }
            Start::Join(flight) => self.join(hash, key, counted, &flight),
            Start::Create(flight) => {
                let created = self.create(hash, key, counted, &flight, create)?;
                self.budget.enforce();
                Ok(created)
            }
        }
    }

    fn start(&self, hash: u64, key: &K, counted: bool) -> Start<V> {
        let mut time = self.lookup_time();
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
                    time = self.expire_for(hash, key, time);
                }
                Lookup::Miss => {
                    if let Some(flight) = shard.find_flight(hash, key) {
                        return Start::Join(Arc::clone(flight));
                    }
                    let Some(own_key) = own_key.take() else {
                        // To clone is the user's code: not under the lock.
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
            Outcome::Failed(error) => Err(error.downcast_ref::<E>().cloned().unwrap_or_else(|| {
                E::from(self.waiter_error(key, CacheErrorKind::CreationFailed, "failed with an error of another type"))
            })),
            Outcome::Panicked => {
                Err(E::from(self.waiter_error(key, CacheErrorKind::CreationPanicked, "panicked in another thread")))
            }
        });
        if counted {
            let mut shard = self.shard(hash).lock();
            match &outcome {
                Ok(_) => shard.count_joined(hash),
                Err(_) => shard.count_miss(hash),
            }
            drop(shard);
            if self.is_heard() {
                let bytes = outcome.as_ref().map_or(0, |(_, bytes)| *bytes);
                self.tell_access(key, outcome.is_ok(), bytes);
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
        let mut landing = Landing { cache: self, hash, key, counted, flight, landed: false };
        self.make_room();
        let began = self.time.now();
        let result = create();
        let create_nanos = self.time.now().saturating_sub(began);
        self.create_times.record(Duration::from_nanos(create_nanos));
        let (result, bytes) = match result {
            Ok(value) => {
                let bytes = self.weigh(key, &value);
                let value = Arc::new(value);
                let key = key.clone();
                let incoming = Incoming { hash, key, value: &value, bytes, create_nanos };
                let mut gone = Evicted::default();
                // The flight and its entry change places under one lock, so that no other thread sees neither of them.
                let mut gate = self.gate.lock();
                let replaced = self.put(&mut gate, incoming, Some(flight), &mut gone);
                drop(gate);
                drop(replaced);
                landing.land(Outcome::Created(Arc::clone(&value), bytes));
                // After the landing: the drop of what made way may panic, and that is not this creation's fault.
                self.finish(gone);
                (Ok((value, Found::Created)), bytes)
            }
            Err(error) => {
                self.forget(hash, flight);
                landing.land(Outcome::Failed(Arc::new(error.clone())));
                (Err(error), 0)
            }
        };
        if self.is_heard() && counted {
            self.tell_access(key, false, bytes);
        }
        result
    }

    fn forget(&self, hash: u64, flight: &Arc<Flight<V>>) {
        let key = self.shard(hash).lock().take_flight(flight);
        drop(key);
    }

    fn waiter_error(&self, key: &K, kind: CacheErrorKind, what: &str) -> CacheError {
        CacheError::new(kind, format!("cache `{}`: the creation of {key:?} {what}", self.name))
    }
}

/// Lands a flight whatever happens to the creation: if it unwinds, those who wait learn that it panicked.
struct Landing<'a, K: CacheKey, V: Send + Sync + 'static> {
    cache: &'a Cache<K, V>,
    hash: u64,
    key: &'a K,
    counted: bool,
    flight: &'a Arc<Flight<V>>,
    landed: bool,
}

impl<K: CacheKey, V: Send + Sync + 'static> Landing<'_, K, V> {
    fn land(&mut self, outcome: Outcome<V>) {
        self.landed = true;
        self.flight.land(outcome);
    }
}

impl<K: CacheKey, V: Send + Sync + 'static> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        if !self.landed {
            self.cache.forget(self.hash, self.flight);
            self.flight.land(Outcome::Panicked);
            if self.counted {
                self.cache.tell_access(self.key, false, 0);
            }
        }
    }
}
