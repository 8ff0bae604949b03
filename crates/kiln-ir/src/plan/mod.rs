//! Plans: what a graph becomes before it runs.
//!
//! [`Plan::new`] is a row of pure passes: large reductions are cut in two (`split`); `fuse` decides in rounds what is stored, with `lower`
//! (programs; `views`, `space`) and `limit` (of the target); `steps` numbers the values; `memory` gives each a place. Debug builds check
//! what goes in and what comes out (`verify`).
//!
//! What a kernel may rely on:
//! - Operands are listed once: the same elements read the same way are one operand.
//! - The space of a map, and both spaces of a reduction, have no axes of length 1, and adjacent axes are one where every
//!   operand allows it: a chain of ops on contiguous tensors has one axis, and a single element has none. Elements are
//!   numbered row by row, so the space of the body behind a reduction may have other axes than the kept ones of its
//!   input, but has as many elements, in the same order. The space behind a hand-written kernel is the output's shape.
//! - The numbers of `F16` and `BF16` stay `f32` between the ops of one kernel; only a cast or a store rounds them.
//! - A kernel with a core stores only dtypes that [`Target::stores`] has, unless its op [stores all](crate::KernelOp::stores_any_dtype).
//! - A step that would write nothing is left out; its value is there, with no bytes.

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
mod words;

pub use key::{PlanKey, key, structure};
pub use report::Explain;
pub use target::Target;

use crate::graph::{NodeId, OpGraph, TensorType};
use crate::kernel::{Body, Core, Kernel};
use crate::{Layout, Result};
use std::borrow::Cow;

/// Kernels in order, with a place in memory for each value.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What runs, in order.
    pub steps: Vec<Step>,
    /// What the steps write, by the index that [`Source::Value`] names.
    pub values: Vec<Value>,
    /// Bytes of each slot. Values that are never needed at the same time share one.
    pub slots: Vec<u64>,
    /// Where each output of the graph is.
    pub outputs: Vec<PlanOutput>,
    /// Of the graph's held nodes, those that are stored: the node, and the value that it is.
    pub held: Vec<(NodeId, usize)>,
    /// What did not fuse, and why; one sentence each.
    pub notes: Vec<String>,
    /// Bytes that would move if every op of the graph were a kernel of its own.
    pub unfused_bytes: u64,
}

/// One kernel with what it reads and writes.
#[derive(Clone, Debug)]
pub struct Step {
    /// The kernel.
    pub kernel: Kernel,
    /// What it reads: the operands of the core, then those of the body.
    pub reads: Vec<Source>,
    /// Index of the value that it writes.
    pub writes: usize,
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An input of the run.
    Input(usize),
    /// What an earlier step wrote.
    Value(usize),
}

/// What a step writes.
#[derive(Clone, Debug)]
pub struct Value {
    /// Shape and dtype. The elements lie row by row without gaps.
    pub ty: TensorType,
    /// Where it is.
    pub place: Place,
}

/// Where a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a buffer of its own, which outlives the run: an output, or a node that is held.
    Own,
    /// In a slot.
    Slot(usize),
}

/// An output of a plan: a value, or an input seen through a view.
#[derive(Clone, Debug)]
pub struct PlanOutput {
    /// Where the elements are.
    pub source: Source,
    /// How they lie there.
    pub layout: Layout,
}

impl Plan {
    /// The plan of a graph.
    ///
    /// # Errors
    /// `Unsupported` where one op alone needs more than the target has. `Internal` where a check of a debug build fails.
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
            graph.verify()?;
            plan.verify(&graph)?;
        }
        // Nodes are named as in the graph that was given, where splitting has numbered them anew.
        for (node, _) in &mut plan.held {
            if let Some(place) = graph.held.iter().position(|held| held == node) {
                *node = held[place];
            }
        }
        Ok(plan)
    }

    /// Bytes that the plan takes in memory, without what hand-written kernels own.
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
