//! The graph of a tensor computation: what is asked for, before anything is decided about how.

use crate::op::ElementOp;
use crate::{DType, KernelOp, Layout, Shape};
use smallvec::SmallVec;
use std::sync::Arc;

/// Shape and dtype of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The lengths along each axis.
    pub shape: Shape,
    /// What the elements are.
    pub dtype: DType,
}

/// Index of a node in its graph. The inputs of a node come before it.
pub type NodeId = usize;

/// Axes of a tensor.
pub type Axes = SmallVec<[usize; 4]>;

/// One computed or given tensor.
#[derive(Clone, Debug)]
pub struct OpNode {
    /// What gives it its elements.
    pub op: Op,
    /// What the op takes.
    pub inputs: SmallVec<[NodeId; 3]>,
    /// Shape and dtype of the result.
    pub ty: TensorType,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Op {
    /// A tensor in memory. The n-th node of this kind is the n-th input of a run.
    Input(Arc<Layout>),
    /// One number in every element. The n-th node of this kind is the n-th scalar of a run: its value is not part of the graph.
    Scalar,
    /// The number of each element, counted row by row from 0, as `U32`.
    Iota,
    /// An elementwise op. Its inputs have the node's shape.
    Element(&'static ElementOp),
    /// The input's elements in the node's dtype: rounded to the nearest for floats; towards zero, and clamped to what the dtype holds, from
    /// floats to integers; modulo its range between integers.
    Cast,
    /// The input's elements in another order, or some of them, without a copy where strides can say it.
    View(View),
    /// A reduction over axes, which keep the length 1.
    Reduce(Reduce, Axes),
    /// A hand-written kernel.
    Kernel(Arc<dyn KernelOp>),
}

impl Op {
    /// The name in messages and reports.
    pub fn name(&self) -> &str {
        match self {
            Self::Input(_) => "input",
            Self::Scalar => "scalar",
            Self::Iota => "iota",
            Self::Element(op) => op.name,
            Self::Cast => "cast",
            Self::View(View::Permute(_)) => "permute",
            Self::View(View::Broadcast) => "broadcast",
            Self::View(View::Reshape) => "reshape",
            Self::View(View::Slice { .. }) => "slice",
            Self::Reduce(op, _) => op.name(),
            Self::Kernel(op) => op.name(),
        }
    }
}

/// How a view finds its elements in its input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// Axis `i` is axis `axes[i]` of the input.
    Permute(Axes),
    /// The input spread to the node's shape.
    Broadcast,
    /// The input's elements in order, under the node's shape.
    Reshape,
    /// Along one axis, every `step`-th element from `start`, as many as the node is long there.
    Slice {
        /// The axis.
        axis: usize,
        /// The first element.
        start: usize,
        /// From one to the next; negative walks backwards.
        step: isize,
    },
}

impl View {
    /// The layout of the view, of the layout of its input; `None` where strides cannot say it.
    pub fn apply(&self, input: &Layout, shape: &Shape) -> Option<Layout> {
        match self {
            Self::Permute(axes) => Some(input.permuted(axes)),
            Self::Broadcast => Some(input.broadcast_to(shape)),
            Self::Reshape => input.reshaped(shape),
            &Self::Slice { axis, start, step } => Some(input.sliced(axis, start, shape[axis], step)),
        }
    }
}

/// How elements become one.
///
/// Floats are added up in `f32`. A NaN among the elements is the result of every reduction of floats, and its place that of an
/// arg-reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum; 0 of no elements.
    Sum,
    /// The sum divided by the number of elements; NaN of none. Floats only.
    Mean,
    /// The largest; not of no elements.
    Max,
    /// The smallest; not of no elements.
    Min,
    /// The place of the first largest along the axes, counted row by row, as `U32`.
    ArgMax,
    /// The place of the first smallest, as `U32`.
    ArgMin,
}

/// Sums are added up in tiles or trees of several hundred terms; more would hide a term that is missing.
const SUM_ULPS: f64 = 8.0;

impl Reduce {
    /// How far a result of so many floats, none larger than `largest`, may be from the exact one before it is stored. What chooses an
    /// element is exact.
    pub fn bound(self, terms: usize, largest: f64) -> f64 {
        let size = match self {
            Self::Sum => terms as f64 * largest,
            Self::Mean => largest,
            Self::Max | Self::Min | Self::ArgMax | Self::ArgMin => 0.0,
        };
        SUM_ULPS * 2f64.powi(-24) * size
    }
}

/// Nodes in an order in which inputs come first, and those whose results are wanted.
#[derive(Clone, Debug, Default)]
pub struct OpGraph {
    /// The nodes.
    pub nodes: Vec<OpNode>,
    /// Whose results are wanted.
    pub outputs: Vec<NodeId>,
    /// Whose results are welcome: those that a plan stores anyway outlive the run.
    pub held: Vec<NodeId>,
}
