//! Records a sequence of kernel launches once and replays it, with the same buffers and with others.
//!
//! `cargo run --release -p kiln --example capture_and_replay` prints:
//!
//! ```text
//! 2 commands, replayed 10 times: 1.0 becomes 2047.0
//! replayed with another buffer: 0.0 becomes 1.0
//! launches: 22
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::Device;
use kiln::kernel::{Grid, KernelSource};

/// Multiplies by `FACTOR` and adds `TERM`. Both are constants of the compiled kernel.
const STEP: &str = "
override FACTOR: f32;
override TERM: f32;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = FACTOR * y[id.x] + TERM; }
}";

pub(crate) fn main() -> kiln::Result<()> {
    let device = Device::best()?;
    let kernel = |factor, term| {
        device.kernel(KernelSource::wgsl(STEP).named("step.wgsl").constant("FACTOR", factor).constant("TERM", term))
    };
    let (double, increment) = (kernel(2.0, 0.0)?, kernel(1.0, 1.0)?);
    let mut y = device.buffer_from(&[1.0f32; 1000])?;

    // Arguments are checked once, here. A replay submits the prepared commands.
    let captured = device.capture(|commands| {
        double.launch().bind("y", &mut y).grid(Grid::over(1000)).record(commands)?;
        increment.launch().bind("y", &mut y).grid(Grid::over(1000)).record(commands)
    })?;
    for _ in 0..10 {
        captured.replay()?;
    }
    let count = captured.commands().len();
    println!("{count} commands, replayed 10 times: 1.0 becomes {:?}", y.read()?[0]);

    let other = device.buffer_from(&[0.0f32; 1000])?;
    captured.replay_with(&[(y.as_bytes(), other.as_bytes())])?;
    println!("replayed with another buffer: 0.0 becomes {:?}", other.read()?[0]);
    println!("launches: {}", device.launches());
    Ok(())
}
