//! What a tracked tensor remembers of how it was computed.

use super::checkpoint::Function;
use super::mode;
use crate::Result;
use crate::tensor::Tensor;
use crate::tensor::node::{Planned, TensorNode};
use kiln_ir::graph::TensorType;
use parking_lot::Mutex;
use std::sync::Arc;

/// What an op makes of its inputs, its output and the gradient of its output: the gradient of each input that has one.
pub(in crate::tensor) type GradientRule =
    dyn Fn(&[Tensor], &Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// Of a tracked tensor: where gradients go from here.
pub(in crate::tensor) struct Record {
    source: Mutex<Source>,
    /// What reached a leaf so far.
    gradient: Mutex<Option<Tensor>>,
}

/// Where a tracked tensor comes from.
#[derive(Clone)]
pub(super) enum Source {
    /// From `requires_grad`: gradients end here.
    Leaf,
    /// An op.
    Op(Arc<Planned>),
    /// An op whose gradient is a function of tensors, with the name of the op.
    Rule(Arc<Planned>, Arc<str>, Arc<GradientRule>),
    /// A tensor of another device.
    Device(Tensor),
    /// A function that is called again.
    Function(Arc<Function>),
    /// It was let go by `backward`.
    Released,
}

impl Record {
    pub(super) fn new(source: Source) -> Box<Self> {
        Box::new(Self { source: Mutex::new(source), gradient: Mutex::default() })
    }

    /// The record of what an op gives of its inputs; `None` where it is not tracked.
    pub(in crate::tensor) fn of(planned: &Arc<Planned>, ty: &TensorType) -> Option<Box<Self>> {
        let is_tracked = planned.inputs.iter().any(Tensor::is_tracked) && ty.dtype.is_float() && mode::is_tracking();
        is_tracked.then(|| Self::new(Source::Op(Arc::clone(planned))))
    }

    /// The record of a copy on another device.
    pub(in crate::tensor) fn of_copy(from: &Tensor) -> Option<Box<Self>> {
        (from.is_tracked() && mode::is_tracking()).then(|| Self::new(Source::Device(from.clone())))
    }

    /// Replaces the gradient that the op declares.
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

    /// Whether gradients may still need what this tensor was computed from.
    pub(in crate::tensor) fn is_wanted(&self) -> bool {
        !matches!(*self.source.lock(), Source::Leaf | Source::Released)
    }

    /// Lets go what it was computed from.
    pub(super) fn release(&self) {
        let before = std::mem::replace(&mut *self.source.lock(), Source::Released);
        // After the lock: the last handles to tensors may go here.
        drop_all(before);
    }

    pub(super) fn gradient(&self) -> Option<Tensor> {
        self.gradient.lock().clone()
    }

    /// Adds to what reached the leaf so far, also where several threads do.
    pub(super) fn add_gradient(&self, gradient: Tensor) -> Result<()> {
        let mut own = self.gradient.lock();
        let sum = match &*own {
            None => gradient,
            Some(before) => before.add(&gradient)?,
        };
        *own = Some(sum);
        Ok(())
    }

    pub(super) fn set_gradient(&self, gradient: Option<Tensor>) {
        let before = std::mem::replace(&mut *self.gradient.lock(), gradient);
        drop(before);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        drop_all(std::mem::replace(self.source.get_mut(), Source::Released));
    }
}

/// Drops what a tensor was computed from, one node after the other: records may reach back further than the thread's stack is deep.
fn drop_all(source: Source) {
    let mut rest = vec![source];
    while let Some(source) = rest.pop() {
        let inputs = match source {
            Source::Leaf | Source::Released => continue,
            Source::Function(function) => Arc::into_inner(function).map(Function::into_inputs).unwrap_or_default(),
            Source::Device(tensor) => vec![tensor],
            Source::Op(planned) | Source::Rule(planned, ..) => {
                Arc::into_inner(planned).map(|planned| planned.inputs.into_vec()).unwrap_or_default()
            }
        };
        for Tensor(node) in inputs {
            // The last handle: what its record has goes on the list, and then the node goes.
            if let Some(TensorNode { record: Some(mut record), planned, .. }) = Arc::into_inner(node) {
                rest.push(std::mem::replace(record.source.get_mut(), Source::Released));
                rest.extend(planned.into_inner().map(Source::Op));
            }
        }
    }
}
