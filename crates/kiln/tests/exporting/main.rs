//! Metrics of devices, as text, in a file, and for the `metrics` facade.
//!
//! Each test opens devices of its own, because what is counted is of a whole device. Without a GPU the tests say so and go on
//! with the CPU device, unless the environment variable `CI` is set.

#![cfg(feature = "events")]
#![expect(clippy::unwrap_used, reason = "a test that fails says so")]
#![cfg_attr(feature = "gpu", expect(clippy::print_stdout, reason = "a test that is skipped says so"))]

#[path = "../observe/devices.rs"]
mod devices;
mod facade;
mod file;
mod numbers;

use kiln::device::CpuOptions;
use kiln::{DType, Device, Result, Tensor};

/// A CPU device of a test's own.
fn cpu() -> Device {
    Device::cpu_with(CpuOptions::new().threads(1)).unwrap()
}

/// One kernel in one plan.
fn work(device: &Device) -> Result<()> {
    Tensor::ones(1000, DType::F32, device)?.add_scalar(1.0)?.eval()?;
    device.synchronize()
}

/// The value of a series, by what stands before it in the text.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}
