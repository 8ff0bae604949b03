//! gather.
