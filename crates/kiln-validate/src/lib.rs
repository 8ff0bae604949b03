//! Kiln's claims about its speed, and the harness that shows them on this machine, or says that it did not.

#![deny(unsafe_code)]

pub mod report;
