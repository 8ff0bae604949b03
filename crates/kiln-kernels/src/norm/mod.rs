//! norm.
