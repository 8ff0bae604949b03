//! The cost of a command list, a launch and a replay.

use crate::Bench;
use crate::harness::report::{Checks, Number, Target, print_arms};
use crate::subjects::double;
use kiln_device::{CommandList, Device, Grid, Kernel, TypedBuffer};
use kiln_gpu::GpuOptions;
use kiln_testkit::arms::{Arm, run as run_arms};
use std::hint::black_box;
use std::time::Instant;

/// Acquiring a list takes less than a microsecond; a replay is compared with recording again.
pub(crate) fn run(bench: &mut Bench) {
    println!("commands: command lists on the GPU");
    let device = kiln_gpu::open(0, GpuOptions::new()).unwrap();
    acquisition(bench, &device);
    replay(bench, &device);
}

fn acquisition(bench: &mut Bench, device: &Device) {
    let operations = bench.effort.pick(200, 50, 2);
    let checks = Checks::default();
    let buffer = device.buffer_from(&[1u32; 4]).unwrap();
    // Every list is used and submitted outside of the measured time, so that the next one is reused.
    let acquire = || {
        let mut nanoseconds = 0;
        for _ in 0..operations {
            let began = Instant::now();
            let mut commands = black_box(device.commands());
            nanoseconds += began.elapsed().as_nanos();
            checks.expect(commands.is_empty());
            commands.zero(buffer.as_bytes()).unwrap();
            device.submit(commands).unwrap();
        }
        nanoseconds as f64 / f64::from(operations)
    };
    let mut arms = [Arm::new("acquire a command list", acquire)];
    let results = run_arms(bench.effort.pick(41, 11, 1), &mut arms);
    drop(arms);
    checks.expect(buffer.read().unwrap() == [0; 4]);
    print_arms(&results);
    let number = Number::of(results.quartiles("acquire a command list"), "ns");
    bench.report.claim("acquisition of a command list", &number, Target::AtMost(1000.0), &checks);
}

const LAUNCHES: usize = 100;

/// Two buffers in turn: each launch reads what the previous one wrote.
struct Sequence {
    kernel: Kernel,
    buffers: [TypedBuffer<f32>; 2],
}

impl Sequence {
    fn record(&self, commands: &mut CommandList) -> kiln_ir::Result<()> {
        for launch in 0..LAUNCHES {
            let (x, mut y) = (&self.buffers[launch % 2], self.buffers[(launch + 1) % 2].clone());
            self.kernel.launch().bind("x", x).bind("y", &mut y).grid(Grid::over(64)).record(commands)?;
        }
        Ok(())
    }
}

fn replay(bench: &mut Bench, device: &Device) {
    let buffers = [device.buffer_of::<f32>(64).unwrap(), device.buffer_of::<f32>(64).unwrap()];
    let sequence = Sequence { kernel: device.kernel(double()).unwrap(), buffers };
    let captured = device.capture(|commands| sequence.record(commands)).unwrap();
    let checks = Checks::default();
    // A hundred doublings of 2^-100 are one.
    let start = vec![2f32.powi(-(LAUNCHES as i32)); 64];
    let measure = |submit: &dyn Fn()| {
        sequence.buffers[0].write(&start).unwrap();
        device.synchronize().unwrap();
        let began = Instant::now();
        submit();
        let submitted = began.elapsed().as_nanos() as f64;
        device.synchronize().unwrap();
        checks.expect(sequence.buffers[LAUNCHES % 2].read().unwrap() == [1.0; 64]);
        submitted
    };
    let recorded = || {
        let mut commands = device.commands();
        sequence.record(&mut commands).unwrap();
        device.submit(commands).unwrap();
    };
    let again = || {
        captured.replay().unwrap();
    };
    let mut arms = [
        Arm::new("record 100 launches and submit", || measure(&recorded)),
        Arm::new("replay 100 captured launches", || measure(&again)),
    ];
    let results = run_arms(bench.effort.pick(31, 9, 1), &mut arms);
    drop(arms);
    print_arms(&results);
    let ratio = results.ratio("record 100 launches and submit", "replay 100 captured launches");
    bench.report.claim("replay against recording again", &Number::of(ratio, "x"), Target::AtLeast(1.0), &checks);
}
