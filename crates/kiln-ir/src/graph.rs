//! The graph of a tensor computation, before lowering to a [plan](crate::plan).

use crate::op::ElementOp;
use crate::{DType, KernelOp, Layout, Shape};
use smallvec::SmallVec;
use std::sync::Arc;

/// Shape and dtype of a tensor.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The shape.
    pub shape: Shape,
    /// The element type.
    pub dtype: DType,
}

/// Index of a node in its graph. The inputs of a node come before it.
///
/// See [the crate](crate) for an example.
pub type NodeId = usize;

/// Axes of a tensor.
///
/// See [`View`] for an example.
pub type Axes = SmallVec<[usize; 4]>;

/// A node: an input or a computed tensor.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug)]
pub struct OpNode {
    /// The op that produces the tensor.
    pub op: Op,
    /// The operands of the op.
    pub inputs: SmallVec<[NodeId; 3]>,
    /// Shape and dtype of the result.
    pub ty: TensorType,
}

/// The operation of a node.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug)]
pub enum Op {
    /// A tensor in memory. The n-th node of this kind is the n-th input of a run.
    Input(Arc<Layout>),
    /// A scalar broadcast to the node's shape. The n-th node of this kind is the n-th scalar of a run; its value is
    /// not part of the graph.
    Scalar,
    /// The row-major index of each element, from 0, as `U32`.
    Iota,
    /// An elementwise op. All inputs have the node's shape.
    Element(&'static ElementOp),
    /// Conversion to the node's dtype. To floats: rounds to nearest. From floats to integers: truncates towards zero
    /// and saturates. Between integers: wraps.
    Cast,
    /// A view of the input, without a copy if strides can express it.
    View(View),
    /// A reduction over axes, which are kept with length 1.
    Reduce(Reduce, Axes),
    /// A hand-written kernel.
    Kernel(Arc<dyn KernelOp>),
}

impl Op {
    /// Returns the name used in messages and reports.
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

/// How a view selects elements of its input.
///
/// ```
/// use kiln_ir::graph::{Axes, View};
/// use kiln_ir::{Layout, Shape};
///
/// let rows = Layout::contiguous(Shape::from((2, 3)));
/// let view = View::Permute(Axes::from_slice(&[1, 0]));
/// assert_eq!(view.apply(&rows, &Shape::from((3, 2))), Some(rows.permuted(&[1, 0])));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// Axis `i` is axis `axes[i]` of the input.
    Permute(Axes),
    /// Broadcasts the input to the node's shape.
    Broadcast,
    /// Reinterprets the input under the node's shape, in row-major order.
    Reshape,
    /// Selects every `step`-th element from `start` along one axis. The count is the node's length of that axis.
    Slice {
        /// The axis.
        axis: usize,
        /// Index of the first element.
        start: usize,
        /// Distance between elements; a negative step walks backwards.
        step: isize,
    },
}

impl View {
    /// Applies the view to the layout of its input; returns `None` if strides cannot express it.
    pub fn apply(&self, input: &Layout, shape: &Shape) -> Option<Layout> {
        match self {
            Self::Permute(axes) => Some(input.permuted(axes)),
            Self::Broadcast => Some(input.broadcast_to(shape)),
            Self::Reshape => input.reshaped(shape),
            &Self::Slice { axis, start, step } => Some(input.sliced(axis, start, shape[axis], step)),
        }
    }
}

/// A reduction.
///
/// Floats are accumulated in `f32`. Reductions of floats propagate NaN; arg-reductions return the index of a NaN.
///
/// ```
/// use kiln_ir::graph::{Axes, Op, Reduce};
///
/// assert_eq!(Op::Reduce(Reduce::Sum, Axes::from_slice(&[1])).name(), "sum");
/// assert_eq!(Reduce::Max.error_bound(1000, 1.0), 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Sum; 0 for no elements.
    Sum,
    /// Arithmetic mean; NaN for no elements. Floats only.
    Mean,
    /// Maximum; needs at least one element.
    Max,
    /// Minimum; needs at least one element.
    Min,
    /// Row-major index of the first maximum along the axes, as `U32`.
    ArgMax,
    /// Row-major index of the first minimum, as `U32`.
    ArgMin,
}

/// Tolerance of a sum. Sums are accumulated in tiles or trees of several hundred terms; a larger tolerance would hide
/// a missing term.
const SUM_ULPS: f64 = 8.0;

impl Reduce {
    /// Returns the maximum absolute error of a reduction of `terms` floats of magnitude at most `largest`, before the
    /// result is stored. Reductions that select an element are exact.
    pub fn error_bound(self, terms: usize, largest: f64) -> f64 {
        let size = match self {
            Self::Sum => terms as f64 * largest,
            Self::Mean => largest,
            Self::Max | Self::Min | Self::ArgMax | Self::ArgMin => 0.0,
        };
        SUM_ULPS * 2f64.powi(-24) * size
    }
}

/// A graph in topological order, with its outputs.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug, Default)]
pub struct OpGraph {
    /// The nodes; inputs precede their users.
    pub nodes: Vec<OpNode>,
    /// Nodes whose results are returned.
    pub outputs: Vec<NodeId>,
    /// Nodes whose results are kept after the run if the plan stores them anyway.
    pub held: Vec<NodeId>,
}
