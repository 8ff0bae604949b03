//! Creates tensors, computes with them, and reads the result.
//!
//! `cargo run --release -p kiln --example hello_tensors` prints:
//!
//! ```text
//! device: …
//! x @ w + bias =
//! [[ 5.0,  2.0],
//!  [11.0,  5.0]]
//! (2, 2), f32, …
//! row sums: [7.0, 16.0]
//! largest element of each row: [0, 0]
//! matmul expected equal inner lengths (3 and 2 here), found …
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::prelude::*;

pub(crate) fn main() -> Result<()> {
    let device = Device::best()?; // a GPU if there is one, otherwise the CPU device
    println!("device: {}", device.info().id);

    let x = Tensor::new([[1f32, 2., 3.], [4., 5., 6.]], &device)?;
    let w = Tensor::new([[1f32, 0.], [-1., 2.], [2., -1.]], &device)?;
    let bias = Tensor::new([0f32, 1.], &device)?;

    // Ops are recorded here and run when elements are read. The bias is broadcast to both rows.
    let y = (x.matmul(&w)? + &bias)?;
    println!("x @ w + bias =\n{y}");
    println!("row sums: {:?}", y.sum(1)?.to_vec::<f32>()?);
    println!("largest element of each row: {:?}", y.argmax(-1)?.to_vec::<u32>()?);

    // Shapes are checked by the method that gets them, before anything runs.
    if let Err(error) = x.matmul(&x) {
        println!("{error}");
    }
    Ok(())
}
