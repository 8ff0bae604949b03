//! Kiln's claims about its speed, and the harness that shows them on this machine, or says that it did not.
//!
//! Owns the table of [claims](claims()); the [`Trial`], which times subjects and checks everything that could make their times worthless;
//! the [limits](limits::DeviceLimits) of a device; the [report] as data; and the comparison with an earlier [report](baseline).
//! Refuses printing and files: the `kiln` program does both.
//!
//! The types to know: [`Claim`], a line of the table; [`Subject`] and [`Referee`], what is measured and who judges it; [`Report`].
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
//! In the order of use: `clock` the time and the turns · `subject` what is measured · `trial` the samples and their checks · `times` what samples say · `claim` from a
//! number to a status · `claims` the table · `limits` and `machine` what there is · `run` all of it · `report` the result · `baseline` what
//! became slower.

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
