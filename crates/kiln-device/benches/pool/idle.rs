//! Memory returned to the system after a burst.

use crate::harness::report::{Checks, Number, Target};
use crate::{Bench, resident};
use kiln_device::{Buffer, Device, PoolConfig, PoolOptions};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(3);
const SIZES: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// Idle memory is returned to the system automatically.
pub(crate) fn run(bench: &mut Bench) {
    let burst_bytes: u64 = bench.effort.pick(512 << 20, 512 << 20, 64 << 20);
    println!(
        "idle: {} MiB in buffers of 4 KiB to 16 MiB, maintenance every {} ms",
        burst_bytes >> 20,
        INTERVAL.as_millis()
    );
    let config = PoolConfig { maintenance_interval: INTERVAL, ..PoolConfig::default() };
    let device = bench.cpu(PoolOptions::new().config(config));
    let checks = Checks::default();
    // Touches the pages of the program's code and threads, which stay resident after their first use.
    drop(burst(&device, SIZES.map(|_| 2), &checks));
    std::thread::sleep(INTERVAL * 2);
    let Some(before) = resident::bytes() else {
        println!("  the system does not report resident memory: skipped");
        return;
    };
    // A quarter of the bytes in each size.
    let buffers = burst(&device, SIZES.map(|bytes| burst_bytes / 4 / bytes), &checks);
    let at_burst = resident::bytes().unwrap_or(0);
    checks.expect(at_burst >= before + burst_bytes);
    drop(buffers);
    let freed = Instant::now();
    let limit = before + before / 10;
    let mut after = at_burst;
    while after > limit && freed.elapsed() < PATIENCE {
        std::thread::sleep(INTERVAL / 10);
        after = resident::bytes().unwrap_or(u64::MAX);
    }
    checks.expect(device.buffer_pool_stats().bytes_in_use == 0);
    println!(
        "  resident: {:.1} MiB before, {:.1} MiB at the burst, {:.1} MiB {:.2} s after it",
        resident::mib(before),
        resident::mib(at_burst),
        resident::mib(after),
        freed.elapsed().as_secs_f64()
    );
    let ratio = Number::new(after as f64 / before as f64, "x");
    bench.report.claim("resident after idling by before the burst", &ratio, Target::AtMost(1.1), &checks);
}

/// Allocates buffers of each size, with all bytes written and checked.
fn burst(device: &Device, counts: [u64; SIZES.len()], checks: &Checks) -> Vec<Buffer> {
    let sizes = SIZES.into_iter().zip(counts).flat_map(|(bytes, count)| (0..count).map(move |_| bytes));
    let buffers: Vec<Buffer> = sizes.map(|bytes| device.buffer(bytes).unwrap()).collect();
    for (number, buffer) in buffers.iter().enumerate() {
        buffer.map_write(|bytes| bytes.fill(number as u8)).unwrap();
    }
    for (number, buffer) in buffers.iter().enumerate() {
        checks.expect(buffer.map_read(|bytes| bytes.iter().all(|byte| *byte == number as u8)).unwrap());
    }
    buffers
}
