//! Limits the memory of a device, shows which buffers hold it, and handles an allocation beyond the limit.
//!
//! `cargo run --release -p kiln --example memory_budget` prints:
//!
//! ```text
//!      4 MiB       1  weights
//!      3 MiB       1  activations
//!      7 MiB  of 8 MiB reserved
//! OutOfMemory: buffer `gradients`: … `weights` 4 MiB in 1 buffer, `activations` 3 MiB in 1 buffer…
//! after dropping the activations: 4 MiB allocated
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::Device;
use kiln::buffer::BufferOptions;
use kiln::device::CpuOptions;
use kiln::pool::{PoolConfig, PoolOptions};

const MIB: u64 = 1 << 20;

pub(crate) fn main() -> kiln::Result<()> {
    let config = PoolConfig { budget_bytes: Some(8 * MIB), ..PoolConfig::default() };
    let device = Device::cpu_with(CpuOptions::new().pool(PoolOptions::new().config(config)))?;

    // Labels appear in reports and in errors.
    let weights = device.buffer_with(BufferOptions::new(4 * MIB).label("weights"))?;
    let activations = device.buffer_with(BufferOptions::new(3 * MIB).label("activations"))?;
    println!("{}", device.pool().report());

    // The budget is never exceeded: the error names the holders, largest first.
    if let Err(error) = device.buffer_with(BufferOptions::new(4 * MIB).label("gradients")) {
        println!("{:?}: {error}", error.kind());
    }

    // Dropped buffers are cached by the pool. It releases them automatically when the budget requires it.
    drop(activations);
    let gradients = device.buffer_with(BufferOptions::new(4 * MIB).label("gradients"))?;
    println!("after dropping the activations: {} MiB allocated", gradients.bytes() / MIB);
    drop(weights);
    Ok(())
}
