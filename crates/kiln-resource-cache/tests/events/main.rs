//! Events through the public API: what is told, and that no sink can lose, split or fail anything.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod content;
mod eviction;
mod failure;
mod jsonl;
mod process_end;
mod record;
mod sinks;
