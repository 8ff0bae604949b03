//! The device owns its threads, and they end with it.

use crate::in_own_process;
use kiln_cpu::{CpuOptions, Threads};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut names: Vec<String> = tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names
}

/// The names of the threads once they are `expected`: a thread takes its name when it first runs, and is listed until
/// the system has removed it.
fn wait_for(expected: &[String]) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while thread_names() != expected {
        assert!(Instant::now() < deadline, "expected {expected:?}, found {:?}", thread_names());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Threads of the device and of its pool start when they are needed and are joined when the device is dropped.
#[test]
fn all_threads_of_a_device_end_with_it() {
    in_own_process("threads::all_threads_of_a_device_end_with_it", || {
        let before = thread_names();
        let mut with_device = before.clone();
        with_device.extend(["kiln-cpu-1", "kiln-cpu-2", "kiln-cpu-3", "kiln-pool"].map(String::from));
        with_device.sort();
        for _ in 0..20 {
            let device = kiln_cpu::open(CpuOptions::new().threads(4)).unwrap();
            assert_eq!(thread_names(), before, "opening starts none");
            let (a, b) = (device.buffer(4 << 20).unwrap(), device.buffer(4 << 20).unwrap());
            a.copy_to(&b).unwrap();
            wait_for(&with_device);
            drop(device.clone());
            assert_eq!(thread_names(), with_device, "a clone is not the device");
            drop((a, b));
            drop(device);
            wait_for(&before);
        }
    });
}

/// Increments a counter when it is dropped, after a delay.
struct Late(Arc<AtomicUsize>);

impl Drop for Late {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(50));
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
}

/// Dropping joins the workers: everything that a worker does at its end has happened when the drop returns.
#[test]
fn dropping_threads_waits_for_their_end() {
    let ended = Arc::new(AtomicUsize::new(0));
    let threads = Threads::new(3).unwrap();
    let (barrier, caller) = (Barrier::new(3), std::thread::current().id());
    let task = |_| {
        barrier.wait();
        if std::thread::current().id() != caller {
            LATE.set(Some(Late(Arc::clone(&ended))));
        }
    };
    threads.run(3, &task).unwrap();
    drop(threads);
    assert_eq!(ended.load(Ordering::Relaxed), 2);
}
