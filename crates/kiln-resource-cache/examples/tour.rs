//! A tour of kiln-resource-cache: a few seconds of a realistic workload, and the reports of the cache.
//!
//! `cargo run --release -p kiln-resource-cache --example tour`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use kiln_resource_cache::events::{CacheEvent, ChannelSink};
use kiln_resource_cache::{CacheError, CacheRegistry, CacheableKernel, EvictionPolicy};
use std::thread;
use std::time::{Duration, Instant};

/// A stand-in for a compiler whose output is large and takes milliseconds to create.
struct CompiledKernel;

impl CacheableKernel for CompiledKernel {
    type Key = u32;
    type CachedResource = Vec<u8>;
    type Params = u32;
    type Device = ();
    type Error = CacheError;
    const CACHE_NAME: &'static str = "compiled_kernels";

    fn create_cache_key(shape: &u32) -> u32 {
        *shape
    }

    fn create_cached_resource(shape: &u32, _device: Option<&()>) -> Result<Vec<u8>, CacheError> {
        thread::sleep(Duration::from_millis(2));
        Ok(vec![(*shape % 251) as u8; 64 << 10])
    }

    fn resource_bytes(code: &Vec<u8>) -> u64 {
        code.len() as u64
    }
}

fn main() -> Result<(), CacheError> {
    println!("A kernel takes 2 ms to compile. Eight threads ask for the same one at once:");
    let registry = CacheRegistry::<()>::new();
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| registry.get_or_create::<CompiledKernel>(&0, None));
        }
    });
    let metrics = registry.metrics::<CompiledKernel>().unwrap_or_default();
    println!("  {} creation(s), {} served, {:.1?} in all\n", metrics.misses, metrics.hits, began.elapsed());

    println!("40 shapes in turn, ten times, with room for 32 (the least recently used is evicted):");
    ten_rounds_over_40_shapes(EvictionPolicy::size_limited_lru(32))?;
    println!("The same with room for 48, as advised:");
    let registry = ten_rounds_over_40_shapes(EvictionPolicy::size_limited_lru(48))?;

    println!("Memory by holder, and a trim:");
    println!("{}", registry.report());
    let trim = registry.trim(1 << 20);
    println!("trim to 1 MiB: {} bytes freed, {} entries evicted\n", trim.bytes_freed(), trim.entries_evicted);

    println!("The events of three lookups with room for one, as lines of a JSON file:");
    let (sink, events) = ChannelSink::new(64);
    let observed = CacheRegistry::<()>::builder().sink(sink).build()?;
    observed.set_eviction_policy::<CompiledKernel>(EvictionPolicy::size_limited_lru(1))?;
    for shape in [1, 1, 2] {
        observed.get_or_create::<CompiledKernel>(&shape, None)?;
    }
    for line in events.try_iter().filter_map(|event: CacheEvent| event.to_json_line().ok()) {
        println!("  {line}");
    }
    Ok(())
}

fn ten_rounds_over_40_shapes(policy: EvictionPolicy) -> Result<CacheRegistry<()>, CacheError> {
    let registry = CacheRegistry::<()>::new();
    registry.set_eviction_policy::<CompiledKernel>(policy)?;
    for shape in (0..10).flat_map(|_| 0..40) {
        registry.get_or_create::<CompiledKernel>(&shape, None)?;
    }
    println!("  {}", registry.metrics::<CompiledKernel>().unwrap_or_default());
    for advice in registry.advice() {
        println!("  advice: {advice}");
    }
    println!();
    Ok(registry)
}
