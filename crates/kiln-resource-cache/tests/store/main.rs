//! The disk store through its public API: kills, damage, full and read-only disks, and several processes.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod archive;
mod damage;
mod directory;
mod failure;
mod fixture;
mod format;
mod kill;
mod limits;
mod listing;
mod processes;
mod races;
mod usage;
