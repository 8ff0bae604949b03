//! Events through the public API: their content, and that no sink loses, splits or fails anything.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod content;
mod eviction;
mod failure;
mod jsonl;
mod process_end;
mod record;
mod sinks;
