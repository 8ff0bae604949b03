//! Kiln's performance claims and the harness that verifies them on this machine.
//!
//! Owns the table of [claims](claims()); the [`Trial`], which times subjects and checks everything that could invalidate their times;
//! the [limits](limits::DeviceLimits) of a device; the [report] as data; and the comparison with an earlier [report](baseline).
//! Does not print or write files: the `kiln` program does both.
//!
//! The types to know: [`Claim`], a row of the table; [`Subject`] and [`Referee`], the measured code and the check of its output; [`Report`].
//!
//! ```
//! use kiln_validate::{Options, report::Status, validate};
//!
//! # fn main() -> Result<(), kiln_bench::Fault> {
//! let device = kiln::Device::cpu()?;
//! let report = validate(&[device], &Options::quick().only(&["fusion-bytes"])?, &mut |_| ())?;
//! assert_eq!(report.claims[0].status, Status::Shown);
//! # Ok(())
//! # }
//! ```
//!
//! In the order of use: `clock` time and arm order · `subject` the measured code · `trial` samples and their checks · `times` sample statistics ·
//! `claim` from a number to a status · `claims` the table · `limits` and `machine` measured limits and hardware · `run` the whole validation ·
//! `report` the result · `baseline` regressions.

#![deny(unsafe_code)]

pub mod baseline;
pub mod claim;
mod claims;
pub mod clock;
pub mod limits;
mod machine;
pub mod report;
mod run;
pub mod subject;
pub mod times;
pub mod trial;

pub use claim::{Claim, Evidence, Targets};
pub use claims::claims;
pub use report::Report;
pub use run::{Options, Progress, validate};
pub use subject::{Referee, Subject};
pub use trial::Trial;
