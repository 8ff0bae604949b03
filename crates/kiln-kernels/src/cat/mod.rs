//! cat.
