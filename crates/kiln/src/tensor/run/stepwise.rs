//! Op-by-op execution, for the NaN check and for verification.

use super::collect::Collected;
use super::{CachedPlan, Run};
use crate::tensor::check::{Name, invalid};
use crate::tensor::node::Storage;
use crate::{DType, Device, Result, Tensor};
use kiln_ir::graph::{Op, OpGraph, OpNode, TensorType};
use kiln_ir::plan::Plan;
use smallvec::SmallVec;
use std::sync::Arc;

/// Computes one node of a graph on a device, from computed inputs.
pub(super) fn compute(device: &Device, node: &OpNode, inputs: &[&Tensor], scalar: Option<u32>) -> Result<Tensor> {
    let (mut graph, mut buffers) = (OpGraph::default(), Vec::new());
    for input in inputs {
        input.eval()?;
        let storage = input.0.storage().ok_or_else(|| invalid(format!("expected elements, found {input:?}")))?;
        let op = Op::Input(Arc::clone(&storage.layout));
        graph.nodes.push(OpNode { op, inputs: SmallVec::new(), ty: input.0.kind.ty.clone() });
        buffers.push(&storage.buffer);
    }
    graph.nodes.push(OpNode { inputs: (0..inputs.len()).collect(), ..node.clone() });
    graph.outputs.push(inputs.len());
    // Not through the plan cache: its key does not contain the target, so a normal run of the same graph would get
    // the unfused plan.
    let target = device.target().unfused();
    let plan = CachedPlan::new(device, Plan::new(&graph, &target)?)?;
    let scalars: SmallVec<[u32; 1]> = scalar.into_iter().collect();
    let storage = Run::new(device, &plan, &buffers, &scalars)?.output()?;
    Ok(Tensor::ready(node.ty.clone(), device, storage))
}

/// Computes the nodes of a graph one by one, in order.
pub(super) fn compute_all(
    device: &Device,
    collected: &Collected,
    graph: &OpGraph,
    mut visit: impl FnMut(usize, &[&Tensor], &Tensor) -> Result<()>,
) -> Result<Vec<Tensor>> {
    let mut computed: Vec<Tensor> = Vec::with_capacity(graph.nodes.len());
    let mut scalars = collected.scalars.iter().copied();
    for (id, node) in graph.nodes.iter().enumerate() {
        // Keeps `computed` indexed by node id.
        if matches!(node.op, Op::Input(_)) {
            computed.push(collected.tensor(id).clone());
            continue;
        }
        let scalar = matches!(node.op, Op::Scalar).then(|| scalars.next()).flatten();
        let inputs: Vec<&Tensor> = node.inputs.iter().map(|&input| &computed[input]).collect();
        let result = compute(device, node, &inputs, scalar)
            .map_err(|error| error.context(format!("op {id} (`{}`)", node.op.name())))?;
        visit(id, &inputs, &result)?;
        computed.push(result);
    }
    Ok(computed)
}

/// Runs a graph op by op; returns an error if an op produces NaN or an infinity from finite elements.
pub(super) fn with_nan_check(device: &Device, collected: &Collected) -> Result<Vec<Storage>> {
    let graph = collected.graph();
    let nodes = &graph.nodes;
    let computed = compute_all(device, collected, &graph, |id, inputs, result| {
        // Constants written by the caller, such as an infinity for a mask, are intentional.
        if matches!(nodes[id].op, Op::Scalar) {
            return Ok(());
        }
        for input in inputs {
            if first_not_finite(input)?.is_some() {
                return Ok(());
            }
        }
        match first_not_finite(result)? {
            None => Ok(()),
            Some((place, value)) => {
                let (op, result) = (nodes[id].op.name(), Name(result));
                let inputs = crate::tensor::check::names(inputs);
                Err(invalid(format!(
                    "NaN check expected finite elements, found {value} at element {place} of {result}, which `{op}` computed from \
                     finite elements of {inputs}"
                )))
            }
        }
    })?;
    let storages = graph.outputs.iter().map(|&output| {
        let storage = computed[output].0.storage().cloned();
        storage.ok_or_else(|| invalid("expected a computed output, found none".to_string()))
    });
    storages.collect()
}

/// Returns the first NaN or infinite element, with its row-major index.
fn first_not_finite(tensor: &Tensor) -> Result<Option<(usize, f64)>> {
    if !tensor.dtype().is_float() && tensor.dtype() != DType::F64 {
        return Ok(None);
    }
    Ok(values(tensor)?.iter().copied().enumerate().find(|(_, value)| !value.is_finite()))
}

/// Returns the elements of a computed tensor as `f64` in row-major order. Not [`Tensor::to_vec`], which would run
/// under the NaN check.
pub(super) fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    let dtype = tensor.dtype().computed();
    let ty = TensorType { shape: tensor.shape().clone(), dtype };
    let node = OpNode { op: Op::Cast, inputs: SmallVec::new(), ty };
    let plain = compute(tensor.device(), &node, &[tensor], None)?;
    let storage = plain.0.storage().ok_or_else(|| invalid(format!("expected elements, found {plain:?}")))?;
    let buffer = storage.buffer.slice(..(tensor.elem_count() * dtype.bytes()) as u64)?;
    Ok(match dtype {
        DType::I32 => buffer.typed::<i32>()?.read()?.into_iter().map(f64::from).collect(),
        DType::U32 => buffer.typed::<u32>()?.read()?.into_iter().map(f64::from).collect(),
        DType::I64 => buffer.typed::<i64>()?.read()?.into_iter().map(|x| x as f64).collect(),
        DType::F64 => buffer.typed::<f64>()?.read()?,
        _ => buffer.typed::<f32>()?.read()?.into_iter().map(f64::from).collect(),
    })
}
