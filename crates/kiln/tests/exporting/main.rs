//! Metrics of devices, as text, in a file, and for the `metrics` facade.
//!
//! Each test opens its own devices, because metrics are per device. Without a GPU the tests print a note and continue
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

/// Opens a CPU device for one test.
fn cpu() -> Device {
    Device::cpu_with(CpuOptions::new().threads(1)).unwrap()
}

/// One kernel in one plan.
fn work(device: &Device) -> Result<()> {
    Tensor::ones(1000, DType::F32, device)?.add_scalar(1.0)?.eval()?;
    device.synchronize()
}

/// Returns the value of a series, by the text before it.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}
