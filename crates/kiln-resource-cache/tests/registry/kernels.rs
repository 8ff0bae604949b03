//! Kernel types and slots that the tests share.

use kiln_resource_cache::{CacheError, CacheRegistry, CacheRegistrySlot, CacheableKernel, MockClock};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// A resource that reports a number of bytes. Parameters and key are both `(id, bytes)`.
#[derive(Debug, PartialEq)]
pub(crate) struct Blob {
    pub(crate) id: char,
    pub(crate) bytes: u64,
}

/// Declares a kernel type whose resources are blobs.
macro_rules! blob_kernel {
    ($kernel:ident, $name:literal) => {
        pub(crate) struct $kernel;

        impl CacheableKernel for $kernel {
            type Key = (char, u64);
            type CachedResource = Blob;
            type Params = (char, u64);
            type Device = ();
            type Error = CacheError;
            const CACHE_NAME: &'static str = $name;

            fn create_cache_key(params: &(char, u64)) -> (char, u64) {
                *params
            }

            fn create_cached_resource(&(id, bytes): &(char, u64), _: Option<&()>) -> Result<Blob, CacheError> {
                Ok(Blob { id, bytes })
            }

            fn resource_bytes(blob: &Blob) -> u64 {
                blob.bytes
            }
        }
    };
}

blob_kernel!(Plans, "plans");
blob_kernel!(Tables, "tables");
blob_kernel!(Atlases, "atlases");

/// Looks up or creates blobs in this order.
pub(crate) fn create<K>(registry: &CacheRegistry, params: &[(char, u64)])
where
    K: CacheableKernel<Device = (), Params = (char, u64), CachedResource = Blob, Error = CacheError>,
{
    for &(id, bytes) in params {
        let blob = registry.get_or_create::<K>(&(id, bytes), None).unwrap();
        assert_eq!(*blob, Blob { id, bytes });
    }
}

/// Returns the ids of the cached blobs. Counts as lookups, so call it last.
pub(crate) fn kept<K>(registry: &CacheRegistry, params: &[(char, u64)]) -> String
where
    K: CacheableKernel<Device = (), Params = (char, u64), CachedResource = Blob>,
{
    params.iter().filter(|params| registry.get::<K>(params).is_some()).map(|(id, _)| id).collect()
}

/// A creation advances the clock, which is the device, by 4 ms; the size of a resource is in its key.
pub(crate) struct Timed;

impl CacheableKernel for Timed {
    type Key = (char, u64);
    type CachedResource = u64;
    type Params = (char, u64);
    type Device = MockClock;
    type Error = Fault;
    const CACHE_NAME: &'static str = "timed";

    fn create_cache_key(params: &(char, u64)) -> (char, u64) {
        *params
    }

    fn create_cached_resource(&(_, bytes): &(char, u64), clock: Option<&MockClock>) -> Result<u64, Fault> {
        clock.ok_or(Fault::NoDevice)?.advance(Duration::from_millis(4));
        Ok(bytes)
    }

    fn resource_bytes(bytes: &u64) -> u64 {
        *bytes
    }
}

/// Creation of odd keys fails.
pub(crate) struct EvenOnly;

impl CacheableKernel for EvenOnly {
    type Key = u32;
    type CachedResource = u32;
    type Params = u32;
    type Device = ();
    type Error = Fault;
    const CACHE_NAME: &'static str = "even";

    fn create_cache_key(params: &u32) -> u32 {
        *params
    }

    fn create_cached_resource(key: &u32, _: Option<&()>) -> Result<u32, Fault> {
        if key.is_multiple_of(2) { Ok(key / 2) } else { Err(Fault::Odd(*key)) }
    }
}

/// An error type other than `CacheError`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    Cache(CacheError),
    NoDevice,
    Odd(u32),
}

impl From<CacheError> for Fault {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

/// A slot that reports a number of bytes and counts how often it was cleared. Each `N` is a separate slot.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Scratch<const N: usize> {
    pub(crate) bytes: u64,
    pub(crate) clears: u32,
}

impl<const N: usize> CacheRegistrySlot for Scratch<N> {
    fn clear_slot(&mut self) {
        self.bytes = 0;
        self.clears += 1;
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Makes slot `N` report this many bytes.
pub(crate) fn fill_slot<const N: usize>(registry: &CacheRegistry, bytes: u64) {
    registry.slot_mut(Scratch::<N>::default).bytes = bytes;
}

/// Returns how often slot `N` was cleared.
pub(crate) fn clears<const N: usize>(registry: &CacheRegistry) -> u32 {
    registry.slot_mut(Scratch::<N>::default).clears
}

/// Creates a registry with a byte budget.
pub(crate) fn with_budget(bytes: u64) -> CacheRegistry {
    CacheRegistry::builder().byte_budget(bytes).build().unwrap()
}

/// Creates a registry with a mock clock, which is also its device.
pub(crate) fn on_mock_clock() -> (CacheRegistry<MockClock>, MockClock) {
    let clock = MockClock::new();
    (CacheRegistry::builder().clock(clock.clone()).device(clock.clone()).build().unwrap(), clock)
}

/// Returns the cached resource, which must exist.
pub(crate) fn cached<K: CacheableKernel<Device = ()>>(
    registry: &CacheRegistry,
    params: &K::Params,
) -> Arc<K::CachedResource> {
    registry.get::<K>(params).expect("the test created it before")
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
