//! WGSL code generation.
//!
//! Modules, in the order of the data flow: `builder` the text common to all kernels · `memory` and `convert` loads,
//! stores and conversions · `frame` operand indices · `body` elementwise programs · `map` and `reduce` the generated
//! kernels.

mod body;
mod builder;
mod convert;
mod frame;
mod map;
mod memory;
mod reduce;
#[cfg(test)]
mod tests;

pub use builder::WgslBuilder;

use crate::Result;
use crate::graph::TensorType;
use crate::kernel::{Body, Core, Kernel, Operand};
use std::sync::Arc;

/// Returns the unroll factor of a loop of `steps` iterations that keeps the loop within [`LOOP_STEPS`].
///
/// Mesa's software Vulkan driver silently terminates all loops of an invocation after 65,535 iterations.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
pub fn unroll_factor(steps: usize) -> u32 {
    let copies = steps.div_ceil(LOOP_STEPS).next_power_of_two();
    u32::try_from(copies).unwrap_or(u32::MAX)
}

/// Maximum iterations of one loop: a quarter of the limit that the strictest driver sets for all loops of an
/// invocation (see [`unroll_factor`]).
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
pub const LOOP_STEPS: usize = 1 << 14;

/// Capabilities of the adapter.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WgslFeatures {
    /// Support for the type `f16` in buffers and arithmetic.
    pub f16: bool,
    /// Maximum subgroup size, if the adapter supports subgroup operations.
    pub subgroup_size: Option<u32>,
}

/// The arguments for rendering a hand-written kernel.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
pub struct WgslCall<'a> {
    /// Capabilities of the adapter.
    pub features: WgslFeatures,
    /// The operands of the op.
    pub operands: &'a [Operand],
    /// The epilogue applied to each result.
    pub body: &'a Body,
    /// Shape and dtype of the output.
    pub output: &'a TensorType,
}

/// A kernel to compile and launch.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct WgslKernel {
    /// The source. It depends on lengths only by class (workgroup division, unroll factor, whether rows are multiples
    /// of four, which operands have offset 0), so most new shapes need no new kernel.
    pub source: Arc<str>,
    /// The entry point; `None` if the source has only one.
    pub entry: Option<String>,
    /// Values of `override` constants.
    pub constants: Vec<(String, f64)>,
    /// The bindings of group 0. A binding that the entry point does not use is absent from the compiled kernel and is
    /// not bound.
    pub bindings: Vec<WgslBinding>,
    /// The words of the uniform: lengths, strides and offsets. The scalars of a run follow, one word each, in the
    /// order of `scalars`.
    pub params: Vec<u32>,
    /// Indices of the scalars that the kernel reads.
    pub scalars: Vec<usize>,
    /// The dispatch size in workgroups.
    pub workgroups: [u32; 3],
    /// Whether the output must be zeroed first.
    pub zeroes_output: bool,
    /// Run-time checks that the source does not need.
    pub guarantees: WgslGuarantees,
}

/// One binding of a [`WgslKernel`].
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WgslBinding {
    /// The `@binding` number.
    pub number: u32,
    /// The bound argument.
    pub argument: WgslArgument,
    /// Bytes of the buffer to bind, for kernels that use `arrayLength`; `None` for the whole buffer.
    pub bytes: Option<u64>,
}

/// The argument of a [`WgslBinding`].
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WgslArgument {
    /// An operand, by its index in [`Step::reads`](crate::plan::Step::reads).
    Operand(usize),
    /// The output.
    Output,
    /// The uniform with the parameters and scalars.
    Params,
}

/// Run-time checks that a kernel's author guarantees to be unnecessary.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WgslGuarantees {
    /// All loops terminate.
    pub loops_end: bool,
    /// Workgroup memory is written before it is read, so it need not be zeroed.
    pub workgroup_is_written: bool,
}

/// Renders a kernel of a plan as WGSL.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
///
/// # Errors
/// Returns `Unsupported` if a hand-written kernel has no WGSL for its operands; `TooLarge` if a reduction has more
/// elements than its counters can hold.
pub fn render(kernel: &Kernel, features: WgslFeatures) -> Result<WgslKernel> {
    // Holds for generated kernels: a map has no workgroup memory, and a reduction writes its part before the barrier.
    let written_first = |rendered: WgslKernel| {
        let guarantees = WgslGuarantees { workgroup_is_written: true, ..rendered.guarantees };
        WgslKernel { guarantees, ..rendered }
    };
    match &kernel.core {
        Core::Map => Ok(written_first(map::render(kernel, features))),
        Core::Reduce { op, input, kept } => reduce::render(kernel, (*op, input, *kept), features).map(written_first),
        Core::Op { op, operands } => {
            op.wgsl(&WgslCall { features, operands, body: &kernel.body, output: &kernel.output })
        }
    }
    .map_err(|error| error.context(format!("kernel `{}`", kernel.name)))
}

/// Returns the size of a workgroup whose subgroups, of at most `most` invocations, work independently, and its
/// minimum number of subgroups.
///
/// Kernels assume no more than that: subgroup `group * subgroups + subgroup` begins with the item of that index, and
/// advances by the total number of subgroups.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
pub fn subgroup_teams(most: u32) -> (u32, u32) {
    const INVOCATIONS: u32 = 64;
    (most.max(INVOCATIONS), (INVOCATIONS / most).max(1))
}

/// Returns a grid of at least this many workgroups, with at most 65,535 along an axis, the limit of every device. The
/// index of a workgroup is `group.y * groups.x + group.x`; there may be excess workgroups at the end.
///
/// See [`KernelOp`](crate::KernelOp) for an example of an op with such a kernel.
pub fn grid(workgroups: u32) -> [u32; 3] {
    let rows = workgroups.div_ceil(65_535);
    [if rows == 0 { 0 } else { workgroups.div_ceil(rows) }, rows.max(1), 1]
}
