//! The autograd record of a tracked tensor.

use super::checkpoint::Function;
use super::mode;
use crate::Result;
use crate::tensor::Tensor;
use crate::tensor::node::{Planned, TensorNode};
use kiln_ir::graph::TensorType;
use parking_lot::Mutex;
use std::sync::Arc;

/// A gradient rule: maps the inputs, the output and the gradient of the output to the gradient of each input, if it
/// has one.
pub(in crate::tensor) type GradientRule =
    dyn Fn(&[Tensor], &Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// The autograd record of a tracked tensor.
pub(in crate::tensor) struct Record {
    source: Mutex<Source>,
    /// The gradient accumulated for a leaf.
    gradient: Mutex<Option<Tensor>>,
}

/// The origin of a tracked tensor.
#[derive(Clone)]
pub(super) enum Source {
    /// From `requires_grad`: gradients stop here.
    Leaf,
    /// An op.
    Op(Arc<Planned>),
    /// An op with a user-defined gradient rule, and the name of the op.
    Rule(Arc<Planned>, Arc<str>, Arc<GradientRule>),
    /// Copied from this tensor, which is on another device.
    Device(Tensor),
    /// A checkpointed function.
    Function(Arc<Function>),
    /// Freed by `backward`.
    Released,
}

impl Record {
    pub(super) fn new(source: Source) -> Box<Self> {
        Box::new(Self { source: Mutex::new(source), gradient: Mutex::default() })
    }

    /// Creates the record of an op's result; `None` if it is not tracked.
    pub(in crate::tensor) fn of(planned: &Arc<Planned>, ty: &TensorType) -> Option<Box<Self>> {
        let is_tracked = planned.inputs.iter().any(Tensor::is_tracked) && ty.dtype.is_float() && mode::is_tracking();
        is_tracked.then(|| Self::new(Source::Op(Arc::clone(planned))))
    }

    /// Creates the record of a copy on another device.
    pub(in crate::tensor) fn of_copy(from: &Tensor) -> Option<Box<Self>> {
        (from.is_tracked() && mode::is_tracking()).then(|| Self::new(Source::Device(from.clone())))
    }

    /// Sets a user-defined gradient rule. Does nothing if the record is not one of an op, or was released.
    pub(in crate::tensor) fn set_rule(&self, name: &Arc<str>, rule: Arc<GradientRule>) {
        let mut source = self.source.lock();
        if let Source::Op(planned) = &*source {
            *source = Source::Rule(Arc::clone(planned), Arc::clone(name), rule);
        }
    }

    pub(super) fn source(&self) -> Source {
        self.source.lock().clone()
    }

    pub(super) fn is_leaf(&self) -> bool {
        matches!(*self.source.lock(), Source::Leaf)
    }

    /// Returns whether a backward pass may still need the inputs of this tensor.
    pub(in crate::tensor) fn is_wanted(&self) -> bool {
        !matches!(*self.source.lock(), Source::Leaf | Source::Released)
    }

    /// Frees the inputs.
    pub(super) fn release(&self) {
        let before = std::mem::replace(&mut *self.source.lock(), Source::Released);
        // Dropped after the lock is released: this may drop the last handles to tensors.
        drop_all(before);
    }

    pub(super) fn gradient(&self) -> Option<Tensor> {
        self.gradient.lock().clone()
    }

    /// Adds to the gradient of the leaf; safe to call from several threads.
    pub(super) fn add_gradient(&self, gradient: Tensor) -> Result<()> {
        // The lock is held across the addition, so that two concurrent backward passes both count. `add` only plans
        // the sum, unless the graph of pending nodes is full.
        let mut accumulated = self.gradient.lock();
        let sum = match &*accumulated {
            None => gradient,
            Some(before) => before.add(&gradient)?,
        };
        *accumulated = Some(sum);
        Ok(())
    }

    pub(super) fn set_gradient(&self, gradient: Option<Tensor>) {
        // Dropped after the lock is released: this may drop the last handles to tensors.
        let before = std::mem::replace(&mut *self.gradient.lock(), gradient);
        drop(before);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        drop_all(std::mem::replace(self.source.get_mut(), Source::Released));
    }
}

/// Drops the inputs of a tensor iteratively: recursive drops of a long chain of records would overflow the thread's
/// stack.
fn drop_all(source: Source) {
    let mut rest = vec![source];
    while let Some(source) = rest.pop() {
        // `Arc::into_inner` returns the value to exactly one of several threads that drop it at the same time.
        let inputs = match source {
            Source::Leaf | Source::Released => continue,
            Source::Function(function) => Arc::into_inner(function).map(Function::into_inputs).unwrap_or_default(),
            Source::Device(tensor) => vec![tensor],
            Source::Op(planned) | Source::Rule(planned, ..) => {
                Arc::into_inner(planned).map(|planned| planned.inputs.into_vec()).unwrap_or_default()
            }
        };
        for Tensor(node) in inputs {
            // This was the last handle: move the sources of its record to the list before the node is dropped.
            if let Some(TensorNode { record: Some(mut record), planned, .. }) = Arc::into_inner(node) {
                rest.push(std::mem::replace(record.source.get_mut(), Source::Released));
                rest.extend(planned.into_inner().map(Source::Op));
            }
        }
    }
}
