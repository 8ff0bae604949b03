//! Plans: graphs lowered to a sequence of kernels.
//!
//! [`Plan::new`] runs pure passes: `split` splits large reductions in two; `fuse` decides iteratively which nodes are
//! stored, with `lower` (programs; `views`, `space`) and `limit` (of the target); `steps` numbers the values;
//! `memory` assigns each a slot. Debug builds verify the graph and the plan (`verify`).
//!
//! Guarantees that kernels rely on:
//! - Operands are unique: the same elements read through the same layout are one operand.
//! - The space of a map, and both spaces of a reduction, have no axes of length 1, and adjacent axes are merged where
//!   every operand allows it: a chain of ops on contiguous tensors has one axis, and a scalar has none. Elements are
//!   indexed in row-major order, so the space of a reduction's epilogue may have other axes than the kept ones of its
//!   input, but it has as many elements, in the same order. The space of a hand-written kernel's epilogue is the
//!   output's shape.
//! - `F16` and `BF16` values stay `f32` between the ops of one kernel; only a cast or a store rounds them.
//! - A kernel with a core stores only dtypes in [`Target::stores`], unless its op
//!   [stores all](crate::KernelOp::stores_any_dtype).
//! - A step without output elements is omitted; its value exists, with 0 bytes.

mod fuse;
mod key;
mod limit;
mod lower;
mod memory;
mod report;
mod space;
mod split;
mod steps;
mod target;
#[cfg(test)]
mod tests;
mod verify;
mod views;
mod wide_copy;

pub use key::{PlanKey, key, structure};
pub use report::Explain;
pub use target::Target;

use crate::graph::{NodeId, OpGraph, TensorType};
use crate::kernel::{Body, Core, Kernel};
use crate::{Layout, Result};
use std::borrow::Cow;

/// A sequence of kernels, with a memory slot for each value.
///
/// See the [crate documentation](crate) for an example of a plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kernels, in execution order.
    pub steps: Vec<Step>,
    /// The results of the steps, indexed by [`Source::Value`].
    pub values: Vec<Value>,
    /// Bytes of each slot. Values with disjoint lifetimes share a slot.
    pub slots: Vec<u64>,
    /// The outputs of the graph.
    pub outputs: Vec<PlanOutput>,
    /// The graph's held nodes that are stored, with the index of their value.
    pub held: Vec<(NodeId, usize)>,
    /// Nodes that did not fuse, and why; one sentence each.
    pub notes: Vec<String>,
    /// Memory traffic in bytes if every op of the graph were its own kernel.
    pub unfused_bytes: u64,
}

/// A kernel with its operands and result.
///
/// See the [crate documentation](crate) for an example of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// The kernel.
    pub kernel: Kernel,
    /// The operands: those of the core, then those of the body.
    pub reads: Vec<Source>,
    /// Index of the value that it writes.
    pub writes: usize,
}

/// The source of an operand.
///
/// See the [crate documentation](crate) for an example of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An input of the run.
    Input(usize),
    /// The result of an earlier step.
    Value(usize),
}

/// The result of a step.
///
/// See the [crate documentation](crate) for an example of a plan.
#[derive(Clone, Debug)]
pub struct Value {
    /// Shape and dtype. The value is contiguous.
    pub ty: TensorType,
    /// Where it is stored.
    pub place: Place,
}

/// The storage of a value.
///
/// See the [crate documentation](crate) for an example of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A dedicated buffer that outlives the run: an output or a held node.
    Dedicated,
    /// A shared slot.
    Slot(usize),
}

/// An output of a plan: a view of a value or of an input.
///
/// See the [crate documentation](crate) for an example of a plan.
#[derive(Clone, Debug)]
pub struct PlanOutput {
    /// The viewed value or input.
    pub source: Source,
    /// The layout of the view.
    pub layout: Layout,
}

impl Plan {
    /// Plans a graph.
    ///
    /// # Errors
    /// Returns `Unsupported` if a single op exceeds the target's limits, and `Internal` if a check of a debug build
    /// fails.
    pub fn new(graph: &OpGraph, target: &Target) -> Result<Self> {
        if cfg!(debug_assertions) {
            graph.verify()?;
        }
        let held = &graph.held;
        let (graph, notes) = match target.split_reduce {
            Some(limit) if target.fuse => split::split(graph, limit),
            _ => (Cow::Borrowed(graph), Vec::new()),
        };
        let fused = fuse::fuse(&graph, target)?;
        let mut plan = steps::build(&graph, target, fused);
        plan.notes.extend(notes);
        memory::assign(&mut plan);
        if cfg!(debug_assertions) {
            // The graph that was planned, which `split` may have created.
            graph.verify()?;
            plan.verify(&graph)?;
        }
        // Splitting renumbers nodes; map them back to those of the given graph.
        for (node, _) in &mut plan.held {
            if let Some(place) = graph.held.iter().position(|held| held == node) {
                *node = held[place];
            }
        }
        Ok(plan)
    }

    /// Returns the plan's size in memory in bytes, without memory owned by hand-written kernels.
    pub fn bytes(&self) -> u64 {
        let body = |body: &Body| size_of_val(&*body.operands) + size_of_val(&*body.program.instructions);
        let step = |step: &Step| {
            let core = match &step.kernel.core {
                Core::Map => 0,
                Core::Reduce { input, .. } => body(input),
                Core::Op { operands, .. } => size_of_val(&**operands),
            };
            size_of::<Step>() + step.kernel.name.len() + size_of_val(&*step.reads) + body(&step.kernel.body) + core
        };
        let steps: usize = self.steps.iter().map(step).sum();
        let notes: usize = self.notes.iter().map(String::len).sum();
        let lists = size_of_val(&*self.values) + size_of_val(&*self.slots) + size_of_val(&*self.outputs);
        (size_of::<Self>() + steps + notes + lists + size_of_val(&*self.held)) as u64
    }
}
