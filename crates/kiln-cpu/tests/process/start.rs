//! The CPU device starts fast.

use crate::{child, role};
use kiln_cpu::CpuOptions;
use std::process::Stdio;
use std::time::{Duration, Instant};

const TEST: &str = "start::a_fresh_process_has_a_device_in_well_under_ten_milliseconds";

/// From the start of a process to its end, with a device opened and a buffer used in between. The fastest of many,
/// because other processes only ever add time.
#[test]
fn a_fresh_process_has_a_device_in_well_under_ten_milliseconds() {
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
    assert!(with < Duration::from_millis(10), "expected under 10 ms, found {with:?} ({without:?} without a device)");
    let device = with.saturating_sub(without);
    assert!(device < Duration::from_millis(5), "expected under 5 ms for the device, found {device:?} of {with:?}");
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
