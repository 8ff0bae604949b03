//! Benchmark workloads and how they are timed.
//!
//! Owns the table of [workloads](works()) with their data, costs and `f64` references; Kiln's implementation of each ([`Ours`]); the timer that
//! interleaves several arms ([`compare`]); the check of every output ([`Op::check`]); and the limits of the machine ([`Limits`]).
//! Does not contain other libraries, which are measured from a separate workspace, and does not print or write files.
//!
//! The types to know: [`Work`], a row of the table; [`Op`], what it computes; [`Ready`], a library's implementation of it.
//!
//! ```
//! use kiln::Device;
//! use kiln::device::CpuOptions;
//! use kiln_bench::{Closeness, Effort, Number, Ours, compare, find};
//!
//! # fn main() -> Result<(), kiln_bench::Fault> {
//! let work = find("mlp-1x64x64").ok_or("no such work")?;
//! let (one, two) = (Device::cpu_with(CpuOptions::new().threads(1))?, Device::cpu_with(CpuOptions::new().threads(2))?);
//! let (one, two) = (Ours::new(&work.op, Number::F32, &one)?.ready(), Ours::new(&work.op, Number::F32, &two)?.ready());
//! assert_eq!(work.op.check(Number::F32, &one.output()?)?, Closeness::Close);
//! assert_eq!(work.op.check(Number::F32, &two.output()?)?, Closeness::Close);
//!
//! let timings = compare(&mut [one.arm("one thread"), two.arm("two threads")], &Effort::quick());
//! for timing in timings {
//!     println!("{} s", timing?.median);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! In the order of use: `data` generated inputs · `op` ops, their inputs and costs · `works` the table · `reference` and `check` expected
//! outputs · `ready` and `ours` an implementation by any library, and by Kiln · `time` the timer · `limits` the machine's roofline ·
//! `single` and `formula` one op on caller-chosen shapes, and its expected output.

mod check;
mod data;
mod formula;
pub mod limits;
mod op;
mod ours;
mod ready;
mod reference;
mod single;
mod time;
mod works;

pub use check::{Closeness, Wrong};
pub use data::{Input, uniform};
pub use formula::Formula;
pub use limits::Limits;
pub use op::{Number, Op};
pub use ours::Ours;
pub use ready::Ready;
pub use single::{Checked, Operand, Single};
pub use time::{Arm, Balanced, Compared, Effort, Timing, compare, quantile, runs_per_sample};
pub use works::{Work, find, works};

/// The error of an arm, which may come from any library.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
