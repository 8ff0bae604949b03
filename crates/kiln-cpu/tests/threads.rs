//! Threads under load: what the model checker cannot cover, with real threads and many loops.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kiln_cpu::Threads;
use kiln_ir::ErrorKind;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// Runs a loop and checks that each part ran once.
fn check_loop(threads: &Threads, parts: usize) {
    let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
    let task = |part: usize| {
        counts[part].fetch_add(1, Ordering::Relaxed);
    };
    threads.run(parts, &task).unwrap();
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{parts} parts");
}

/// Runs a loop that ends only when all threads take part in it.
fn meet(threads: &Threads) {
    let (arrived, deadline) = (AtomicUsize::new(0), Instant::now() + Duration::from_secs(20));
    let task = |_| {
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < threads.count() {
            assert!(Instant::now() < deadline, "a thread is missing");
            std::thread::yield_now();
        }
    };
    threads.run(threads.count(), &task).unwrap();
}

#[test]
fn each_part_runs_once_for_any_number_of_threads_and_parts() {
    for count in [1, 2, 3, 8] {
        let threads = Threads::new(count).unwrap();
        assert_eq!(threads.count(), count);
        for parts in [0, 1, 2, 3, 7, 8, 9, 100, 1000] {
            check_loop(&threads, parts);
        }
    }
}

#[test]
fn all_threads_take_part_and_are_the_same_in_every_loop() {
    let threads = Threads::new(4).unwrap();
    let names = |()| {
        // No part ends before four threads have one, so each thread has exactly one.
        let (barrier, names) = (Barrier::new(4), Mutex::new(HashSet::new()));
        let task = |_| {
            barrier.wait();
            let current = std::thread::current();
            names.lock().unwrap().insert((current.id(), current.name().map(str::to_owned)));
        };
        threads.run(4, &task).unwrap();
        names.into_inner().unwrap()
    };
    let first = names(());
    assert_eq!(first.len(), 4);
    assert!(first.iter().any(|(id, _)| *id == std::thread::current().id()), "the caller takes part");
    let workers = first.iter().filter(|(_, name)| name.as_deref().is_some_and(|name| name.starts_with("kiln-cpu-")));
    assert_eq!(workers.count(), 3);
    // Long enough for the workers to fall asleep.
    std::thread::sleep(Duration::from_millis(20));
    meet(&threads);
    assert_eq!(names(()), first);
}

#[test]
fn loops_of_eight_callers_are_all_served() {
    let threads = Threads::new(3).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let threads = &threads;
            scope.spawn(move || {
                for round in 0..2000 {
                    check_loop(threads, 1 + (caller + round) % 9);
                    if round % 500 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            });
        }
    });
}

#[test]
fn a_loop_inside_of_a_part_runs_in_order_on_the_thread_of_the_part() {
    let threads = Threads::new(4).unwrap();
    let calls = AtomicUsize::new(0);
    let outer = |_| {
        let order = Mutex::new(Vec::new());
        let inner = |part| {
            calls.fetch_add(1, Ordering::Relaxed);
            order.lock().unwrap().push((std::thread::current().id(), part));
        };
        threads.run(10, &inner).unwrap();
        let here = std::thread::current().id();
        assert_eq!(order.into_inner().unwrap(), (0..10).map(|part| (here, part)).collect::<Vec<_>>());
    };
    for _ in 0..100 {
        threads.run(8, &outer).unwrap();
    }
    assert_eq!(calls.into_inner(), 100 * 8 * 10);
    // The thread is no longer marked as inside a part, so the next loop is parallel again.
    meet(&threads);
}

#[test]
fn a_panic_is_an_error_that_names_the_part_and_the_threads_live_on() {
    let threads = Threads::new(2).unwrap();
    for round in 0..50 {
        let barrier = Barrier::new(2);
        // Both threads are in the loop, and the second part panics on either of them.
        let task = |part| {
            if part < 2 {
                barrier.wait();
            }
            assert!(part != 1, "planted in round {round}");
        };
        let error = threads.run(5, &task).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        let message = error.message();
        assert!(message.starts_with("part 1 of 5 panicked on thread `"), "{message}");
        assert!(message.ends_with(&format!("`: planted in round {round}")), "{message}");
        meet(&threads);
    }
}

#[test]
fn parts_after_a_panic_are_left_out() {
    for count in [1, 2] {
        let threads = Threads::new(count).unwrap();
        let ran = AtomicUsize::new(0);
        let task = |part: usize| {
            ran.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
            assert!(part != 0, "planted");
        };
        assert!(threads.run(1000, &task).is_err());
        let ran = ran.into_inner();
        assert!(ran < 100, "{ran} of 1000 parts ran");
    }
}

/// The payload's destructor panics as well: in the caller, not in a worker, which would be lost.
#[test]
fn a_payload_that_panics_when_dropped_does_not_end_a_worker() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("planted in a destructor");
            }
        }
    }
    let threads = Threads::new(2).unwrap();
    for _ in 0..20 {
        let barrier = Barrier::new(2);
        let task = |_| {
            barrier.wait();
            std::panic::panic_any(Bomb);
        };
        let run = || threads.run(2, &task);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        meet(&threads);
    }
}

#[test]
fn chunks_cover_the_data_once() {
    let threads = Threads::new(3).unwrap();
    for (len, chunk_len) in [(0, 5), (1, 5), (5, 5), (6, 5), (1000, 7), (1000, 1), (7, 1000), (3, usize::MAX)] {
        let mut data = vec![0u32; len];
        let task = |chunk: usize, elements: &mut [u32]| {
            assert!(elements.len() <= chunk_len);
            for (index, element) in elements.iter_mut().enumerate() {
                *element += (chunk * chunk_len + index) as u32 + 1;
            }
        };
        threads.run_chunks(&mut data, chunk_len, &task).unwrap();
        assert!(data.iter().copied().eq(1..=len as u32), "{len} elements in chunks of {chunk_len}");
    }
    assert_eq!(threads.run_chunks(&mut [0], 0, &|_, _| {}).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn no_thread_is_a_wrong_argument() {
    assert_eq!(Threads::new(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// A parked worker is woken on a different core from the caller's, among the cores that the caller may use.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_is_woken_off_the_core_of_its_caller() {
    use rustix::thread::{gettid, sched_getaffinity};

    let threads = Threads::new(2).unwrap();
    meet(&threads);
    // Long enough to be asleep.
    std::thread::sleep(Duration::from_millis(50));
    meet(&threads);
    let (caller, own) = (gettid(), sched_getaffinity(None).unwrap());
    let both = Barrier::new(2);
    let found = Mutex::new(None);
    let task = |_| {
        both.wait();
        if gettid() != caller {
            *found.lock().unwrap() = Some(sched_getaffinity(None).unwrap());
        }
    };
    threads.run(2, &task).unwrap();
    let worker = found.into_inner().unwrap().unwrap();
    assert_eq!(worker.count(), own.count().saturating_sub(1).max(1));
    assert!((0..1024).all(|core| own.is_set(core) || !worker.is_set(core)));
}
