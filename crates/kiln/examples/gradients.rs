//! Computes gradients of a function and fits a line with them.
//!
//! `cargo run --release -p kiln --example gradients` prints:
//!
//! ```text
//! d/dx x³ at 2: 12, second derivative: 12
//! fitted y = 2.00 x + 1.00
//! input 0 (64,): all 64 elements …
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::autograd::{GradientCheck, check_gradients};
use kiln::prelude::*;

fn cube(inputs: &[Tensor]) -> Result<Tensor> {
    inputs[0].mul(&inputs[0])?.mul(&inputs[0])
}

pub(crate) fn main() -> Result<()> {
    let device = Device::best()?;

    // `grad` takes a function and returns its gradients. It nests.
    let at = Tensor::new(2f32, &device)?;
    let first = grad(cube, &[&at])?[0].to_scalar::<f32>()?;
    let derivative = |inputs: &[Tensor]| Ok(grad(cube, &[&inputs[0]])?.remove(0));
    let second = grad(derivative, &[&at])?[0].to_scalar::<f32>()?;
    println!("d/dx x³ at 2: {first}, second derivative: {second}");

    // Gradient descent on the mean squared error of a line.
    let x = Tensor::linspace(-1.0, 1.0, 64, DType::F32, &device)?;
    let y = ((&x * 2.0)? + 1.0)?;
    let (mut slope, mut offset) = (Tensor::new(0f32, &device)?, Tensor::new(0f32, &device)?);
    for _ in 0..200 {
        let loss = |p: &[Tensor]| nn::mse(&((&x * &p[0])? + &p[1])?, &y);
        let gradients = grad(loss, &[&slope, &offset])?;
        slope = (slope - (&gradients[0] * 0.2)?)?;
        offset = (offset - (&gradients[1] * 0.2)?)?;
    }
    println!("fitted y = {:.2} x + {:.2}", slope.to_scalar::<f32>()?, offset.to_scalar::<f32>()?);

    // For a new function: compares its gradients with finite differences.
    print!("{}", check_gradients(cube, &[&x], GradientCheck::new())?);
    Ok(())
}
