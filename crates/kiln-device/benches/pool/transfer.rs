//! Host access in place compared with host access through staging, on the same device and with the same bytes.

use crate::Bench;
use crate::harness::report::Checks;
use kiln_device::{Buffer, BufferOptions, Bytes, Device, Usage};
use kiln_testkit::arms::{Arm, Results, run as run_arms};
use std::cell::Cell;
use std::time::Instant;

const IN_PLACE: &str = "in place";
const STAGED: &str = "staged";

/// Measures both paths.
pub(crate) fn run(bench: &mut Bench) {
    println!("transfer: bytes moved between host and buffer, in place compared with staged; ratio = staged / in place");
    println!(
        "  device and size        write: place  staged   ratio |   read: place  staged   ratio |   view: place  staged   ratio"
    );
    for (name, device) in bench.devices() {
        for bytes in [4 << 10, 1 << 20, 16 << 20] {
            let checks = Checks::default();
            let repeats = bench.effort.pick((32 << 20) / bytes, (16 << 20) / bytes, 1).min(64) as u32;
            let rounds = bench.effort.pick(9, 5, 1);
            let Some(pair) = Pair::new(&device, bytes) else {
                println!("  {name}: no storage that the host accesses in place");
                break;
            };
            let lines = [
                pair.measure(rounds, repeats, &checks, Pair::write),
                pair.measure(rounds, repeats, &checks, Pair::read),
                pair.measure(rounds, repeats, &checks, Pair::view),
            ];
            let columns = lines.map(|results| columns(&results, bytes)).join(" |        ");
            let wrong = bench.report.count_wrong(&checks);
            println!("  {name} {:>8}             {columns}{wrong}", Bytes(bytes));
        }
    }
    println!("  GB/s; write = write and synchronize, read = read to a new vector, view = sum all words with map_read");
}

fn columns(results: &Results, bytes: u64) -> String {
    let rate = |name| bytes as f64 / results.quartiles(name).median;
    format!("{:>6.2} {:>7.2} {:>7.2}", rate(IN_PLACE), rate(STAGED), results.ratio(STAGED, IN_PLACE).median)
}

/// The same bytes in two buffers of one device.
struct Pair<'a> {
    device: &'a Device,
    in_place: Buffer,
    staged: Buffer,
    data: Vec<u8>,
    /// Makes every write different.
    writes: Cell<u64>,
}

impl<'a> Pair<'a> {
    fn new(device: &'a Device, bytes: u64) -> Option<Self> {
        let in_place = device.buffer_with(BufferOptions::new(bytes).usage(Usage::Shared)).ok()?;
        let staged = device.buffer_with(BufferOptions::new(bytes).usage(Usage::Storage)).unwrap();
        let data: Vec<u8> = (0..bytes).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        in_place.write(&data).unwrap();
        staged.write(&data).unwrap();
        Some(Self { device, in_place, staged, data, writes: Cell::new(0) })
    }

    /// Runs both paths interleaved; returns nanoseconds per transfer.
    fn measure(
        &self,
        rounds: usize,
        repeats: u32,
        checks: &Checks,
        transfer: fn(&Self, &Buffer, u32, &Checks) -> f64,
    ) -> Results {
        let arms = [(IN_PLACE, &self.in_place), (STAGED, &self.staged)];
        run_arms(
            rounds,
            &mut arms.map(|(name, buffer)| {
                Arm::new(name, move || transfer(self, buffer, repeats, checks) / f64::from(repeats))
            }),
        )
    }

    fn write(&self, buffer: &Buffer, repeats: u32, checks: &Checks) -> f64 {
        let mut data = self.data.clone();
        self.writes.set(self.writes.get() + 1);
        data[..8].copy_from_slice(&self.writes.get().to_le_bytes());
        let began = Instant::now();
        for _ in 0..repeats {
            buffer.write(&data).unwrap();
        }
        self.device.synchronize().unwrap();
        let nanos = began.elapsed().as_nanos() as f64;
        checks.expect(buffer.read().unwrap() == data);
        // The arms that read expect the original bytes.
        buffer.write(&self.data).unwrap();
        nanos
    }

    fn read(&self, buffer: &Buffer, repeats: u32, checks: &Checks) -> f64 {
        let mut nanos = 0.0;
        for _ in 0..repeats {
            let began = Instant::now();
            let data = buffer.read().unwrap();
            nanos += began.elapsed().as_nanos() as f64;
            checks.expect(data == self.data);
        }
        nanos
    }

    fn view(&self, buffer: &Buffer, repeats: u32, checks: &Checks) -> f64 {
        let expected = sum(&self.data);
        let began = Instant::now();
        for _ in 0..repeats {
            checks.expect(buffer.map_read(sum).unwrap() == expected);
        }
        began.elapsed().as_nanos() as f64
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    words.fold(0, u64::wrapping_add)
}
