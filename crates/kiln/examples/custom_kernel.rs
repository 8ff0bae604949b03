//! Builds tensor ops from WGSL kernels: a rotary embedding and an activation, each with its gradient.
//!
//! `cargo run --release -p kiln --example custom_kernel` prints the plan, in which the ops around each kernel are
//! fused, and two checks:
//!
//! ```text
//! on …, planned now
//! kernel 0: map `mul_tanh` -> f32 (8, 64)
//! …
//! kernel 1: rope `rope` -> f32 (8, 64)
//! …
//! gradients: 0 of 64 failed
//! ```
//!
//! The same source runs on a GPU and, compiled to machine code, on the CPU device.
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::autograd::{GradientCheck, check_gradients};
use kiln::kernel::{Grid, WgslOp};
use kiln::{DType, Device, Result, Tensor};

/// Rotates the pairs (i, i + width / 2) of each row by the angles of the row.
const ROPE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> angles: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> half_width: u32;
override direction: f32 = 1.0;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&angles)) { return; }
    let a = id.x / half_width * 2u * half_width + id.x % half_width;
    let b = a + half_width;
    let c = cos(angles[id.x]);
    let s = direction * sin(angles[id.x]);
    y[a] = c * x[a] - s * x[b];
    y[b] = s * x[a] + c * x[b];
}";

/// x * sigmoid(beta * x), and the gradient of its input.
const SWISH: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
override beta: f32;
fn sigmoid(v: f32) -> f32 { return 1.0 / (1.0 + exp(-v)); }
@compute @workgroup_size(64) fn forward(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = x[id.x] * sigmoid(beta * x[id.x]); }
}
@compute @workgroup_size(64) fn backward(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&y)) { return; }
    let s = sigmoid(beta * x[id.x]);
    y[id.x] = g[id.x] * (s + beta * x[id.x] * s * (1.0 - s));
}";

fn rope(direction: f64) -> WgslOp {
    WgslOp::new("rope", ROPE)
        .constant("direction", direction)
        .params(|inputs, _| vec![inputs[0].shape[1] as u32 / 2])
        .grid(|inputs, _| Grid::over(inputs[1].shape.elem_count()))
        // The gradient is the inverse rotation: another op of the same source.
        .gradient(move |inputs, _, gradient| Ok(vec![Some(rope(-direction).call(&[gradient, &inputs[1]])?), None]))
}

fn swish(beta: f64) -> WgslOp {
    let backward = WgslOp::new("swish_backward", SWISH).entry("backward").constant("beta", beta);
    WgslOp::new("swish", SWISH)
        .entry("forward")
        .constant("beta", beta)
        .gradient(move |inputs, _, gradient| Ok(vec![Some(backward.call(&[&inputs[0], gradient])?)]))
}

pub(crate) fn main() -> Result<()> {
    let device = Device::best()?;
    let x = Tensor::randn((8, 64), DType::F32, &device)?;
    let angles = Tensor::rand((8, 32), DType::F32, &device)?;
    Tensor::eval_all(&[&x, &angles])?;
    let rotated = rope(1.0).call(&[&x.mul_scalar(2.0)?.tanh()?, &angles])?;
    let y = swish(1.5).call(&[&rotated.add_scalar(0.5)?])?.square()?;
    println!("{}\n", y.explain()?);
    println!("{}", y.eval_checked()?); // compares with op by op, and with the CPU device

    // The gradients of both kernels, compared with finite differences.
    let compute = |p: &[Tensor]| swish(1.5).call(&[&rope(1.0).call(&[&p[0], &angles])?]);
    let report = check_gradients(compute, &[&x], GradientCheck::new())?;
    println!("gradients: {} of {} failed", report.failed(), report.checked());
    Ok(())
}
