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
use std::sync::Arc;

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

/// A kernel to compile and launch.
#[derive(Clone, Debug, PartialEq)]
pub struct WgslKernel {
    /// The text. It depends on lengths by classes only (how a workgroup is divided, how often a loop is written out, whether rows are whole
    /// groups of four, which operands begin where their buffer does), so that most new shapes need no new kernel.
    pub source: Arc<str>,
    /// The entry point; `None` where the text has only one.
    pub entry: Option<String>,
    /// Values of `override` constants.
    pub constants: Vec<(String, f64)>,
    /// What is bound in group 0. A binding that the entry point does not use is not in the compiled kernel and is not given.
    pub bindings: Vec<WgslBinding>,
    /// The words of the uniform: lengths, strides and offsets. The scalars of a run follow, a word each, in the order of `scalars`.
    pub params: Vec<u32>,
    /// Indices of the scalars that the kernel takes.
    pub scalars: Vec<usize>,
    /// How many workgroups run.
    pub workgroups: [u32; 3],
    /// Whether the output is set to zeros first.
    pub zeroes_output: bool,
    /// Checks that the author of the text vouches for.
    pub trust: WgslTrust,
}

/// One binding of a [`WgslKernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WgslBinding {
    /// `@binding` in the text.
    pub number: u32,
    /// What it is given.
    pub argument: WgslArgument,
    /// How many bytes of the buffer are bound, for kernels that ask for `arrayLength`; `None` for all of it.
    pub bytes: Option<u64>,
}

/// What a binding of a [`WgslKernel`] is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WgslArgument {
    /// An operand, by its place in [`Step::reads`](crate::plan::Step::reads).
    Operand(usize),
    /// The output.
    Output,
    /// The uniform with the words and scalars.
    Params,
}

/// Run-time checks that a kernel's author makes needless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WgslTrust {
    /// All loops end by themselves.
    pub loops_end: bool,
    /// Workgroup memory is written before it is read, so that it need not be cleared.
    pub workgroup_is_written: bool,
}

/// A kernel of a plan as WGSL.
///
/// # Errors
/// `Unsupported` where a hand-written kernel has none for its operands; `TooLarge` where a kernel cannot count so far.
pub fn render(kernel: &Kernel, features: WgslFeatures) -> Result<WgslKernel> {
    let written_first = |rendered: WgslKernel| {
        let trust = WgslTrust { workgroup_is_written: true, ..rendered.trust };
        WgslKernel { trust, ..rendered }
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
