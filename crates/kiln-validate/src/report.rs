//! The result of a validation as data: the score card and the data of its plots. The JSON format is these structs.

use serde::{Deserialize, Serialize};

/// Version of the JSON format. Adding fields does not change it.
///
/// See the [crate documentation](crate) for an example.
pub const FORMAT: u32 = 1;

/// The result of a validation.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of Kiln.
    pub version: String,
    /// Whether this was a quick run with few samples.
    pub quick: bool,
    /// Start time, in seconds since 1970.
    pub began_unix_s: u64,
    /// Total duration.
    pub took_s: f64,
    /// The machine it ran on.
    pub machine: Machine,
    /// Limits of the machine, measured before the claims.
    pub limits: MachineLimits,
    /// Outcome of each claim, in table order.
    pub claims: Vec<Outcome>,
    /// Number of claims per status.
    pub summary: Summary,
    /// Data of the plots.
    pub plots: Plots,
}

/// Description of the machine.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `linux`, `macos`, `windows`.
    pub system: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Processor name, if the system reports one.
    pub processor: Option<String>,
    /// Number of threads that this process may run concurrently.
    pub threads: usize,
    /// SIMD level that Kiln uses.
    pub simd: String,
    /// The validated devices.
    pub devices: Vec<ValidatedDevice>,
    /// Timing noise of the machine.
    pub noise: Noise,
}

/// A validated device.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidatedDevice {
    /// Identifier as on the command line: `cpu`, `gpu`.
    pub id: String,
    /// Device name.
    pub name: String,
    /// Driver, if there is one.
    pub driver: Option<String>,
    /// Whether it is a software GPU, which runs on the processor.
    pub is_software: bool,
}

/// Timing noise of the machine: a fixed computation, repeated for some tenths of a second.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Time of each run divided by the median, in run order.
    pub runs: Vec<f64>,
    /// Interquartile range, as a fraction of the median.
    pub spread: f64,
    /// Slowest run divided by the median.
    pub worst: f64,
    /// `quiet`, `noisy` or `very noisy`.
    pub verdict: String,
}

/// Measured upper limits of the machine.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineLimits {
    /// Peak `f32` FLOP/s, as fused multiply-adds, on all threads.
    pub peak_flops_per_s: f64,
    /// Read bandwidth in bytes per second, for an array far larger than the caches.
    pub read_bytes_per_s: f64,
    /// Copy bandwidth in bytes per second, reads plus writes, for arrays far larger than the caches.
    pub copy_bytes_per_s: f64,
    /// Time to spawn and join a thread.
    pub thread_start_s: f64,
    /// Resolution of the clock.
    pub timer_resolution_s: f64,
    /// Bandwidths of smaller, cache-resident arrays, as far as claims needed them.
    pub bandwidths: Vec<Bandwidth>,
    /// Roofline of each validated device.
    pub devices: Vec<DeviceRoofline>,
}

/// Measured upper limits of a device.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRoofline {
    /// Identifier as on the command line: `cpu`, `gpu:0`.
    pub device: String,
    /// Peak `f32` FLOP/s, as fused multiply-adds.
    pub peak_flops_per_s: f64,
    /// Copy bandwidth in bytes per second, reads plus writes, beyond the device's caches.
    pub copy_bytes_per_s: f64,
}

/// A measured bandwidth.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// `read`, `copy` or `triad`.
    pub pattern: String,
    /// Total size of all arrays.
    pub footprint_bytes: u64,
    /// Bandwidth.
    pub bytes_per_s: f64,
}

/// Status of a claim.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All checks passed and the target is reached.
    Shown,
    /// An output is wrong, or the target is missed by more than noise explains.
    Failed,
    /// The result is inconclusive; the outcome states the reason.
    #[serde(rename = "not shown")]
    NotShown,
}

impl Status {
    /// Returns the name: `shown`, `failed`, `not shown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Failed => "failed",
            Self::NotShown => "not shown",
        }
    }
}

/// The outcome of a claim on a device.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the claim.
    pub id: String,
    /// The claim as a sentence.
    pub title: String,
    /// Device: `cpu`, `gpu`.
    pub device: String,
    /// Measured value, in `unit`; `None` if nothing was measured.
    pub value: Option<f64>,
    /// Unit of `value`: `GFLOP/s`, `GB/s`, `ns`, `launches`.
    pub unit: String,
    /// Minimum for `ratio`.
    pub target: f64,
    /// The baseline that Kiln is compared with: a library, a limit of the machine, or Kiln with the claimed feature disabled.
    pub comparison: String,
    /// Speedup over the comparison, or fraction of the limit. Larger is better on every machine.
    pub ratio: Option<f64>,
    /// 95 % confidence interval of the ratio. Counts have no noise, so both ends equal the ratio.
    pub interval: Option<[f64; 2]>,
    /// Status of the claim.
    pub status: Status,
    /// Why the claim is not shown or failed; empty if it is shown.
    pub reason: String,
    /// Median seconds per run of Kiln; `None` if the claim is not about time.
    pub median: Option<f64>,
    /// Interquartile range of the samples, as a fraction of the median.
    pub spread: Option<f64>,
    /// Number of samples.
    pub samples: usize,
    /// The checks and their results.
    pub checks: Vec<Check>,
}

impl Outcome {
    /// Returns the failed output check, if any. Noise never explains a wrong output.
    pub fn wrong_output(&self) -> Option<&Check> {
        self.checks.iter().find(|check| !check.passed && check.name == crate::trial::check::OUTPUT)
    }
}

/// A condition that must hold for a measurement to count.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the check: `output`, `work`, `synchronised`, `roofline`, `order`, `clock`, `counts`.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// Details of the result.
    pub detail: String,
}

impl Check {
    pub(crate) fn new(name: &str, passed: bool, detail: impl Into<String>) -> Self {
        Self { name: name.to_string(), passed, detail: detail.into() }
    }
}

/// Number of claims per status.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Claims that are shown.
    pub shown: usize,
    /// Claims that failed.
    pub failed: usize,
    /// Claims that are not shown.
    pub not_shown: usize,
}

impl Summary {
    /// Counts the claims by status.
    pub fn of(claims: &[Outcome]) -> Self {
        let count = |status: Status| claims.iter().filter(|claim| claim.status == status).count();
        Self { shown: count(Status::Shown), failed: count(Status::Failed), not_shown: count(Status::NotShown) }
    }
}

/// Data of the plots. A list is empty if its claims did not run.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plots {
    /// Kernels on the roofline.
    pub roofline: Vec<RooflinePoint>,
    /// Matmul throughput by size, compared with a library.
    pub matmul: Vec<MatmulPoint>,
    /// Pool usage while sizes change, and afterwards.
    pub pool: Vec<PoolPoint>,
    /// Kernel load time from each cache tier.
    pub tiers: Vec<Tier>,
    /// A chain of ops with and without fusion.
    pub fusion: Vec<Fusion>,
}

/// A kernel on the roofline.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflinePoint {
    /// Name of its claim.
    pub id: String,
    /// The device.
    pub device: String,
    /// Arithmetic intensity: FLOPs per byte that must be moved.
    pub flops_per_byte: f64,
    /// Achieved FLOP/s.
    pub flops_per_s: f64,
    /// Roofline limit for this kernel, caches considered.
    pub limit_flops_per_s: f64,
}

/// Throughput of a square matmul.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatmulPoint {
    /// The device.
    pub device: String,
    /// Number of rows and columns.
    pub size: usize,
    /// FLOP/s of Kiln.
    pub kiln_flops_per_s: f64,
    /// Name of the library.
    pub library: String,
    /// FLOP/s of the library.
    pub library_flops_per_s: f64,
}

/// Pool usage at one step.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolPoint {
    /// The device.
    pub device: String,
    /// Step of the workload.
    pub step: usize,
    /// Bytes held by live buffers.
    pub in_use_bytes: u64,
    /// Bytes that the pool has reserved from the driver.
    pub reserved_bytes: u64,
}

/// Load time from one tier of the kernel cache.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// The device.
    pub device: String,
    /// `compiled`, `from disk`, `from memory`.
    pub tier: String,
    /// Median time.
    pub seconds: f64,
}

/// Cost of a chain of ops, fused or unfused.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fusion {
    /// The device.
    pub device: String,
    /// `fused` or `unfused`.
    pub form: String,
    /// Number of kernel launches.
    pub launches: u64,
    /// Bytes read and written by kernels.
    pub bytes: u64,
    /// Median time.
    pub seconds: f64,
}
