//! Explains which ops of a computation fuse into one kernel, and why others do not.
//!
//! `cargo run --release -p kiln --example explain_fusion` prints the two plans:
//!
//! ```text
//! on …, planned now
//! kernel 0: reduce `mul_add_gelu_sum` -> f32 (256, 1)
//!     ops: mul, add, gelu, sum
//!     reads 128 KiB, writes 1 KiB, 131072 operations
//! 1 kernel; 130 KiB moved, 1.0 MiB without fusion
//! …
//! note: `gelu` is stored: `softmax` reads it
//! …
//! 3 kernels; 642 KiB moved, 1.5 MiB without fusion
//! …
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::prelude::*;

pub(crate) fn main() -> Result<()> {
    let device = Device::best()?;
    let x = Tensor::randn((256, 128), DType::F32, &device)?;
    let bias = Tensor::randn(128, DType::F32, &device)?;
    Tensor::eval_all(&[&x, &bias])?;

    // Multiplication, addition and gelu are computed for each element that the sum reads; nothing in between is stored.
    let activation = ((&x * 2.0)? + &bias)?.gelu()?;
    let fused = activation.sum(1)?;
    println!("{}\n", fused.explain()?);

    // Softmax has a hand-written kernel, which reads its input from memory and stores its result.
    let split = activation.softmax(1)?.square()?.sum(1)?;
    println!("{}", split.explain()?);
    Ok(())
}
