//! The share of short-lived requests that do not reach the driver.

use crate::Bench;
use crate::counted::Counted;
use crate::harness::report::{Checks, Number, Target};
use kiln_device::{Buffer, Device};
use kiln_testkit::Rng;

/// A buffer lives until up to this many later ones were allocated, like the intermediates of a computation.
const LONGEST_LIFE: usize = 16;
const STAMP_BYTES: u64 = 8;

/// The share of requests that did not reach the driver, starting with an empty pool.
pub(crate) fn run(bench: &mut Bench) {
    println!(
        "reuse: requests that never reach the driver, from an empty pool, each alive for 1 to {LONGEST_LIFE} later ones"
    );
    let one_size = vec![4096; 1000];
    let mut mixed: Vec<u64> = (8..=18).flat_map(|log2| [1 << log2; 500]).collect();
    Rng::new(3).shuffle(&mut mixed);
    for (device_name, device) in bench.devices() {
        for (name, sizes) in [("1,000 of 4 KiB", &one_size), ("11 sizes of 256 B to 256 KiB, 500 each", &mixed)] {
            let checks = Checks::default();
            let percent = reduction(&device, sizes, &checks);
            let what = format!("{device_name}: {name}");
            bench.report.claim(&what, &Number::new(percent, "%"), Target::AtLeast(90.0), &checks);
        }
    }
}

/// A buffer with the steps of its allocation and its end.
struct Live {
    buffer: Buffer,
    born: u64,
    dies: usize,
}

fn reduction(device: &Device, sizes: &[u64], checks: &Checks) -> f64 {
    let (driver, device) = Counted::open(device);
    let mut random = Rng::new(7);
    let mut live: Vec<Live> = Vec::new();
    for (step, &bytes) in sizes.iter().enumerate() {
        live.extract_if(.., |live| live.dies <= step).for_each(|dead| checks.expect(dead.is_stamped()));
        let buffer = device.buffer(bytes).unwrap();
        checks.expect(buffer.bytes() == bytes);
        let new = Live { buffer, born: step as u64, dies: step + 1 + random.below(LONGEST_LIFE) };
        new.stamp();
        live.push(new);
    }
    live.drain(..).for_each(|dead| checks.expect(dead.is_stamped()));
    let statistics = device.buffer_pool_stats();
    checks.expect(statistics.bytes_in_use == 0);
    checks.expect(statistics.driver_allocation_count == driver.allocations());
    let percent = |requests: u64| 100.0 * (1.0 - driver.allocations() as f64 / requests as f64);
    checks.expect((statistics.allocation_reduction_percent - percent(statistics.allocation_count)).abs() < 1e-9);
    // If the host needs staging to write the stamps, its driver allocations count against the pool, but not its
    // requests.
    percent(sizes.len() as u64)
}

impl Live {
    /// Writes the step to both ends, so that a block allocated twice at a time is detected.
    fn stamp(&self) {
        self.ends().iter().for_each(|end| end.write(&self.born.to_le_bytes()).unwrap());
    }

    fn is_stamped(&self) -> bool {
        self.ends().iter().all(|end| end.read().unwrap() == self.born.to_le_bytes())
    }

    fn ends(&self) -> [Buffer; 2] {
        let last = self.buffer.bytes() - STAMP_BYTES;
        [self.buffer.slice(..STAMP_BYTES).unwrap(), self.buffer.slice(last..).unwrap()]
    }
}
