//! Kernels as WGSL.

use crate::graph::TensorType;
use crate::kernel::{Body, Operand};

/// What the adapter can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WgslFeatures {
    /// The type `f16` in buffers and arithmetic.
    pub f16: bool,
    /// Operations over the invocations that run in step.
    pub subgroups: bool,
}

/// What a hand-written kernel is rendered for.
pub struct WgslCall<'a> {
    /// What the adapter can do.
    pub features: WgslFeatures,
    /// The operands of the op.
    pub operands: &'a [Operand],
    /// What is applied to each result.
    pub body: &'a Body,
    /// What is stored.
    pub output: &'a TensorType,
}

/// A kernel to compile and launch. Buffers are bound in order: the operands of the core, those of the body, the output; then the
/// uniform `params`.
#[derive(Clone, Debug, PartialEq)]
pub struct WgslKernel {
    /// The text. Lengths and strides are not part of it, so that new shapes need no new kernel.
    pub source: String,
    /// The words of `params`: lengths, strides and offsets. The scalars of a run follow, a word each, in the order of `scalars`.
    pub params: Vec<u32>,
    /// Indices of the scalars that the kernel takes.
    pub scalars: Vec<usize>,
    /// How many workgroups run.
    pub workgroups: [u32; 3],
}
