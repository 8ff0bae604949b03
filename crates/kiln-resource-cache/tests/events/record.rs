//! Sinks and kernels that the tests share.

use kiln_resource_cache::events::{CacheEvent, EventSink};
use kiln_resource_cache::{Cache, CacheError, CacheableKernel};
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A sink that keeps all events. Clones share one list.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<CacheEvent>>>);

impl EventSink for Recorder {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        self.0.lock().unwrap().push(event.clone());
        Ok(())
    }
}

impl Recorder {
    /// Returns and removes all events so far.
    pub(crate) fn take(&self) -> Vec<CacheEvent> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Returns and removes all events so far, as lines.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        self.take().iter().map(|event| event.to_json_line().unwrap()).collect()
    }
}

/// A kernel type that maps `u64` to a resource of that many bytes; 13 cannot be created.
pub(crate) struct Plans;

/// The same as `Plans`, in another cache.
pub(crate) struct Tables;

macro_rules! weighed_kernel {
    ($kernel:ident, $name:literal) => {
        impl CacheableKernel for $kernel {
            type Key = u64;
            type CachedResource = u64;
            type Params = u64;
            type Device = ();
            type Error = Fault;
            const CACHE_NAME: &'static str = $name;

            fn create_cache_key(params: &u64) -> u64 {
                *params
            }

            fn create_cached_resource(key: &u64, _: Option<&()>) -> Result<u64, Fault> {
                if *key == 13 { Err(Fault::Unlucky) } else { Ok(*key) }
            }

            fn resource_bytes(resource: &u64) -> u64 {
                *resource
            }
        }
    };
}

weighed_kernel!(Plans, "plans");
weighed_kernel!(Tables, "tables");

/// The error of creations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    Unlucky,
    Cache(CacheError),
}

impl From<CacheError> for Fault {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

/// A cache of numbers, each with its value as its bytes, with one sink and practically no summaries.
pub(crate) fn quiet_cache(sink: impl EventSink) -> Cache<u64, u64> {
    Cache::builder("plans").weigher(|_, bytes| *bytes).sink(sink).summary_interval(u64::MAX).build().unwrap()
}

/// Looks up or creates each key in turn.
pub(crate) fn ask(cache: &Cache<u64, u64>, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        assert_eq!(*cache.get_or_insert_with(&key, || key).unwrap(), key);
    }
}

/// Returns the key of an access line of a cache of numbers; `None` for other events.
pub(crate) fn key_of_line(line: &str) -> Option<u64> {
    let event: CacheEvent = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    key_of(&event)
}

/// Returns the key of an access to a cache of numbers; `None` for other events.
pub(crate) fn key_of(event: &CacheEvent) -> Option<u64> {
    let CacheEvent::ResourceCacheAccess { cache_key, .. } = event else { return None };
    Some(cache_key.split(':').nth(1).unwrap().parse().unwrap())
}

/// Runs a test and fails if it hangs.
pub(crate) fn must_end(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        drop(done);
    });
    assert_ne!(ended.recv_timeout(Duration::from_secs(20)), Err::<(), _>(RecvTimeoutError::Timeout), "it hangs");
    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
}
