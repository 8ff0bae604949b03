//! What a device could do at most: loops of the processor for the CPU device, kernels of one line for a GPU.

use kiln::{Buffer, Device, DeviceKind, Grid, Kernel, KernelSource};
use kiln_bench::limits::Pattern;
use kiln_bench::{Fault, Limits, Number, Op};
use std::time::Instant;

/// Bytes far beyond the caches of any processor that people have on a desk.
pub(crate) const LARGE_BYTES: f64 = 256e6;

/// The limits of a device. Those of the processor are measured where claims ask for them.
#[derive(Debug)]
pub enum DeviceLimits {
    /// Of the processor, caches considered.
    Processor(Limits),
    /// Of a GPU.
    Gpu {
        /// Additions and multiplications of `f32` per second, in fused pairs.
        peak_flops: f64,
        /// Bytes per second, read and written, of a copy of 64 MiB.
        copy_bytes_per_s: f64,
    },
}

/// Tries, of which the best counts: what disturbs a try only makes it slower.
const TRIES: usize = 5;

impl DeviceLimits {
    /// Measures a device.
    ///
    /// # Errors
    /// The device's fault.
    pub fn measure(device: &Device) -> Result<Self, Fault> {
        if device.info().kind == DeviceKind::Cpu {
            let threads = device.info().limits.threads.unwrap_or(1);
            return Ok(Self::Processor(Limits::measure(threads as usize)));
        }
        Ok(Self::Gpu { peak_flops: gpu_peak(device)?, copy_bytes_per_s: gpu_copy(device)? })
    }

    /// Additions and multiplications per second.
    pub fn peak_flops(&self) -> f64 {
        match self {
            Self::Processor(limits) => limits.peak_flops(),
            Self::Gpu { peak_flops, .. } => *peak_flops,
        }
    }

    /// Bytes per second, read and written, of a copy that the device's caches do not hold.
    pub fn copy_bytes_per_s(&mut self) -> f64 {
        match self {
            Self::Processor(limits) => limits.bandwidth(Pattern::Copy, LARGE_BYTES),
            Self::Gpu { copy_bytes_per_s, .. } => *copy_bytes_per_s,
        }
    }

    /// The least time for a run of an op; none for small adds, where the cost of a call is all there is.
    pub fn least_s(&mut self, op: &Op, number: Number) -> Option<f64> {
        match self {
            Self::Processor(limits) => Some(limits.least(op, number)?.seconds()),
            Self::Gpu { peak_flops, copy_bytes_per_s } => {
                let bytes = op.bytes_read(number) + op.bytes_written(number);
                let least = (op.flops() / *peak_flops).max(bytes / *copy_bytes_per_s);
                (op.ops_per_run() == 1).then_some(least)
            }
        }
    }
}

const WORKGROUP: u32 = 64;

/// Sums that do not need each other, in registers.
const FMA: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> rounds: vec4<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = vec4<f32>(0.999, 0.998, 0.997, 0.996);
    let y = vec4<f32>(f32(id.x & 7u) * 0.001);
    var a = y; var b = y + 1.0; var c = y + 2.0; var d = y + 3.0; var e = y + 4.0; var f = y + 5.0; var g = y + 6.0; var h = y + 7.0;
    for (var i = 0u; i < rounds.x; i++) {
        a = fma(a, x, y); b = fma(b, x, y); c = fma(c, x, y); d = fma(d, x, y);
        e = fma(e, x, y); f = fma(f, x, y); g = fma(g, x, y); h = fma(h, x, y);
    }
    out[id.x] = a + b + c + d + e + f + g + h;
}";

/// 16 bytes by each invocation.
const COPY: &str = "
@group(0) @binding(0) var<storage, read> from: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.x + id.y * groups.x * 64u;
    if (i < arrayLength(&from)) { out[i] = from[i]; }
}";

fn gpu_peak(device: &Device) -> Result<f64, Fault> {
    let kernel = device.kernel(KernelSource::wgsl(FMA).named("limit_fma"))?;
    let invocations = 64 * 1024;
    let mut out = device.buffer(u64::from(invocations) * 16)?;
    // Long enough that a dispatch does not show, short enough for a software device.
    let mut rounds = 8u32;
    loop {
        let seconds = best(device, || {
            let launch = kernel.launch().bind("out", &mut out).value("rounds", [rounds, 0, 0, 0]);
            launch.grid(Grid::workgroups([invocations / WORKGROUP, 1, 1])).submit()
        })?;
        if seconds > 0.02 || rounds >= 1 << 14 {
            let flops = f64::from(invocations) * f64::from(rounds) * 8.0 * 4.0 * 2.0;
            return Ok(flops / seconds);
        }
        rounds *= 4;
    }
}

fn gpu_copy(device: &Device) -> Result<f64, Fault> {
    let kernel: Kernel = device.kernel(KernelSource::wgsl(COPY).named("limit_copy"))?;
    let bytes = (64u64 << 20).min(device.info().limits.max_binding_bytes);
    let (from, mut to): (Buffer, Buffer) = (device.buffer(bytes)?, device.buffer(bytes)?);
    from.zero()?;
    let workgroups = (bytes / 16).div_ceil(u64::from(WORKGROUP)) as u32;
    // Both axes, as one may not have so many.
    let grid = Grid::workgroups([workgroups.min(32768), workgroups.div_ceil(32768), 1]);
    let seconds = best(device, || kernel.launch().bind("from", &from).bind("out", &mut to).grid(grid).submit())?;
    Ok(2.0 * bytes as f64 / seconds)
}

/// The least time of some tries, after one to warm up.
fn best(device: &Device, mut submit: impl FnMut() -> kiln::Result<u64>) -> Result<f64, Fault> {
    let mut least = f64::INFINITY;
    for attempt in 0..=TRIES {
        let start = Instant::now();
        submit()?;
        device.synchronize()?;
        if attempt > 0 {
            least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least)
}
