//! softmax.
