//! A hit does not allocate while no sink is attached; counted per thread by a global allocator.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use kiln_resource_cache::{Cache, CacheError, CacheRegistry, CacheableKernel, EvictionPolicy};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HITS: u32 = 10_000;

/// A size at which every hit is recorded, and one at which hits are sampled.
const SIZES: [u32; 2] = [4, 1000];

fn policies() -> [EvictionPolicy; 3] {
    [
        EvictionPolicy::size_limited_lru(1000),
        EvictionPolicy::fifo().with_max_entries(1000),
        EvictionPolicy::idle_timeout(Duration::from_secs(3600)),
    ]
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The system's allocator, counting the calls of each thread.
struct Counting;

thread_local! {
    // Constant and without a destructor, so that reading it does not allocate.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to `System` unchanged; the counter does not use the heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`, and every block came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `realloc`, and every block came from `System`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// A kernel type that maps numbers to numbers.
struct Doubled;

impl CacheableKernel for Doubled {
    type Key = u32;
    type CachedResource = u32;
    type Params = u32;
    type Device = ();
    type Error = CacheError;
    const CACHE_NAME: &'static str = "doubled";

    fn create_cache_key(params: &u32) -> u32 {
        *params
    }

    fn create_cached_resource(key: &u32, _: Option<&()>) -> Result<u32, CacheError> {
        Ok(key * 2)
    }
}

// Without a working counter the tests below could not fail.
#[test]
fn the_counter_sees_every_allocation_of_its_own_thread_and_no_other() {
    let allocate = |count: u32| (0..count).for_each(|at| drop(std::hint::black_box(Box::new(at))));
    let (go, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            wait_for(&go);
            let seen = allocations(|| allocate(100));
            done.store(true, Ordering::SeqCst);
            seen
        });
        let own = allocations(|| {
            allocate(1);
            go.store(true, Ordering::SeqCst);
            wait_for(&done);
        });
        assert_eq!((own, other.join().unwrap()), (1, 100));
    });
}

#[test]
fn hits_through_get_allocate_nothing() {
    for_each_cache(|cache, key| assert_eq!(cache.get(&key).as_deref(), Some(&(key * 2))));
}

#[test]
fn hits_through_get_or_insert_with_allocate_nothing() {
    for_each_cache(|cache, key| {
        let value = cache.get_or_insert_with(&key, || unreachable!("the key is cached"));
        assert_eq!(value.as_deref(), Ok(&(key * 2)));
    });
}

#[test]
fn hits_through_a_registry_allocate_nothing() {
    for policy in policies() {
        for size in SIZES {
            let registry: CacheRegistry = CacheRegistry::builder().byte_budget(1 << 20).build().unwrap();
            registry.set_eviction_policy::<Doubled>(policy).unwrap();
            assert_eq!(registry.warm::<Doubled>(0..size).created, size as usize);
            assert_hits_allocate_nothing(&policy, size, |key| {
                assert_eq!(registry.get_or_create::<Doubled>(&key, None).as_deref(), Ok(&(key * 2)));
            });
            assert_eq!(registry.metrics::<Doubled>().unwrap().misses, 0);
        }
    }
}

/// Runs the hit on caches of every policy and size.
fn for_each_cache(hit: fn(&Cache<u32, u32>, u32)) {
    for policy in policies() {
        for size in SIZES {
            let cache: Cache<u32, u32> = Cache::builder("doubled").policy(policy).build().unwrap();
            for key in 0..size {
                cache.insert(key, key * 2);
            }
            assert_hits_allocate_nothing(&policy, size, |key| hit(&cache, key));
            assert_eq!(cache.metrics().misses, 0);
        }
    }
}

/// Warms up with one round of all keys, then counts on this thread and on a second one.
fn assert_hits_allocate_nothing(policy: &EvictionPolicy, size: u32, hit: impl Fn(u32) + Sync) {
    let count = || {
        (0..size).for_each(&hit);
        allocations(|| (0..HITS).for_each(|at| hit(at.wrapping_mul(7919) % size)))
    };
    assert_eq!(count(), 0, "{policy:?}, {size} entries, first thread");
    let second = std::thread::scope(|scope| scope.spawn(count).join().unwrap());
    assert_eq!(second, 0, "{policy:?}, {size} entries, second thread");
}

/// Returns the allocations of this thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}
