//! Execution of tensors: collects the pending graph, plans it or finds the plan in the plan cache, and runs it.

mod collect;
mod explain;
mod packing;
mod plans;
mod stepwise;
mod verify;

pub(crate) use collect::Collector;
pub use explain::TensorExplanation;
pub(crate) use plans::PlanCache;
pub use verify::VerifyReport;

use super::Tensor;
use super::node::Storage;
use crate::{Device, Error, ErrorKind, Result};
use collect::Collected;
use kiln_device::{Buffer, PlanRun};
use kiln_ir::Layout;
use kiln_ir::graph::TensorType;
use plans::{CachedPlan, Receiver};
use smallvec::SmallVec;
use std::sync::Arc;

/// Approximate number of nodes per run when many tensors are evaluated.
const MAX_NODES: usize = 512;

/// Evaluates tensors of one device.
pub(super) fn eval(tensors: &[&Tensor]) -> Result<()> {
    let mut rest = tensors;
    while let Some(first) = rest.iter().position(|tensor| tensor.0.storage().is_none()) {
        rest = &rest[first..];
        let device = rest[0].device();
        // The collector checks the limit before it adds a tensor, so it always takes the first one: `wanted` is at
        // least 1, and the loop ends.
        let collected = device.tensors().collector.collect(rest, MAX_NODES);
        let wanted = collected.wanted;
        compute(device, collected)?;
        rest = &rest[wanted..];
    }
    Ok(())
}

/// Evaluates a tensor if it has at least `limit` pending nodes. Returns the number of nodes still pending.
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

/// Runs a collected graph and sets the storage of its tensors.
fn compute(device: &Device, collected: Box<Collected>) -> Result<()> {
    if device.has_nan_check() {
        let done = stepwise::with_nan_check(device, &collected)?;
        for (&output, storage) in collected.outputs.iter().zip(done) {
            collected.tensor(output).0.set_ready(storage);
        }
        return Ok(());
    }
    let plan = device.tensors().plans.get(device, &collected)?;
    let inputs: SmallVec<[&Buffer; 16]> = collected.buffers().collect();
    let run = Run::new(device, &plan, &inputs, &collected.scalars)?;
    // All held nodes are marked, also those that the plan stores: their storage, set below, takes precedence over the
    // flag. Marked only after a successful run: a failed run has not computed them.
    collected.held.iter().for_each(|&node| collected.tensor(node).0.set_inlined());
    run.deliver(|receiver, storage| {
        let node = match receiver {
            Receiver::Output(output) => collected.outputs[output],
            Receiver::Held(node) => node,
        };
        collected.tensor(node).0.set_ready(storage);
    });
    // `inputs` borrows from `collected`, which is moved next.
    drop(inputs);
    device.tensors().collector.recycle(collected);
    Ok(())
}

/// A plan that ran or was submitted, with its memory.
pub(super) struct Run<'a> {
    plan: &'a CachedPlan,
    inputs: &'a [&'a Buffer],
    /// The values that are stored in their own buffers.
    own: SmallVec<[Buffer; 4]>,
    submission: u64,
}

impl<'a> Run<'a> {
    /// Runs a plan on these inputs.
    pub(super) fn new(
        device: &Device,
        plan: &'a CachedPlan,
        inputs: &'a [&'a Buffer],
        scalars: &[u32],
    ) -> Result<Self> {
        let mut slots: SmallVec<[Buffer; 4]> = SmallVec::new();
        for &bytes in &plan.plan().slots {
            slots.push(allocate(device, bytes)?);
        }
        let own = plan.packing().allocate(device)?;
        let run = PlanRun { inputs, slots: &slots, outputs: &own, scalars };
        // The slots return to the pool when this function returns, possibly before the work is done. That is safe
        // because the pool does not reuse a block until its last submission has completed.
        let submission = plan.compiled().run(device.runtime(), &run)?;
        Ok(Self { plan, inputs, own, submission })
    }

    /// Calls `receive` with the storage of each result.
    fn deliver(self, mut receive: impl FnMut(Receiver, Storage)) {
        let Self { plan, inputs, own, submission } = self;
        let storage = |buffer, layout: &Arc<Layout>| Storage { buffer, layout: Arc::clone(layout), submission };
        for (input, delivery) in plan.passed() {
            receive(delivery.to, storage(inputs[*input].clone(), &delivery.layout));
        }
        for (buffer, deliveries) in own.into_iter().zip(plan.deliveries()) {
            // The last receiver takes the buffer itself, so the usual case of one receiver does not touch its
            // reference count.
            let Some((last, others)) = deliveries.split_last() else { continue };
            others.iter().for_each(|delivery| receive(delivery.to, storage(buffer.clone(), &delivery.layout)));
            receive(last.to, storage(buffer, &last.layout));
        }
    }

    /// Returns the storage of the first output of the graph.
    pub(super) fn output(self) -> Result<Storage> {
        let mut found = None;
        self.deliver(|to, storage| {
            if matches!(to, Receiver::Output(0)) {
                found = Some(storage);
            }
        });
        found.ok_or_else(|| Error::new(ErrorKind::Internal, "a run expected an output, found none"))
    }
}

/// Allocates memory for the elements of a tensor.
pub(super) fn allocate_elements(device: &Device, ty: &TensorType) -> Result<Buffer> {
    check_size(device, ty)?;
    allocate(device, ty.bytes())
}

/// Returns an error if a tensor exceeds the largest buffer binding of a kernel.
pub(super) fn check_size(device: &Device, ty: &TensorType) -> Result<()> {
    let (bytes, most) = (ty.bytes(), device.target().max_tensor_bytes);
    if bytes <= most {
        return Ok(());
    }
    let (dtype, shape, id) = (ty.dtype, &ty.shape, &device.info().id);
    let message = format!("tensor on {id} expected at most {most} bytes, found {dtype} {shape} of {bytes} bytes");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Allocates a multiple of 16 bytes: GPU kernels write four elements at once, including the last ones.
fn allocate(device: &Device, bytes: u64) -> Result<Buffer> {
    device.buffer(allocation_bytes(bytes))
}

fn allocation_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(16).max(16)
}
