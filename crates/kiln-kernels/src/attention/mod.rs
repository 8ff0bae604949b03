//! attention.
