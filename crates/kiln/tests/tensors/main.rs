//! Tensors, from the outside.
#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

mod lazy;
