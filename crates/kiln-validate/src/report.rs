//! What a validation found, as data: the score card with everything that its plots need. The JSON form is these structs.

use serde::{Deserialize, Serialize};

/// The number of the JSON form. Fields may be added under the same number.
pub const FORMAT: u32 = 1;

/// A whole validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of Kiln.
    pub version: String,
    /// Whether few samples were taken.
    pub quick: bool,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long all of it took.
    pub took_s: f64,
    /// What it ran on.
    pub machine: Machine,
    /// What the machine could do at most, measured before the claims.
    pub limits: MachineLimits,
    /// Each claim, in the order of the table.
    pub claims: Vec<Outcome>,
    /// How many claims ended how.
    pub summary: Summary,
    /// What the plots show.
    pub plots: Plots,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `linux`, `macos`, `windows`.
    pub system: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// The name of the processor, where the system tells.
    pub processor: Option<String>,
    /// Threads that this process may run at once.
    pub threads: usize,
    /// The level of vector instructions that Kiln uses.
    pub simd: String,
    /// The devices that were validated.
    pub devices: Vec<ValidatedDevice>,
    /// How steady the machine is.
    pub noise: Noise,
}

/// A device that was validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidatedDevice {
    /// As on the command line: `cpu`, `gpu`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its driver, where there is one.
    pub driver: Option<String>,
    /// Whether it is a GPU in name only, which runs on the processor.
    pub is_software: bool,
}

/// How steady the machine is: one fixed piece of arithmetic, over and over, for some tenths of a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The time of each run over the median of all, in the order in which they ran.
    pub runs: Vec<f64>,
    /// Half of the runs lie this far apart, as a share of the median.
    pub spread: f64,
    /// The slowest over the median.
    pub worst: f64,
    /// `quiet`, `noisy` or `very noisy`.
    pub verdict: String,
}

/// What the machine could do at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineLimits {
    /// Additions and multiplications of `f32` per second, in fused pairs, on all threads.
    pub peak_flops_per_s: f64,
    /// Bytes per second that are read of an array far larger than the caches.
    pub read_bytes_per_s: f64,
    /// Bytes per second, read and written, of a copy far larger than the caches.
    pub copy_bytes_per_s: f64,
    /// From asking for a thread until it runs and has ended.
    pub thread_start_s: f64,
    /// The smallest step of the clock.
    pub timer_resolution_s: f64,
    /// Bandwidths of smaller arrays, which caches hold, as far as claims needed them.
    pub bandwidths: Vec<Bandwidth>,
    /// The roofs of each device that was validated.
    pub devices: Vec<Roof>,
}

/// What a device could do at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roof {
    /// As on the command line: `cpu`, `gpu:0`.
    pub device: String,
    /// Additions and multiplications of `f32` per second, in fused pairs.
    pub peak_flops_per_s: f64,
    /// Bytes per second, read and written, of a copy that its caches do not hold.
    pub copy_bytes_per_s: f64,
}

/// A measured bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// `read`, `copy` or `triad`.
    pub pattern: String,
    /// Bytes of all arrays together.
    pub footprint_bytes: u64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything was checked, and the target is reached.
    Shown,
    /// An output is wrong, or the target is missed by more than noise explains.
    Failed,
    /// Nothing can be said, for the reason that is given.
    #[serde(rename = "not shown")]
    NotShown,
}

impl Status {
    /// In words: `shown`, `failed`, `not shown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Failed => "failed",
            Self::NotShown => "not shown",
        }
    }
}

/// What became of a claim on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The claim's name.
    pub id: String,
    /// The claim in a sentence.
    pub title: String,
    /// The device: `cpu`, `gpu`.
    pub device: String,
    /// What was measured, in `unit`; `None` where nothing was.
    pub value: Option<f64>,
    /// The unit of `value`: `GFLOP/s`, `GB/s`, `ns`, `launches`.
    pub unit: String,
    /// What `ratio` is to be at least.
    pub target: f64,
    /// What Kiln is compared with: a library, a limit of the machine, Kiln without what is claimed.
    pub comparison: String,
    /// How many times as good as the comparison, or which share of the limit: the larger the better on every machine.
    pub ratio: Option<f64>,
    /// Between what the ratio lies, with 95 % confidence; of counts, which have no noise, both ends are the ratio.
    pub interval: Option<[f64; 2]>,
    /// How it ended.
    pub status: Status,
    /// Why it is not shown or failed; empty where it is shown.
    pub reason: String,
    /// Seconds for a run of Kiln; `None` where no time is claimed.
    pub median: Option<f64>,
    /// Half of the samples lie this far apart, as a share of the median.
    pub spread: Option<f64>,
    /// How many samples there are.
    pub samples: usize,
    /// What was checked.
    pub checks: Vec<Check>,
}

impl Outcome {
    /// What was found where an output was wrong, which no noise explains.
    pub fn wrong_output(&self) -> Option<&Check> {
        self.checks.iter().find(|check| !check.passed && check.name == crate::trial::check::OUTPUT)
    }
}

/// Something that must hold for a number to count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is checked: `output`, `work`, `synchronised`, `roofline`, `order`, `clock`, `counts`.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// What was found.
    pub detail: String,
}

impl Check {
    pub(crate) fn new(name: &str, passed: bool, detail: impl Into<String>) -> Self {
        Self { name: name.to_string(), passed, detail: detail.into() }
    }
}

/// How many claims ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Shown.
    pub shown: usize,
    /// Failed.
    pub failed: usize,
    /// Not shown.
    pub not_shown: usize,
}

impl Summary {
    /// Counts them.
    pub fn of(claims: &[Outcome]) -> Self {
        let count = |status: Status| claims.iter().filter(|claim| claim.status == status).count();
        Self { shown: count(Status::Shown), failed: count(Status::Failed), not_shown: count(Status::NotShown) }
    }
}

/// What the plots show. A list is empty where its claims did not run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plots {
    /// Kernels between arithmetic and bytes.
    pub roofline: Vec<RooflinePoint>,
    /// Products over their size, against a library.
    pub matmul: Vec<MatmulPoint>,
    /// What a pool holds while sizes change, and after.
    pub pool: Vec<PoolPoint>,
    /// How long a kernel takes from each tier of the cache.
    pub tiers: Vec<Tier>,
    /// A chain of ops with fusion and without.
    pub fusion: Vec<Fusion>,
}

/// A kernel on the roofline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflinePoint {
    /// Its claim.
    pub id: String,
    /// The device.
    pub device: String,
    /// Additions and multiplications for each byte that must be moved.
    pub flops_per_byte: f64,
    /// What it reached.
    pub flops_per_s: f64,
    /// What the limits allow for it, caches considered.
    pub limit_flops_per_s: f64,
}

/// A square product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatmulPoint {
    /// The device.
    pub device: String,
    /// Rows and columns.
    pub size: usize,
    /// Additions and multiplications per second of Kiln.
    pub kiln_flops_per_s: f64,
    /// The library's name.
    pub library: String,
    /// Those of the library.
    pub library_flops_per_s: f64,
}

/// A pool at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolPoint {
    /// The device.
    pub device: String,
    /// The step of the work.
    pub step: usize,
    /// Bytes that buffers hold.
    pub in_use_bytes: u64,
    /// Bytes that the pool has from the driver.
    pub reserved_bytes: u64,
}

/// One tier of the kernel cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// The device.
    pub device: String,
    /// `compiled`, `from disk`, `from memory`.
    pub tier: String,
    /// The median.
    pub seconds: f64,
}

/// A chain of ops in one form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fusion {
    /// The device.
    pub device: String,
    /// `fused` or `one by one`.
    pub form: String,
    /// Kernels that are launched.
    pub launches: u64,
    /// Bytes that kernels read and write.
    pub bytes: u64,
    /// The median.
    pub seconds: f64,
}
