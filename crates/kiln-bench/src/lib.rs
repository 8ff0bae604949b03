//! The works that Kiln is measured by, and how they are timed.
//!
//! Owns the table of [works](works()) with their data, costs and references in `f64`; Kiln's own form of each ([`Ours`]); the clock that
//! lets several arms take turns ([`compare`]); the check of every output ([`Op::check`]); and the limits of the machine ([`Limits`]).
//! Refuses other libraries, which are measured from a workspace of their own, printing and files.
//!
//! The types to know: [`Work`], one line of the table; [`Op`], what it computes; [`Ready`], a library's form of it.
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
//! In the order of use: `data` numbers by a formula · `op` what is computed, on what, at which cost · `works` the table · `reference` and
//! `check` what must come out · `ready` and `ours` a library's form, and Kiln's · `time` the clock · `limits` what the machine could do ·
//! `single` and `formula` one op on shapes of the caller's choice, and what must come out of it.

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

/// What can go wrong in an arm, which may be of any library.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
