//! The CPU device starts fast.

use crate::{child, role};
use kiln_cpu::CpuOptions;
use std::process::Stdio;
use std::time::{Duration, Instant};

const TEST: &str = "start::opening_a_device_takes_a_few_times_the_start_of_a_process";

/// From the start of a process to its end, with a device opened and a buffer used in between. The fastest of many,
/// because other processes only ever add time.
#[test]
fn opening_a_device_takes_a_few_times_the_start_of_a_process() {
    match role().as_deref() {
        Some("open") => return open_and_use(),
        Some(_) => return,
        None => {}
    }
    let (mut with, mut without) = (Duration::MAX, Duration::MAX);
    for _ in 0..20 {
        with = with.min(time("open"));
        without = without.min(time("nothing"));
    }
    assert!(with < 6 * without, "expected a few times {without:?}, the time without a device, found {with:?}");
}

fn open_and_use() {
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    let buffer = device.buffer_from(&[1.0f32, 2.0, 3.0]).unwrap();
    assert_eq!(buffer.read().unwrap(), [1.0, 2.0, 3.0]);
}

fn time(role: &str) -> Duration {
    let mut command = child(TEST, role);
    command.stdout(Stdio::null());
    let start = Instant::now();
    assert!(command.status().unwrap().success(), "child `{role}`");
    start.elapsed()
}
