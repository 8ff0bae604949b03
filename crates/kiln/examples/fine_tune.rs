//! Fine-tunes a network from a safetensors file: loads it, freezes the body, and trains a new head.
//!
//! `cargo run --release -p kiln --example fine_tune` prints, with other digits at the end:
//!
//! ```text
//! file: body.bias (16,), body.weight (16, 1), head.bias (1,), head.weight (1, 16)
//! loss on the new task before: 2.…
//! loss on the new task after: 0.0…
//! body unchanged: true
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::nn::{Linear, Visitor, Weights};
use kiln::prelude::*;

struct Net {
    body: Linear,
    head: Linear,
}

impl Net {
    fn new(device: &Device) -> Result<Self> {
        Ok(Self { body: Linear::new(1, 16, device)?, head: Linear::new(16, 1, device)? })
    }
}

impl Module for Net {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        self.head.forward(&self.body.forward(input, mode)?.tanh()?, mode)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module("body", &self.body);
        visitor.module("head", &self.head);
    }
}

/// Fits a module to pairs of inputs and targets. Only parameters of the optimizer change.
fn fit(net: &dyn Module, mut optimizer: Optimizer<optim::Adam>, x: &Tensor, y: &Tensor) -> Result<()> {
    for step in 0..200 {
        nn::mse(&net.forward(x, &Mode::training(step))?, y)?.backward()?;
        optimizer.step(0.02)?;
    }
    Ok(())
}

pub(crate) fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    device.set_seed(1);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("net.safetensors");
    let x = Tensor::linspace(-2.0, 2.0, 64, DType::F32, &device)?.unsqueeze(1)?;

    // The first task: a sine. Save all parameters.
    let net = Net::new(&device)?;
    fit(&net, Optimizer::new(optim::Adam::new(), &net)?, &x, &x.sin()?)?;
    nn::save(&net, &path)?;

    // Only the body is loaded; the head keeps its new random parameters.
    let weights = Weights::load(&path, &device)?;
    let shapes = weights.names().map(|name| format!("{name} {}", weights.shape(name).unwrap_or_default()));
    println!("file: {}", shapes.collect::<Vec<_>>().join(", "));
    let tuned = Net::new(&device)?;
    weights.prefix("body").load_into(&tuned.body)?;

    // The second task: a cosine. The frozen body runs once, without recording gradients.
    let target = (x.cos()? + 1.0)?;
    let features = no_grad(|| tuned.body.forward(&x, &Mode::inference())?.tanh())?;
    let loss = || -> Result<f32> { nn::mse(&tuned.forward(&x, &Mode::inference())?, &target)?.to_scalar() };
    println!("loss on the new task before: {:.4}", loss()?);
    fit(&tuned.head, Optimizer::new(optim::Adam::new(), &tuned.head)?, &features, &target)?;
    println!("loss on the new task after: {:.4}", loss()?);

    let body = |net: &Net| net.body.parameters()[0].1.get().to_vec::<f32>();
    println!("body unchanged: {}", body(&net)? == body(&tuned)?);
    Ok(())
}
