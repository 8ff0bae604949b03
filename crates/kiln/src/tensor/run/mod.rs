//! How tensors are computed: the pending graph is collected, planned or found in the plan cache, and run.

mod collect;
mod explain;
pub(crate) mod gpu;
mod plans;
mod stepwise;
mod verify;

pub(crate) use collect::Collector;
pub use explain::Explanation;
pub(crate) use plans::{PlanCache, Program};
pub use verify::VerifyReport;

use super::Tensor;
use super::node::Storage;
use crate::{Device, Error, ErrorKind, Result};
use collect::Collected;
use kiln_ir::graph::NodeId;
use kiln_runtime::Buffer;
use plans::{Home, Memory};
use smallvec::SmallVec;
use std::sync::Arc;

/// Of many tensors, as many are computed at once as have about this many nodes together.
const MAX_NODES: usize = 512;

/// Computes all of these tensors, which are of one device.
pub(super) fn eval(tensors: &[&Tensor]) -> Result<()> {
    let mut rest = tensors;
    while let Some(first) = rest.iter().position(|tensor| tensor.0.storage().is_none()) {
        rest = &rest[first..];
        let device = rest[0].device();
        let collected = device.tensors().collector.collect(rest, MAX_NODES);
        let wanted = collected.wanted;
        compute(device, collected)?;
        rest = &rest[wanted..];
    }
    Ok(())
}

/// Computes a tensor if at least `limit` nodes have to run for it. Returns how many nodes still have to.
pub(super) fn eval_from(tensor: &Tensor, limit: usize) -> Result<usize> {
    let device = tensor.device();
    let collected = device.tensors().collector.collect(&[tensor], usize::MAX);
    let pending = collected.pending();
    if pending < limit {
        device.tensors().collector.recycle(collected);
        return Ok(pending);
    }
    compute(device, collected)?;
    Ok(0)
}

/// Runs what was collected, and tells the tensors where their elements are.
fn compute(device: &Device, collected: Collected) -> Result<()> {
    if device.has_tripwire() {
        let done = stepwise::with_tripwire(device, &collected)?;
        for (tensor, storage) in collected.outputs().zip(done) {
            tensor.0.set_ready(storage);
        }
        return Ok(());
    }
    let program = device.tensors().plans.get(device, &collected.key, &collected.graph)?;
    let inputs: SmallVec<[&Buffer; 16]> = collected.buffers().collect();
    let run = Run::new(device, &program, &inputs, &collected.scalars)?;
    for (output, tensor) in collected.outputs().enumerate() {
        tensor.0.set_ready(run.output(output));
    }
    collected.graph.held.iter().for_each(|&node| collected.tensors[node].0.set_inlined());
    for (node, storage) in run.held() {
        collected.tensors[node].0.set_ready(storage);
    }
    drop(run);
    drop(inputs);
    device.tensors().collector.recycle(collected);
    Ok(())
}

/// A program that has run, or is submitted, with the memory that it works on.
pub(super) struct Run<'a> {
    program: &'a Program,
    inputs: &'a [&'a Buffer],
    own: SmallVec<[Buffer; 4]>,
    submission: u64,
}

impl<'a> Run<'a> {
    /// Runs a program on these inputs.
    pub(super) fn new(
        device: &Device,
        program: &'a Program,
        inputs: &'a [&'a Buffer],
        scalars: &[u32],
    ) -> Result<Self> {
        let mut slots: SmallVec<[Buffer; 4]> = SmallVec::new();
        for &bytes in &program.plan().slots {
            slots.push(allocate(device, bytes)?);
        }
        let mut own: SmallVec<[Buffer; 4]> = SmallVec::new();
        for value in program.own_values() {
            own.push(allocate_elements(device, &value.ty)?);
        }
        let submission = program.submit(device, inputs, scalars, &slots, &own)?;
        Ok(Self { program, inputs, own, submission })
    }

    /// Where an output of the graph is.
    pub(super) fn output(&self, output: usize) -> Storage {
        self.storage(&self.program.outputs()[output])
    }

    /// Nodes of the graph that are stored and held.
    fn held(&self) -> impl Iterator<Item = (NodeId, Storage)> {
        self.program.held().iter().map(|(node, home)| (*node, self.storage(home)))
    }

    fn storage(&self, home: &Home) -> Storage {
        let buffer = match home.memory {
            Memory::Input(input) => self.inputs[input],
            Memory::Own(number) => &self.own[number],
        };
        Storage { buffer: buffer.clone(), layout: Arc::clone(&home.layout), submission: self.submission }
    }
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
