//! Plans: what a graph becomes before it runs.

use crate::Layout;
use crate::graph::TensorType;
use crate::kernel::Kernel;

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
    /// What did not fuse, and why; one sentence each.
    pub notes: Vec<String>,
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
    /// In a buffer of its own, which outlives the run: an output.
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
