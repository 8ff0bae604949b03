//! Kernels as WGSL.
//!
//! In the order of the flow: `builder` the frame that every kernel has · `memory` and `convert` elements in buffers and as numbers · `frame` where
//! operands are · `body` elementwise programs · `map` and `reduce` the kernels that are not written by hand.

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

/// How often the body of a loop of so many steps is written out, so that the loop takes few enough steps.
///
/// The software Vulkan driver of Mesa ends all loops of an invocation after 65,535 steps without a word.
pub fn copies_of_loop(steps: usize) -> u32 {
    let copies = steps.div_ceil(LOOP_STEPS).next_power_of_two();
    u32::try_from(copies).unwrap_or(u32::MAX)
}

/// A quarter of what the strictest driver gives all loops of an invocation together ([`copies_of_loop`] says which): the share of one loop
/// among several.
pub const LOOP_STEPS: usize = 1 << 14;

/// What the adapter can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WgslFeatures {
    /// The type `f16` in buffers and arithmetic.
    pub f16: bool,
    /// Operations over the invocations that run in step: the most that do so, where the adapter has such operations.
    pub subgroup_size: Option<u32>,
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

/// A kernel to compile and launch. Buffers are bound by name: `core0` and so on for the operands of the core, `body0` and so on for those of the
/// body, `output`; then the uniform `params`. What a kernel does not use, its compiled form does not take.
#[derive(Clone, Debug, PartialEq)]
pub struct WgslKernel {
    /// The text. It depends on lengths by classes only (how a workgroup is divided, how often a loop is written out, whether rows are whole
    /// groups of four, which operands begin where their buffer does), so that most new shapes need no new kernel.
    pub source: String,
    /// The words of `params`: lengths, strides and offsets. The scalars of a run follow, a word each, in the order of `scalars`.
    pub params: Vec<u32>,
    /// Indices of the scalars that the kernel takes.
    pub scalars: Vec<usize>,
    /// How many workgroups run.
    pub workgroups: [u32; 3],
}

/// A kernel of a plan as WGSL.
///
/// # Errors
/// `Unsupported` where a hand-written kernel has none for its operands; `TooLarge` where a kernel cannot count so far.
pub fn render(kernel: &Kernel, features: WgslFeatures) -> Result<WgslKernel> {
    match &kernel.core {
        Core::Map => Ok(map::render(kernel, features)),
        Core::Reduce { op, input, kept } => reduce::render(kernel, (*op, input, *kept), features),
        Core::Op { op, operands } => {
            op.wgsl(&WgslCall { features, operands, body: &kernel.body, output: &kernel.output })
        }
    }
    .map_err(|error| error.context(format!("kernel `{}`", kernel.name)))
}

/// A workgroup whose subgroups, of at most `most` invocations each, work for themselves: its invocations, and how many subgroups it has at
/// least.
///
/// Kernels count on no more than that: subgroup number `group * subgroups + subgroup` begins with the item of its number, and goes on in
/// steps of all subgroups there are.
pub fn subgroup_teams(most: u32) -> (u32, u32) {
    const INVOCATIONS: u32 = 64;
    (most.max(INVOCATIONS), (INVOCATIONS / most).max(1))
}

/// So many workgroups as a grid that every device takes: at most 65,535 along an axis. The number of a workgroup is
/// `group.y * groups.x + group.x`; the last ones may be too many.
pub fn grid(workgroups: u32) -> [u32; 3] {
    let rows = workgroups.div_ceil(65_535);
    [if rows == 0 { 0 } else { workgroups.div_ceil(rows) }, rows.max(1), 1]
}
