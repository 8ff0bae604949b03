//! Measures the roofline of a device: processor loops for the CPU device, one-line kernels for a GPU.

use kiln::buffer::Buffer;
use kiln::kernel::{Grid, KernelSource};
use kiln::{Device, DeviceKind};
use kiln_bench::limits::{Pattern, Roofline};
use kiln_bench::{ElementType, Fault, Limits, Op};
use std::collections::BTreeMap;
use std::time::Instant;

/// A footprint far beyond the caches of any desktop processor.
pub(crate) const LARGE_BYTES: f64 = 256e6;

/// The limits of a device. Each is the best value seen so far, because noise only makes a measurement slower.
///
/// See the [crate documentation](crate) for an example.
#[derive(Debug)]
pub enum DeviceLimits {
    /// Limits of the processor, caches considered.
    Processor(Limits),
    /// Limits of a GPU.
    Gpu {
        /// Peak `f32` FLOP/s, as fused multiply-adds.
        peak_flops: f64,
        /// Copy bandwidth in bytes per second, reads plus writes, by size of the copy in bytes.
        copies: BTreeMap<u64, f64>,
    },
}

/// Number of tries. The best one counts.
const TRIES: usize = 5;
/// Bytes of the largest copy on a GPU.
const MAX_GPU_COPY: u64 = 128 << 20;

impl DeviceLimits {
    /// Measures the limits of a device.
    ///
    /// # Errors
    /// Returns the error of the device.
    pub fn measure(device: &Device) -> Result<Self, Fault> {
        if device.info().kind == DeviceKind::Cpu {
            let threads = device.info().limits.threads.unwrap_or(1);
            return Ok(Self::Processor(Limits::measure(threads as usize)));
        }
        let copies = BTreeMap::from([(MAX_GPU_COPY, gpu_copy(device, MAX_GPU_COPY)?)]);
        Ok(Self::Gpu { peak_flops: gpu_peak(device)?, copies })
    }

    /// Returns the peak FLOP/s.
    pub fn peak_flops(&self) -> f64 {
        match self {
            Self::Processor(limits) => limits.peak_flops(),
            Self::Gpu { peak_flops, .. } => *peak_flops,
        }
    }

    /// Returns the copy bandwidth beyond the device's caches in bytes per second, reads plus writes.
    pub fn copy_bytes_per_s(&mut self) -> f64 {
        match self {
            Self::Processor(limits) => limits.bandwidth(Pattern::Copy, LARGE_BYTES),
            // The map is ordered by size, and `measure` adds the largest one first.
            Self::Gpu { copies, .. } => copies.values().next_back().copied().unwrap_or(f64::NAN),
        }
    }

    /// Returns the roofline time for this number of FLOPs and of bytes read and written.
    pub fn roofline_of(&mut self, flops: f64, read: f64, written: f64) -> Roofline {
        match self {
            Self::Processor(limits) => limits.roofline_of(flops, read, written),
            Self::Gpu { .. } => {
                Roofline { compute: flops / self.peak_flops(), memory: (read + written) / self.copy_bytes_per_s() }
            }
        }
    }

    /// Returns the roofline time of one run of an op, or `None` for small adds, which are bound by call overhead.
    pub fn roofline_s(&mut self, op: &Op, dtype: ElementType) -> Option<f64> {
        match self {
            Self::Processor(limits) => Some(limits.roofline(op, dtype)?.seconds()),
            Self::Gpu { peak_flops, copies } => {
                // Found only after `improve` for this op.
                let rate = copies.get(&footprint(op, dtype))?;
                let roofline = (op.flops() / *peak_flops).max(bytes(op, dtype) / rate);
                (op.ops_per_run() == 1).then_some(roofline)
            }
        }
    }

    /// Measures the limits of an op again and keeps the better values.
    ///
    /// # Errors
    /// Returns the error of the device.
    pub fn improve(&mut self, device: &Device, op: &Op, dtype: ElementType) -> Result<(), Fault> {
        match self {
            Self::Processor(limits) => limits.improve(op, dtype),
            Self::Gpu { peak_flops, copies } => {
                let (key, peak) = (footprint(op, dtype), gpu_peak(device)?);
                let rate = gpu_copy(device, key)?;
                *peak_flops = peak_flops.max(peak);
                copies.entry(key).and_modify(|known| *known = known.max(rate)).or_insert(rate);
            }
        }
        Ok(())
    }
}

fn bytes(op: &Op, dtype: ElementType) -> f64 {
    op.bytes_read(dtype) + op.bytes_written(dtype)
}

/// Returns the size of the copy that an op is compared with.
fn footprint(op: &Op, dtype: ElementType) -> u64 {
    (bytes(op, dtype) as u64).next_power_of_two().clamp(1 << 16, MAX_GPU_COPY)
}

const WORKGROUP: u32 = 64;

/// Independent accumulators in registers, so that the latency of an FMA is hidden.
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

/// Copies `EACH` vectors of 16 bytes per invocation.
const COPY: &str = "
override EACH: u32 = 1u;
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 64u * EACH + lane;
    for (var i = 0u; i < EACH; i++) {
        let at = first + i * 64u;
        if (at < arrayLength(&x)) { out[at] = x[at]; }
    }
}";

fn gpu_peak(device: &Device) -> Result<f64, Fault> {
    let kernel = device.kernel(KernelSource::wgsl(FMA).named("limit_fma"))?;
    let invocations = 64 * 1024;
    let mut out = device.buffer(u64::from(invocations) * 16)?;
    // Long enough to hide the dispatch overhead, short enough for a software device.
    let mut rounds = 8u32;
    loop {
        let seconds = best(device, || {
            let launch = kernel.launch().bind("out", &mut out).value("rounds", [rounds, 0, 0, 0]);
            launch.grid(Grid::workgroups([invocations / WORKGROUP, 1, 1])).submit()
        })?;
        if seconds > 0.02 || rounds >= 1 << 14 {
            // 8 accumulators of 4 lanes, 2 FLOPs per multiply-add.
            let flops = f64::from(invocations) * f64::from(rounds) * 8.0 * 4.0 * 2.0;
            return Ok(flops / seconds);
        }
        rounds *= 4;
    }
}

/// Returns the bandwidth of the fastest copy kernel for this footprint, reads plus writes.
fn gpu_copy(device: &Device, footprint: u64) -> Result<f64, Fault> {
    let bytes = (footprint / 2).min(device.info().limits.max_binding_bytes);
    let (from, mut to): (Buffer, Buffer) = (device.buffer(bytes)?, device.buffer(bytes)?);
    from.zero()?;
    let mut fastest_s = f64::INFINITY;
    // Which of the two is faster depends on the device.
    for each in [1u32, 8] {
        let kernel = device.kernel(KernelSource::wgsl(COPY).named("limit_copy").constant("EACH", f64::from(each)))?;
        let workgroups = (bytes / 16).div_ceil(u64::from(WORKGROUP * each)) as u32;
        // Two axes, because the number of workgroups per axis is limited.
        let grid = Grid::workgroups([workgroups.min(32768), workgroups.div_ceil(32768), 1]);
        fastest_s =
            fastest_s.min(best(device, || kernel.launch().bind("x", &from).bind("out", &mut to).grid(grid).submit())?);
    }
    Ok(2.0 * bytes as f64 / fastest_s)
}

/// Minimum duration of a try: several launches are submitted before one wait, as the arms of a trial do.
const TRY_S: f64 = 0.01;
const MAX_LAUNCHES: f64 = 64.0;

/// Returns the least time per launch over several tries, after one launch to warm up and one to estimate the duration.
fn best(device: &Device, mut submit: impl FnMut() -> kiln::Result<u64>) -> Result<f64, Fault> {
    let mut timed = |launches: u32| -> Result<f64, Fault> {
        let start = Instant::now();
        for _ in 0..launches {
            submit()?;
        }
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(launches))
    };
    timed(1)?;
    let launches = (TRY_S / timed(1)?).clamp(1.0, MAX_LAUNCHES) as u32;
    (0..TRIES).try_fold(f64::INFINITY, |fastest_s, _| Ok(fastest_s.min(timed(launches)?)))
}
