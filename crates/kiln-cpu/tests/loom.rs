//! Model-checked threads: all interleavings of one or two callers with one or two workers.
//!
//! Runs with `RUSTFLAGS="--cfg loom" cargo test -p kiln-cpu --release --test loom`, which `cargo xtask test` does.
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kiln_cpu::Threads;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Explores all schedules with at most three forced switches.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// A number that the model checker watches: access from two threads without order between them is a failure.
struct Watched(UnsafeCell<usize>);

// SAFETY: the model checker reports every access that would not be sound.
unsafe impl Sync for Watched {}

impl Watched {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn add(&self, value: usize) {
        // SAFETY: the model checker reports every other access that is not ordered with this one.
        self.0.with_mut(|number| unsafe { *number += value });
    }

    fn get(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }
}

/// Runs a loop, and checks that each part ran once, that the caller sees what it wrote, and that no part runs later.
fn check_loop(threads: &Threads, parts: usize) {
    let written: Vec<Watched> = (0..parts).map(|_| Watched::new()).collect();
    let has_returned = AtomicBool::new(false);
    let task = |part: usize| {
        assert!(!has_returned.load(Ordering::Relaxed), "a part ran after the loop");
        written[part].add(part + 1);
    };
    threads.run(parts, &task).unwrap();
    has_returned.store(true, Ordering::Relaxed);
    for (part, written) in written.iter().enumerate() {
        assert_eq!(written.get(), part + 1);
    }
}

#[test]
fn a_loop_runs_each_part_once_and_the_caller_sees_the_result() {
    model(|| check_loop(&Threads::new(2).unwrap(), 3));
}

#[test]
fn three_threads_share_a_loop() {
    model(|| check_loop(&Threads::new(3).unwrap(), 2));
}

#[test]
fn a_second_loop_finds_the_worker_in_every_state() {
    model(|| {
        let threads = Threads::new(2).unwrap();
        check_loop(&threads, 2);
        check_loop(&threads, 2);
    });
}

#[test]
fn loops_of_two_callers_are_both_served() {
    model(|| {
        let threads = Arc::new(Threads::new(2).unwrap());
        let other = {
            let threads = Arc::clone(&threads);
            thread::spawn(move || check_loop(&threads, 2))
        };
        check_loop(&threads, 2);
        other.join().unwrap();
    });
}

#[test]
fn a_panic_reaches_the_caller_and_leaves_the_threads_usable() {
    model(|| {
        let threads = Threads::new(2).unwrap();
        let error = threads.run(2, &|part| {
            if part == 1 {
                std::panic::resume_unwind(Box::new("planted"));
            }
        });
        assert!(error.unwrap_err().message().ends_with("planted"));
        check_loop(&threads, 2);
    });
}

#[test]
fn a_loop_inside_of_a_part_ends() {
    model(|| {
        let threads = Threads::new(2).unwrap();
        let calls = AtomicUsize::new(0);
        let inner = |_| {
            calls.fetch_add(1, Ordering::Relaxed);
        };
        threads.run(2, &|_| threads.run(2, &inner).unwrap()).unwrap();
        assert_eq!(calls.into_inner(), 4);
    });
}
