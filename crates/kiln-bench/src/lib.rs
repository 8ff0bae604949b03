//! Benchmark workloads and how they are timed.
//!
//! Owns the table of [workloads](workloads()) with their data, costs and `f64` references; Kiln's implementation of each ([`KilnWorkload`]); the timer that
//! interleaves several arms ([`compare`]); the check of every output ([`Op::check`]); and the limits of the machine ([`Limits`]).
//! Does not contain other libraries, which are measured from a separate workspace, and does not print or write files.
//!
//! The types to know: [`Workload`], a row of the table; [`Op`], what it computes; [`PreparedWorkload`], a library's implementation of it.
//!
//! ```
//! use kiln::Device;
//! use kiln::device::CpuOptions;
//! use kiln_bench::{Closeness, SamplingConfig, ElementType, KilnWorkload, compare, find};
//!
//! # fn main() -> Result<(), kiln_bench::Fault> {
//! let workload = find("mlp-1x64x64").ok_or("no such workload")?;
//! let (one, two) = (Device::cpu_with(CpuOptions::new().threads(1))?, Device::cpu_with(CpuOptions::new().threads(2))?);
//! let (one, two) = (KilnWorkload::new(&workload.op, ElementType::F32, &one)?.into_prepared(), KilnWorkload::new(&workload.op, ElementType::F32, &two)?.into_prepared());
//! assert_eq!(workload.op.check(ElementType::F32, &one.output()?)?, Closeness::Close);
//! assert_eq!(workload.op.check(ElementType::F32, &two.output()?)?, Closeness::Close);
//!
//! let timings = compare(&mut [one.arm("one thread"), two.arm("two threads")], &SamplingConfig::quick());
//! for timing in timings {
//!     println!("{} s", timing?.median);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! In the order of use: `data` generated inputs · `op` ops, their inputs and costs · `workloads` the table · `reference` and `check` expected
//! outputs · `prepared` and `kiln_workload` an implementation by any library, and by Kiln · `time` the timer · `limits` the machine's roofline ·
//! `single` and `formula` one op on caller-chosen shapes, and its expected output.

mod check;
mod data;
mod formula;
mod kiln_workload;
pub mod limits;
mod op;
mod prepared;
mod reference;
mod single;
mod time;
mod workloads;

pub use check::{Closeness, OutputError};
pub use data::{Input, uniform};
pub use formula::Formula;
pub use kiln_workload::KilnWorkload;
pub use limits::Limits;
pub use op::{ElementType, Op};
pub use prepared::PreparedWorkload;
pub use single::{Checked, Operand, SingleOp};
pub use time::{Arm, BalancedOrder, Compared, SamplingConfig, Timing, compare, quantile, runs_per_sample};
pub use workloads::{Workload, find, workloads};

/// The error of an arm, which may come from any library.
///
/// See the [crate documentation](crate) for an example.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
