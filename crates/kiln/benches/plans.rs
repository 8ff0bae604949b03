//! The time of small ops whose plans are cached, on the CPU device.
//! `cargo bench -p kiln --bench plans`

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark prints and ends where it cannot go on"
)]

use kiln::{Device, Tensor};
use std::time::Instant;

const ROUNDS: usize = 30;
const RUNS: u32 = 2000;

fn main() {
    let device = Device::cpu().unwrap();
    let x = Tensor::from_slice(&[0.25f32; 16], 16, &device).unwrap();
    let chain = || {
        let y = x.mul_scalar(0.5f32).unwrap().abs().unwrap().add_scalar(1.0f32).unwrap().sqrt().unwrap();
        y.eval().unwrap();
        y
    };
    let one = || {
        let y = x.add_scalar(1.0f32).unwrap();
        y.eval().unwrap();
        y
    };
    assert!((chain().to_vec::<f32>().unwrap()[15] - 1.125f32.sqrt()).abs() < 1e-6);
    assert_eq!(one().to_vec::<f32>().unwrap(), [1.25; 16]);
    for (name, work) in [("one op", &one as &dyn Fn() -> Tensor), ("four ops", &chain)] {
        let mut nanos: Vec<f64> = (0..ROUNDS).map(|_| measure(work)).collect();
        nanos.sort_by(f64::total_cmp);
        println!("{name}: median {:.1} ns, least {:.1} ns", nanos[ROUNDS / 2], nanos[0]);
    }
}

/// Nanoseconds of one run.
fn measure(work: &dyn Fn() -> Tensor) -> f64 {
    let start = Instant::now();
    for _ in 0..RUNS {
        std::hint::black_box(work());
    }
    start.elapsed().as_nanos() as f64 / f64::from(RUNS)
}
