//! The node behind a tensor: what it is, and what is known of its elements.

use super::Tensor;
use crate::Device;
use kiln_ir::graph::{Op, TensorType};
use kiln_ir::{Layout, Shape};
use kiln_runtime::Buffer;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A graph that grows to this many nodes is run, so that neither memory nor the time of a plan grows without bound.
const MAX_PENDING: usize = 512;

/// A node of the graph that tensors are.
pub(super) struct Node {
    pub(super) ty: TensorType,
    pub(super) device: Device,
    /// An upper bound of the nodes that have to run for this one, itself included.
    pending: usize,
    state: Mutex<State>,
    /// Whether it was computed inside of a kernel, and not stored.
    was_inlined: AtomicBool,
}

/// What is known of the elements.
pub(super) enum State {
    /// How they are computed.
    Planned(Planned),
    /// Where they are, or will be when what is submitted is done.
    Ready(Storage),
}

/// An op that did not run yet.
pub(super) struct Planned {
    pub(super) op: Op,
    pub(super) inputs: SmallVec<[Tensor; 3]>,
    /// The value of an [`Op::Scalar`], as the bits of its class.
    pub(super) scalar: u32,
}

/// Elements in memory.
#[derive(Clone)]
pub(super) struct Storage {
    pub(super) buffer: Buffer,
    pub(super) layout: Layout,
    /// The submission that computes them; 0 where the host wrote them.
    pub(super) submission: u64,
}

impl Node {
    /// What is known of the elements, for as long as the guard lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Where the elements are, where they are computed.
    pub(super) fn storage(&self) -> Option<Storage> {
        match &*self.state.lock() {
            State::Ready(storage) => Some(storage.clone()),
            State::Planned(_) => None,
        }
    }

    /// Whether the elements are those of another tensor, in another order.
    pub(super) fn is_view(&self) -> bool {
        matches!(&*self.state.lock(), State::Planned(Planned { op: Op::View(_), .. }))
    }

    /// Notes that it was computed and not stored.
    pub(super) fn set_inlined(&self) {
        self.was_inlined.store(true, Ordering::Relaxed);
    }

    /// Whether it was computed before and not stored.
    pub(super) fn was_inlined(&self) -> bool {
        self.was_inlined.load(Ordering::Relaxed)
    }

    /// Sets where the elements are. What they were computed from is let go, after the lock.
    pub(super) fn set_ready(&self, storage: Storage) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Ready(storage));
        drop(before);
    }
}

impl Tensor {
    fn node(ty: TensorType, device: Device, pending: usize, state: State) -> Self {
        Self(Arc::new(Node { ty, device, pending, state: Mutex::new(state), was_inlined: AtomicBool::new(false) }))
    }

    /// A tensor in memory.
    pub(super) fn ready(ty: TensorType, device: &Device, storage: Storage) -> Self {
        Self::node(ty, device.clone(), 0, State::Ready(storage))
    }

    /// A tensor that an op without inputs gives.
    pub(super) fn source(op: Op, scalar: u32, ty: TensorType, device: &Device) -> Self {
        Self::node(ty, device.clone(), 1, State::Planned(Planned { op, inputs: SmallVec::new(), scalar }))
    }

    /// A tensor that an op gives of others, which the caller has checked. Runs what is pending where that has grown large.
    pub(super) fn planned(op: Op, inputs: &[&Self], ty: TensorType) -> crate::Result<Self> {
        let inputs: SmallVec<[Self; 3]> = inputs.iter().copied().cloned().collect();
        let device = inputs[0].device().clone();
        let pending = 1 + inputs.iter().map(|input| input.0.pending()).sum::<usize>();
        let make = |inputs, pending| Self::node(ty, device, pending, State::Planned(Planned { op, inputs, scalar: 0 }));
        if pending < MAX_PENDING {
            return Ok(make(inputs, pending));
        }
        // Nodes that several others use were counted several times.
        let pending = 1 + super::run::count_pending(&inputs, MAX_PENDING);
        let tensor = make(inputs, pending);
        if pending >= MAX_PENDING {
            tensor.eval()?;
        }
        Ok(tensor)
    }

    /// A view of a tensor; of one in memory it is in memory too, where strides can say it.
    pub(super) fn viewed(&self, view: kiln_ir::graph::View, shape: Shape) -> crate::Result<Self> {
        let ty = TensorType { shape, dtype: self.dtype() };
        if let Some(storage) = self.0.storage()
            && let Some(layout) = view.apply(&storage.layout, &ty.shape)
        {
            return Ok(Self::ready(ty, self.device(), Storage { layout, ..storage }));
        }
        Self::planned(Op::View(view), &[self], ty)
    }
}

impl Node {
    fn pending(&self) -> usize {
        // Once it has run, nothing is.
        if matches!(&*self.state.lock(), State::Ready(_)) { 0 } else { self.pending }
    }
}
