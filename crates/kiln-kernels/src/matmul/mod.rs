//! matmul.
