//! `cargo bench -p kiln-cpu`: the gain from threads, parallel copies and huge pages on this machine.
//!
//! Arms of a comparison run once in each round, in random order. A time is a median with
//! its quartiles; a ratio is the median of the ratios within a round. Outputs are checked, and a wrong one stops the
//! run. Other running programs slow the parallel arms more than the serial ones.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

use kiln_cpu::{CpuOptions, Threads};
use kiln_device::{Buffer, Device, PoolConfig, PoolOptions};
use kiln_testkit::arms::{Arm, Quartiles, Results, run};
use memmap2::MmapMut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn main() {
    // Under `cargo test --benches` only the checks count.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 1000 } else { 3 };
    loops(rounds);
    copies(rounds / 10 + 2);
    first_touch(rounds / 50 + 2);
}

/// The cost of a parallel loop on two threads, and its gain for a kernel of 20 µs.
fn loops(rounds: usize) {
    println!("parallel loops on 2 threads");
    let threads = Threads::new(2).unwrap();
    let wait = |duration: Duration| {
        let start = Instant::now();
        while start.elapsed() < duration {
            std::hint::spin_loop();
        }
    };
    let empty = || threads.run(2, &|_| {}).unwrap();
    // Ends when both threads have entered: the time until the second arrives.
    let meet = || {
        let arrived = AtomicUsize::new(0);
        let task = |_| {
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < 2 {
                std::hint::spin_loop();
            }
        };
        threads.run(2, &task).unwrap();
    };
    sample("empty", rounds, || time(empty));
    sample("both threads meet", rounds, || time(meet));
    let after_pause = |pause| {
        wait(Duration::from_micros(pause));
        time(meet)
    };
    sample("  after a pause of 20 µs", rounds, || after_pause(20));
    sample("  after a pause of 1 ms", rounds, || after_pause(1000));
    let half = |_| wait(Duration::from_micros(10));
    let serial = || (0..2).for_each(half);
    let parallel = || threads.run(2, &half).unwrap();
    compare("20 µs of work", rounds, ["1 thread", "2 threads"], || time(serial), || time(parallel));
}

/// Copies and fills on one thread and on all.
fn copies(rounds: usize) {
    let open = |threads| kiln_cpu::open(CpuOptions::new().threads(threads)).unwrap();
    let all = std::thread::available_parallelism().unwrap().get();
    println!("copies and fills on 1 thread and on {all}");
    let devices = (open(1), open(all));
    for mib in [1, 4, 16, 64] {
        let pair = |device: &Device| -> (Buffer, Buffer) {
            let from = device.buffer(mib << 20).unwrap();
            from.map_write(|bytes| bytes.fill(7)).unwrap();
            (from, device.buffer(mib << 20).unwrap())
        };
        let (serial, parallel) = (pair(&devices.0), pair(&devices.1));
        let copy = |(from, to): &(Buffer, Buffer)| time(|| from.copy_to(to).unwrap());
        let name = format!("copy of {mib} MiB");
        compare(&name, rounds, ["1 thread", "all threads"], || copy(&serial), || copy(&parallel));
        let is = |byte, (_, to): &(Buffer, Buffer)| to.map_read(|bytes| bytes.iter().all(|b| *b == byte)).unwrap();
        assert!(is(7, &serial) && is(7, &parallel), "{name}");
        let zero = |(_, to): &(Buffer, Buffer)| time(|| to.zero().unwrap());
        let name = format!("fill of {mib} MiB");
        compare(&name, rounds, ["1 thread", "all threads"], || zero(&serial), || zero(&parallel));
        assert!(is(0, &serial) && is(0, &parallel), "{name}");
    }
}

/// Mapping, touching and unmapping a block: as the device does, with huge pages if available, and without.
fn first_touch(rounds: usize) {
    println!("first touch of every page, with map and unmap");
    let config = PoolConfig { pooling: false, ..PoolConfig::default() };
    let device = kiln_cpu::open(CpuOptions::new().pool(PoolOptions::new().config(config))).unwrap();
    let touch = |bytes: &mut [u8]| bytes.iter_mut().step_by(4096).for_each(|byte| *byte += 1);
    for mib in [1, 4, 64] {
        let plain = || time(|| touch(&mut MmapMut::map_anon(mib << 20).unwrap()));
        let own = || time(|| device.buffer((mib << 20) as u64).unwrap().map_write(touch).unwrap());
        compare(&format!("block of {mib} MiB"), rounds, ["plain map", "device"], plain, own);
    }
}

/// Microseconds.
fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

fn sample(name: &'static str, rounds: usize, measure: impl FnMut() -> f64) {
    print(&run(rounds, &mut [Arm::new(name, measure)]), "");
}

/// Prints both arms, and the speedup of the second.
fn compare(
    name: &str,
    rounds: usize,
    arms: [&'static str; 2],
    first: impl FnMut() -> f64,
    second: impl FnMut() -> f64,
) {
    let results = run(rounds, &mut [Arm::new(arms[0], first), Arm::new(arms[1], second)]);
    print(&results, &format!("{name}, "));
    println!("  {:<36} {:>9.2} times as fast", "", results.ratio(arms[0], arms[1]).median);
}

fn print(results: &Results, prefix: &str) {
    for name in results.names() {
        let Quartiles { low, median, high } = results.quartiles(name);
        println!("  {:<36} {median:>9.2} µs   quartiles {low:.2} to {high:.2}", format!("{prefix}{name}"));
    }
}
