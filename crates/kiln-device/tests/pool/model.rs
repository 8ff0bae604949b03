//! Random sequences of pool operations, checked against a model.

use crate::fixture::Rig;
use kiln_device::memory::{RawBlock, RawMemory};
use kiln_device::pool::{AllocationStrategy, FineClasses};
use kiln_device::{Buffer, BufferOptions, CommandList, NullDevice, PoolConfig, Usage};
use kiln_ir::ErrorKind;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::{Arc, Weak};
use std::time::Duration;

const BUDGET: u64 = 4 << 20;

#[derive(Clone, Debug)]
enum Operation {
    Allocate { bytes: u64, upload: bool },
    Clone(usize),
    Drop(usize),
    Submit(usize),
    Complete,
    Cleanup(bool),
    Clear,
    Defragment,
    Maintain(u64),
    PreAllocate(u64),
    Configure { pooling: bool, max_cached: u32, adaptive: bool, budget: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let bytes = prop_oneof![6 => 0_u64..3_000, 3 => 3_000_u64..100_000, 1 => 100_000_u64..2_000_000];
    prop_oneof![
        12 => (bytes, any::<bool>()).prop_map(|(bytes, upload)| Operation::Allocate { bytes, upload }),
        2 => any::<usize>().prop_map(Operation::Clone),
        9 => any::<usize>().prop_map(Operation::Drop),
        4 => any::<usize>().prop_map(Operation::Submit),
        2 => Just(Operation::Complete),
        1 => any::<bool>().prop_map(Operation::Cleanup),
        1 => Just(Operation::Clear),
        1 => Just(Operation::Defragment),
        2 => (1_u64..90).prop_map(Operation::Maintain),
        1 => (0_u64..5_000).prop_map(Operation::PreAllocate),
        1 => (prop::bool::weighted(0.8), 1_u32..6, any::<bool>(), 1_u64..4).prop_map(
            |(pooling, max_cached, adaptive, budget)| Operation::Configure { pooling, max_cached, adaptive, budget }
        ),
    ]
}

/// A held buffer: handles, its block, its pattern, the newest submission that uses it.
struct Held {
    handles: Vec<Buffer>,
    block_bytes: u64,
    seed: u8,
    last_use: u64,
}

/// Freed bytes that submitted work may still use.
struct Busy {
    raw: Weak<RawBlock>,
    start: u64,
    end: u64,
    submission: u64,
}

struct Model {
    rig: Rig,
    /// The target of copies; held all the time.
    sink: Buffer,
    classes: Vec<u64>,
    held: Vec<Held>,
    busy: Vec<Busy>,
    served: u64,
    peak_in_use: u64,
    next_seed: u8,
}

impl Model {
    fn new(divisible: bool) -> Self {
        let null = NullDevice::new().with_properties(|properties| properties.divisible = divisible);
        let config = PoolConfig {
            budget_bytes: Some(BUDGET),
            max_cached_per_class: 3,
            min_kept_per_class: 1,
            max_adaptive_cached: 9,
            ..PoolConfig::default()
        };
        let rig = Rig::with(null.manual_completion(), config);
        let sink = rig.buffer(256);
        let classes = FineClasses.class_bytes();
        let (held, busy) = (Vec::new(), Vec::new());
        Self { rig, sink, classes, held, busy, served: 1, peak_in_use: 256, next_seed: 0 }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Allocate { bytes, upload } => {
                self.allocate(bytes, if upload { Usage::Upload } else { Usage::Shared });
            }
            Operation::Clone(at) => {
                if let Some(held) = self.pick(at) {
                    held.handles.push(held.handles[0].clone());
                }
            }
            Operation::Drop(at) => self.drop_handle(at),
            Operation::Submit(at) => self.submit(at),
            Operation::Complete => self.rig.null.complete(u64::MAX),
            Operation::Cleanup(aggressive) => drop(self.rig.pool.cleanup(aggressive)),
            Operation::Clear => {
                self.rig.pool.clear().unwrap();
                assert_eq!(self.rig.numbers().bytes_cached, 0);
            }
            Operation::Defragment => drop(self.rig.pool.defragment().unwrap()),
            Operation::Maintain(seconds) => {
                self.rig.clock.advance(Duration::from_secs(seconds));
                self.rig.pool.maintain();
            }
            Operation::PreAllocate(bytes) => drop(self.rig.pool.pre_allocate(bytes, 1)),
            Operation::Configure { pooling, max_cached, adaptive, budget } => self.rig.configure(|config| {
                config.pooling = pooling;
                config.max_cached_per_class = max_cached;
                config.adaptive = adaptive;
                config.budget_bytes = Some(BUDGET * budget / 3);
            }),
        }
        self.check();
    }

    fn pick(&mut self, at: usize) -> Option<&mut Held> {
        let len = self.held.len();
        if len == 0 { None } else { self.held.get_mut(at % len) }
    }

    /// Returns the size of the block that a request must get: its class, or whole pages if that does not fit the
    /// budget.
    fn block_bytes(&self, bytes: u64) -> u64 {
        let budget = self.rig.pool.statistics().budget_bytes;
        let class = self.classes.iter().copied().find(|&class| class >= bytes).unwrap();
        if class <= budget || bytes > budget {
            return class;
        }
        let pages = bytes.next_multiple_of(4096);
        if pages <= budget { pages } else { bytes.next_multiple_of(4) }
    }

    fn allocate(&mut self, bytes: u64, usage: Usage) {
        let block_bytes = self.block_bytes(bytes);
        let buffer = match self.rig.device.buffer_with(BufferOptions::new(bytes).usage(usage)) {
            Ok(buffer) => buffer,
            Err(error) => return self.check_refusal(block_bytes, error.kind()),
        };
        assert!(buffer.bytes() == bytes && buffer.usage() == usage);
        let (raw, start) = buffer.access().raw();
        let completed = self.rig.null.completed();
        self.busy.retain(|busy| busy.submission > completed && busy.raw.strong_count() > 0);
        for busy in &self.busy {
            let same = std::ptr::eq(busy.raw.as_ptr(), Arc::as_ptr(&raw));
            let apart = start >= busy.end || busy.start >= start + block_bytes;
            assert!(!same || apart, "{bytes} bytes at {start} while submission {} may touch them", busy.submission);
        }
        drop(raw);
        self.next_seed = self.next_seed.wrapping_add(1);
        buffer.write(&pattern(self.next_seed, bytes)).unwrap();
        self.held.push(Held { handles: vec![buffer], block_bytes, seed: self.next_seed, last_use: 0 });
        self.served += 1;
    }

    /// A request is refused only if it cannot be served, and only after all free memory was released.
    fn check_refusal(&self, block_bytes: u64, kind: ErrorKind) {
        let numbers = self.rig.numbers();
        match kind {
            ErrorKind::TooLarge => assert!(block_bytes > numbers.budget_bytes),
            ErrorKind::OutOfMemory => {
                assert!(
                    numbers.bytes_reserved + block_bytes > numbers.budget_bytes,
                    "there was room for {block_bytes}"
                );
                assert_eq!(numbers.bytes_cached, 0, "free blocks are released first");
            }
            kind => panic!("unexpected {kind:?}"),
        }
    }

    /// Copies the first word of a buffer to the sink.
    fn submit(&mut self, at: usize) {
        let (rig, sink) = (&self.rig, self.sink.slice(..4).unwrap());
        let len = self.held.len();
        let Some(held) = self.held.get_mut(at.checked_rem(len).unwrap_or(0)) else { return };
        let Ok(word) = held.handles[0].slice(..4) else { return };
        let mut commands = CommandList::new();
        commands.copy(&word, &sink).unwrap();
        held.last_use = rig.device.submit(commands).unwrap();
    }

    fn drop_handle(&mut self, at: usize) {
        let (completed, len) = (self.rig.null.completed(), self.held.len());
        if len == 0 {
            return;
        }
        let held = &mut self.held[at % len];
        if held.handles.len() > 1 {
            held.handles.pop();
            return;
        }
        let held = self.held.swap_remove(at % len);
        let buffer = &held.handles[0];
        if held.last_use > completed {
            let (raw, start) = buffer.access().raw();
            let (raw, end) = (Arc::downgrade(&raw), start + held.block_bytes);
            self.busy.push(Busy { raw, start, end, submission: held.last_use });
        } else {
            assert_eq!(
                buffer.read().unwrap(),
                pattern(held.seed, buffer.bytes()),
                "the bytes of a held buffer changed"
            );
        }
    }

    fn check(&mut self) {
        let numbers = self.rig.numbers();
        let in_use: u64 = 256 + self.held.iter().map(|held| held.block_bytes).sum::<u64>();
        let asked: u64 = 256 + self.held.iter().map(|held| held.handles[0].bytes()).sum::<u64>();
        self.peak_in_use = self.peak_in_use.max(in_use);
        assert_eq!((numbers.live_buffers, numbers.bytes_in_use), (self.held.len() as u64 + 1, in_use));
        assert_eq!((numbers.padding_bytes, numbers.peak_bytes), (in_use - asked, self.peak_in_use));
        assert_eq!(numbers.allocation_count, self.served);
        let sources = numbers.reuse_count + numbers.carved_count + numbers.driver_request_count;
        assert_eq!(sources, self.served, "every request was served by something");
        assert!(numbers.bytes_pending <= numbers.bytes_cached);
        let config = self.rig.pool.config();
        let limit = if config.adaptive { config.max_adaptive_cached } else { config.max_cached_per_class };
        let limit = if config.pooling { limit } else { 0 };
        for class in &numbers.classes {
            assert!(class.cached_blocks <= u64::from(limit), "{class:?}");
        }
    }

    fn finish(mut self) {
        for held in &self.held {
            let bytes = held.handles[0].read().unwrap();
            assert_eq!(bytes, pattern(held.seed, bytes.len() as u64), "the bytes of a held buffer changed");
        }
        self.held.clear();
        let Self { rig, sink, .. } = self;
        drop(sink);
        rig.pool.clear().unwrap();
        let numbers = rig.numbers();
        assert_eq!((numbers.bytes_reserved, numbers.live_buffers), (0, 0));
        assert_eq!(numbers.driver_allocation_count, numbers.driver_release_count);
        assert!(rig.pool.report().holders.is_empty());
    }
}

fn pattern(seed: u8, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Patterns in held buffers stay, numbers add up, the budget and the limits hold, nothing leaks, and no bytes are
    /// reused while submitted work may still use them.
    #[test]
    fn a_pool_agrees_with_the_model(
        divisible in any::<bool>(),
        operations in vec(operation(), 1..150),
    ) {
        let mut model = Model::new(divisible);
        for operation in &operations {
            model.apply(operation);
        }
        model.finish();
    }
}
