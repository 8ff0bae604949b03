//! `kiln doctor`: lists the devices, the default one and why, and what is missing.
//!
//! `gather` collects the facts, `checks` and `drivers` judge them without accessing the machine again, `report` holds
//! both, `text` formats them.

mod checks;
mod drivers;
#[cfg(test)]
mod machines;
mod report;
mod smoke;
mod system;
mod text;

use crate::cache_dir::CacheDir;
use crate::terminal::{to_json, write};
use crate::{Fallible, settings};
use kiln::device::{CpuOptions, SimdLevel};
use kiln::{Device, DeviceInfo, DeviceKind};
use report::{DefaultDevice, DeviceFacts, Facts, RejectedDevice, Report};
use std::process::ExitCode;
use system::System;

const EXAMPLES: &str = "\
Examples:
  kiln doctor                                check this machine; suggests commands that install missing parts
  kiln doctor --json                         as JSON

Exit status:
  0  no problem was found
  1  a problem was found
  2  the command line is invalid";

/// Checks devices, drivers and the cache directory, and suggests fixes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write one JSON object with the fields `format`, `version`, `healthy`, `system`, `gpu_support`, `default`,
    /// `devices`, `simd`, `simd_setting`, `threads`, `cache_directory` and `checks`.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let report = Report::new(gather());
    let text = if args.json { to_json(&report)? } else { text::render(&report) };
    write(&mut anstream::stdout(), &text)?;
    Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn gather() -> Facts {
    let devices: Vec<DeviceFacts> = Device::list().into_iter().map(test).collect();
    let default = match Device::choose() {
        Ok(choice) => DefaultDevice {
            id: Some(choice.device.info().id.clone()),
            reason: choice.reason,
            rejected: choice.rejected.into_iter().map(|r| RejectedDevice { id: r.id, reason: r.reason }).collect(),
        },
        Err(error) => DefaultDevice { id: None, reason: error.to_string(), rejected: Vec::new() },
    };
    let simd_setting = settings::variable(CpuOptions::SIMD_SETTING).filter(|value| !value.is_empty());
    // A level that the processor does not support opens no device.
    let set_level = simd_setting.as_ref().and_then(|name| name.parse::<SimdLevel>().ok());
    let set_level = set_level.filter(|_| settings::open_cpu().is_ok());
    Facts {
        version: env!("CARGO_PKG_VERSION").to_string(),
        system: System::detect(),
        gpu_support: cfg!(feature = "gpu"),
        default,
        simd: set_level.unwrap_or_else(SimdLevel::detect).to_string(),
        simd_setting,
        threads: devices.first().and_then(|cpu| cpu.info.limits.threads),
        devices,
        cache_directory: CacheDir::of_environment().measured(),
    }
}

/// Tests a device, opened as commands open it.
fn test(info: DeviceInfo) -> DeviceFacts {
    if info.kind != DeviceKind::Cpu {
        return DeviceFacts { test: smoke::test(|| Device::by_name(&info.id)), info };
    }
    // The device list does not reflect settings of the CPU device, so its info comes from the opened device.
    let info = settings::open_cpu().map_or(info, |device| device.info().clone());
    DeviceFacts { test: smoke::test(settings::open_cpu), info }
}
