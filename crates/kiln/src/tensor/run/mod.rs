//! How tensors are computed: the pending graph is collected, planned or found in the plan cache, and run.

mod collect;
mod explain;
pub(crate) mod gpu;
mod plans;
mod stepwise;
mod verify;

pub(super) use collect::count_pending;
pub use explain::Explanation;
pub(crate) use plans::{PlanCache, Program};
pub use verify::VerifyReport;

use super::Tensor;
use super::node::Storage;
use crate::{Device, Error, ErrorKind, Result};
use collect::Collected;
use kiln_ir::Layout;
use kiln_ir::graph::NodeId;
use kiln_ir::plan::{Place, Source};
use kiln_runtime::Buffer;

/// Computes all of these tensors, which are of one device.
pub(super) fn eval(tensors: &[&Tensor]) -> Result<()> {
    let Some(first) = tensors.iter().find(|tensor| tensor.0.storage().is_none()) else {
        return Ok(());
    };
    let device = first.device().clone();
    let collected = Collected::new(tensors);
    let done = if device.has_tripwire() {
        stepwise::with_tripwire(&device, &collected)?
    } else {
        let program = device.tensors().plans.get(&device, &collected.graph)?;
        let done = run(&device, &program, &collected.inputs, &collected.scalars)?;
        collected.graph.held.iter().for_each(|&node| collected.tensors[node].0.set_inlined());
        for (node, storage) in done.held {
            collected.tensors[node].0.set_ready(storage);
        }
        done.outputs
    };
    for (tensor, storage) in collected.outputs().zip(done) {
        tensor.0.set_ready(storage);
    }
    Ok(())
}

/// What a run gives.
pub(super) struct Done {
    /// The outputs of the graph, in order.
    pub(super) outputs: Vec<Storage>,
    /// Nodes of the graph that are stored and held.
    held: Vec<(NodeId, Storage)>,
}

/// Runs a program on these inputs, and returns its outputs.
pub(super) fn run(device: &Device, program: &Program, inputs: &[Buffer], scalars: &[u32]) -> Result<Done> {
    let plan = program.plan();
    let slots = plan.slots.iter().map(|&bytes| allocate(device, bytes)).collect::<Result<Vec<_>>>()?;
    let own = plan.values.iter().filter(|value| value.place == Place::Own);
    let own = own.map(|value| allocate_elements(device, &value.ty)).collect::<Result<Vec<_>>>()?;
    let submission = program.submit(device, inputs, scalars, &slots, &own)?;
    let numbers = plan.own_values();
    let storage = |source: Source, layout: &Layout| {
        let buffer = match source {
            Source::Input(input) => Some(&inputs[input]),
            Source::Value(value) => numbers[value].map(|number| &own[number]),
        };
        let missing = || {
            Error::new(ErrorKind::Internal, format!("expected {source:?} in a buffer of its own, found it in a slot"))
        };
        Ok(Storage { buffer: buffer.ok_or_else(missing)?.clone(), layout: layout.clone(), submission })
    };
    let outputs = plan.outputs.iter().map(|output| storage(output.source, &output.layout));
    let held = plan.held.iter().map(|&(node, value)| {
        let layout = Layout::contiguous(plan.values[value].ty.shape.clone());
        Ok((node, storage(Source::Value(value), &layout)?))
    });
    Ok(Done { outputs: outputs.collect::<Result<_>>()?, held: held.collect::<Result<_>>()? })
}

/// Memory for the elements of a tensor.
pub(super) fn allocate_elements(device: &Device, ty: &kiln_ir::graph::TensorType) -> Result<Buffer> {
    // A kernel sees no more of a buffer at once.
    let (bytes, most) = (ty.bytes(), device.info().limits.max_binding_bytes);
    if bytes > most {
        let (dtype, shape, id) = (ty.dtype, &ty.shape, &device.info().id);
        let message = format!("tensor on {id} expected at most {most} bytes, found {dtype} {shape} of {bytes} bytes");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    allocate(device, bytes)
}

/// Memory in whole groups of 16 bytes: a GPU writes four elements at once, also the last ones.
fn allocate(device: &Device, bytes: u64) -> Result<Buffer> {
    device.buffer(bytes.next_multiple_of(16).max(16))
}
