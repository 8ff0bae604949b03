//! Describes the machine, its timing noise and its limits.

use crate::clock::Clock;
use crate::limits::{DeviceLimits, LARGE_BYTES};
use crate::report::{Bandwidth, DeviceRoofline, Machine, MachineLimits, Noise, ValidatedDevice};
use crate::times::{median, sorted};
use kiln::device::{CpuOptions, SimdLevel};
use kiln::{Device, DeviceKind};
use kiln_bench::limits::Pattern;
use kiln_bench::{Limits, quantile};
use std::hint::black_box;

/// Describes the machine and the validated devices.
pub(crate) fn machine(devices: &[Device], clock: &dyn Clock) -> Machine {
    Machine {
        system: std::env::consts::OS.to_string(),
        architecture: std::env::consts::ARCH.to_string(),
        processor: processor(),
        threads: threads(),
        simd: devices.iter().find_map(Device::simd_level).unwrap_or_else(SimdLevel::detect).to_string(),
        devices: devices.iter().map(validated).collect(),
        noise: noise(clock),
    }
}

/// Returns the number of threads that the process may run concurrently.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn validated(device: &Device) -> ValidatedDevice {
    let info = device.info();
    let driver = format!("{} {}", info.driver, info.driver_version).trim().to_string();
    ValidatedDevice {
        id: info.id.clone(),
        name: info.name.clone(),
        driver: (info.kind != DeviceKind::Cpu).then_some(driver),
        is_software: info.kind == DeviceKind::SoftwareGpu,
    }
}

/// Returns the processor name as the CPU device reports it.
fn processor() -> Option<String> {
    // Opened for its name alone, so one thread is enough.
    Device::cpu_with(CpuOptions::new().threads(1)).ok().map(|device| device.info().name.clone())
}

const RUNS: usize = 200;

/// Measures timing noise with a fixed computation on one thread.
fn noise(clock: &dyn Clock) -> Noise {
    let mut seconds: Vec<f64> = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = clock.now();
        let mut sum = black_box(1.0f64);
        for _ in 0..400_000 {
            // Each step depends on the one before, so the time depends on the clock frequency and on interruptions only, not on memory.
            sum = sum * 0.999_999 + 0.000_001;
        }
        black_box(sum);
        seconds.push(clock.now() - start);
    }
    let sorted = sorted(seconds.iter().copied());
    let [lower, median, upper, worst] = [0.25, 0.5, 0.75, 1.0].map(|share| quantile(&sorted, share));
    let (spread, worst) = ((upper - lower) / median, worst / median);
    let verdict = match spread {
        spread if spread < 0.03 && worst < 1.5 => "quiet",
        spread if spread < 0.15 => "noisy",
        _ => "very noisy",
    };
    Noise { runs: seconds.iter().map(|run| run / median).collect(), spread, worst, verdict: verdict.to_string() }
}

/// Measures the processor's limits on all threads, with the bandwidths that the claims need.
pub(crate) fn limits(clock: &dyn Clock) -> MachineLimits {
    let mut limits = Limits::measure(threads());
    MachineLimits {
        peak_flops_per_s: limits.peak_flops(),
        read_bytes_per_s: limits.bandwidth(Pattern::Read, LARGE_BYTES),
        copy_bytes_per_s: limits.bandwidth(Pattern::Copy, LARGE_BYTES),
        thread_start_s: thread_start(clock),
        timer_resolution_s: clock.resolution(),
        bandwidths: Vec::new(),
        devices: Vec::new(),
    }
}

pub(crate) fn device_roofline(device: &str, limits: &mut DeviceLimits) -> DeviceRoofline {
    let (peak_flops_per_s, copy_bytes_per_s) = (limits.peak_flops(), limits.copy_bytes_per_s());
    DeviceRoofline { device: device.to_string(), peak_flops_per_s, copy_bytes_per_s }
}

/// Returns the bandwidths that were measured for the claims.
pub(crate) fn bandwidths(limits: &DeviceLimits) -> Vec<Bandwidth> {
    let DeviceLimits::Processor(limits) = limits else { return Vec::new() };
    let line = |(pattern, bytes, rate): (Pattern, usize, f64)| Bandwidth {
        pattern: pattern.name().to_string(),
        footprint_bytes: bytes as u64,
        bytes_per_s: rate,
    };
    limits.bandwidths().map(line).collect()
}

/// Returns the median time to spawn and join an empty thread.
fn thread_start(clock: &dyn Clock) -> f64 {
    median((0..51).map(|_| {
        let start = clock.now();
        // A failed spawn is ignored: it is not faster than a successful one.
        let _ = std::thread::Builder::new().spawn(|| ()).map(std::thread::JoinHandle::join);
        clock.now() - start
    }))
}
