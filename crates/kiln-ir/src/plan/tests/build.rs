//! A graph builder for tests, and kernels for tests.

use crate::graph::{Axes, NodeId, Op, OpGraph, OpNode, Reduce, TensorType, View};
use crate::op::{ElementOp, Signature};
use crate::wgsl::{WgslCall, WgslKernel};
use crate::{DType, Error, ErrorKind, KernelOp, Layout, Result, Shape};
use smallvec::SmallVec;
use std::sync::Arc;

/// Builds a graph node by node.
#[derive(Default)]
pub(super) struct Build(pub(super) OpGraph);

impl Build {
    pub(super) fn push(&mut self, op: Op, inputs: &[NodeId], shape: impl Into<Shape>, dtype: DType) -> NodeId {
        let ty = TensorType { shape: shape.into(), dtype };
        self.0.nodes.push(OpNode { op, inputs: inputs.into(), ty });
        self.0.nodes.len() - 1
    }

    pub(super) fn ty(&self, node: NodeId) -> &TensorType {
        &self.0.nodes[node].ty
    }

    pub(super) fn shape(&self, node: NodeId) -> Shape {
        self.ty(node).shape.clone()
    }

    /// Adds a contiguous input.
    pub(super) fn input(&mut self, shape: impl Into<Shape>, dtype: DType) -> NodeId {
        let layout = Layout::contiguous(shape.into());
        self.laid_out(layout, dtype)
    }

    pub(super) fn laid_out(&mut self, layout: Layout, dtype: DType) -> NodeId {
        let shape = layout.shape().clone();
        self.push(Op::Input(layout.into()), &[], shape, dtype)
    }

    pub(super) fn scalar_like(&mut self, node: NodeId) -> NodeId {
        let TensorType { shape, dtype } = self.ty(node).clone();
        self.push(Op::Scalar, &[], shape, dtype)
    }

    pub(super) fn iota(&mut self, shape: impl Into<Shape>) -> NodeId {
        self.push(Op::Iota, &[], shape, DType::U32)
    }

    /// Adds an elementwise op, with views that broadcast its inputs to one shape.
    pub(super) fn element(&mut self, op: &'static ElementOp, inputs: &[NodeId]) -> NodeId {
        let shapes = inputs.iter().map(|&input| self.shape(input));
        let shape = shapes.reduce(|a, b| a.broadcast(&b).expect("shapes that match")).expect("an input");
        let inputs: Vec<NodeId> = inputs.iter().map(|&input| self.broadcast(input, shape.clone())).collect();
        let dtype = match op.signature {
            Signature::Compare => DType::U8,
            Signature::BitsToFloat { .. } => DType::F32,
            Signature::Same { .. } | Signature::Select | Signature::Bits { .. } => {
                self.ty(inputs[inputs.len() - 1]).dtype
            }
        };
        self.push(Op::Element(op), &inputs, shape, dtype)
    }

    pub(super) fn cast(&mut self, input: NodeId, dtype: DType) -> NodeId {
        let shape = self.shape(input);
        self.push(Op::Cast, &[input], shape, dtype)
    }

    pub(super) fn view(&mut self, view: View, input: NodeId, shape: impl Into<Shape>) -> NodeId {
        let dtype = self.ty(input).dtype;
        self.push(Op::View(view), &[input], shape, dtype)
    }

    pub(super) fn broadcast(&mut self, input: NodeId, shape: impl Into<Shape>) -> NodeId {
        let shape = shape.into();
        if self.ty(input).shape == shape { input } else { self.view(View::Broadcast, input, shape) }
    }

    pub(super) fn reshape(&mut self, input: NodeId, shape: impl Into<Shape>) -> NodeId {
        self.view(View::Reshape, input, shape)
    }

    pub(super) fn permute(&mut self, input: NodeId, axes: &[usize]) -> NodeId {
        let shape: Shape = axes.iter().map(|&axis| self.ty(input).shape[axis]).collect();
        self.view(View::Permute(Axes::from_slice(axes)), input, shape)
    }

    pub(super) fn slice(&mut self, input: NodeId, axis: usize, start: usize, length: usize, step: isize) -> NodeId {
        let shape = self.ty(input).shape.with(axis, length);
        self.view(View::Slice { axis, start, step }, input, shape)
    }

    pub(super) fn reduce(&mut self, op: Reduce, input: NodeId, axes: &[usize]) -> NodeId {
        let TensorType { shape, dtype } = self.ty(input).clone();
        let shape = axes.iter().fold(shape, |shape, &axis| shape.with(axis, 1));
        let dtype = if matches!(op, Reduce::ArgMax | Reduce::ArgMin) { DType::U32 } else { dtype };
        self.push(Op::Reduce(op, Axes::from_slice(axes)), &[input], shape, dtype)
    }

    pub(super) fn kernel(&mut self, op: impl KernelOp, inputs: &[NodeId]) -> NodeId {
        let types: Vec<TensorType> = inputs.iter().map(|&input| self.ty(input).clone()).collect();
        let ty = op.infer(&types).expect("inputs that the kernel takes");
        self.push(Op::Kernel(Arc::new(op)), inputs, ty.shape, ty.dtype)
    }

    pub(super) fn outputs(mut self, outputs: &[NodeId]) -> OpGraph {
        self.0.outputs = outputs.to_vec();
        self.0
    }
}

/// `(m, k) (k, n) -> (m, n)`, with a fused epilogue. Accepts operands with contiguous rows or columns.
#[derive(Debug)]
pub(super) struct Matmul;

/// Rotates the elements by one position. Accepts and stores contiguous elements.
#[derive(Debug)]
pub(super) struct Roll;

impl KernelOp for Matmul {
    fn name(&self) -> &str {
        "matmul"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        SmallVec::new()
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType> {
        let [a, b] = inputs else { return Err(Error::new(ErrorKind::InvalidArgument, "expected two inputs")) };
        assert!(a.dtype == b.dtype && a.dtype.is_float() && a.shape.rank() == 2 && a.shape[1] == b.shape[0]);
        Ok(TensorType { shape: Shape::from((a.shape[0], b.shape[1])), dtype: a.dtype })
    }

    fn takes(&self, _: usize, layout: &Layout) -> bool {
        layout.strides().contains(&1)
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        2 * (inputs[0].shape.elem_count() * inputs[1].shape[1]) as u64
    }

    fn wgsl(&self, _: &WgslCall<'_>) -> Result<WgslKernel> {
        unreachable!("plans are interpreted here")
    }
}

impl KernelOp for Roll {
    fn name(&self) -> &str {
        "roll"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        SmallVec::new()
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType> {
        Ok(inputs[0].clone())
    }

    fn flops(&self, _: &[TensorType]) -> u64 {
        0
    }

    fn wgsl(&self, _: &WgslCall<'_>) -> Result<WgslKernel> {
        unreachable!("plans are interpreted here")
    }
}
