//! Trains a small network on real handwritten digits: data, model, training loop and evaluation on one page.
//!
//! `cargo run --release -p kiln --example train_digits` prints, with other digits after the point:
//!
//! ```text
//! epoch 1: loss …, test accuracy … %
//! …
//! epoch 10: loss 0.…, test accuracy 9… %
//! ```
//!
//! The example `digits` has convolutions, `f16`, a schedule and plots.
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::nn::{Activation, Linear, Sequential};
use kiln::prelude::*;

const PIXELS: usize = 64;
const BATCH: usize = 64;

/// Reads images, in rows of 64 pixels from 0 to 1, and the digits that they show. Every fifth one is for the test.
fn read(for_test: bool, device: &Device) -> Result<(Tensor, Tensor)> {
    let (mut pixels, mut digits) = (Vec::new(), Vec::new());
    let lines = include_str!("digits/digits.csv").lines().enumerate();
    for (_, line) in lines.filter(|(number, _)| (number % 5 == 0) == for_test) {
        let numbers: Vec<u32> = line.split(',').map(|number| number.parse().expect("a file of numbers")).collect();
        pixels.extend(numbers[..PIXELS].iter().map(|&pixel| pixel as f32 / 16.0));
        digits.push(numbers[PIXELS]);
    }
    let count = digits.len();
    Ok((Tensor::from_vec(pixels, (count, PIXELS), device)?, Tensor::from_vec(digits, count, device)?))
}

pub(crate) fn train(epochs: u64) -> Result<()> {
    let device = Device::best()?;
    device.set_seed(1);
    let (images, digits) = read(false, &device)?;
    let (test_images, test_digits) = read(true, &device)?;
    let net = Sequential::new()
        .with(Linear::new(PIXELS, 128, &device)?)
        .with(Activation::Relu)
        .with(Linear::new(128, 10, &device)?);
    let mut optimizer = Optimizer::new(optim::Adam::new(), &net)?;

    for epoch in 1..=epochs {
        let mut losses = Vec::new();
        for start in (0..=images.dim(0)? - BATCH).step_by(BATCH) {
            let (x, y) = (images.i(start..start + BATCH)?, digits.i(start..start + BATCH)?);
            let loss = nn::cross_entropy(&net.forward(&x, &Mode::training(epoch))?, &y)?;
            loss.backward()?;
            optimizer.step(0.003)?;
            losses.push(loss.detach()); // read after the epoch, so that no step waits for it
        }
        let loss = Tensor::stack(&losses, 0)?.mean_all()?.to_scalar::<f32>()?;
        let scores = no_grad(|| net.forward(&test_images, &Mode::inference()))?;
        let is_right = scores.argmax(1)?.eq(&test_digits)?.to_dtype(DType::F32)?;
        let accuracy = 100.0 * is_right.mean_all()?.to_scalar::<f32>()?;
        println!("epoch {epoch}: loss {loss:.4}, test accuracy {accuracy:.1} %");
    }
    Ok(())
}

pub(crate) fn main() -> Result<()> {
    train(10)
}
