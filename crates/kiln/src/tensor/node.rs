//! The node behind a tensor: what it is, and what is known of its elements.

use super::Tensor;
use super::autograd::Record;
use crate::Device;
use kiln_device::Buffer;
use kiln_ir::graph::{NodeId, Op, TensorType, View};
use kiln_ir::{Layout, Shape};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A graph that grows to this many nodes is run, so that neither memory nor the time of a plan grows without bound.
const MAX_PENDING: usize = 512;

/// A node of the graph that tensors are.
pub(super) struct TensorNode {
    pub(super) kind: Arc<Kind>,
    /// An upper bound of the nodes that have to run for this one, itself included.
    pending: AtomicU32,
    /// The number that it had in the graph which was last collected on its device.
    number: AtomicU32,
    /// Whether it was computed inside of a kernel, and not stored.
    was_inlined: AtomicBool,
    /// How the elements are computed; `None` once they are stored, so that what they were computed from can go.
    ///
    /// Apart from the node: both are then small enough for the lists of small blocks that allocators keep.
    pub(super) planned: Mutex<Option<Arc<Planned>>>,
    /// Where the elements are, or will be when what is submitted is done.
    storage: OnceLock<Storage>,
    /// Of a tracked tensor: where gradients go from here.
    pub(super) record: Option<Box<Record>>,
}

/// What a tensor is, apart from its elements. Shared by neighbours: the result of most ops is what their input is.
pub(super) struct Kind {
    pub(super) ty: TensorType,
    pub(super) device: Device,
}

impl Kind {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.ty == other.ty && self.device.is_same(&other.device))
    }
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
    pub(super) layout: Arc<Layout>,
    /// The submission that computes them; 0 where the host wrote them.
    pub(super) submission: u64,
}

impl TensorNode {
    /// How the elements are computed. Where that is not known any more, they are stored.
    pub(super) fn planned(&self) -> Option<Arc<Planned>> {
        if self.storage().is_some() { None } else { self.planned.lock().clone() }
    }

    /// Where the elements are, where they are computed.
    pub(super) fn storage(&self) -> Option<&Storage> {
        self.storage.get()
    }

    /// Notes that it was computed and not stored.
    pub(super) fn set_inlined(&self) {
        self.was_inlined.store(true, Ordering::Relaxed);
    }

    /// Whether it was computed before and not stored.
    pub(super) fn was_inlined(&self) -> bool {
        self.was_inlined.load(Ordering::Relaxed)
    }

    /// The number that [`set_number`](Self::set_number) gave it last.
    pub(super) fn number(&self) -> NodeId {
        self.number.load(Ordering::Relaxed) as NodeId
    }

    /// Gives it a number in the graph that is being collected.
    pub(super) fn set_number(&self, number: NodeId) {
        self.number.store(number as u32, Ordering::Relaxed);
    }

    /// Sets where the elements are, unless another thread did. What they were computed from is let go, after the lock.
    pub(super) fn set_ready(&self, storage: Storage) {
        // Both threads computed the same elements.
        let _ = self.storage.set(storage);
        let before = self.planned.lock().take();
        drop(before);
    }

    fn pending(&self) -> usize {
        // Once it has run, nothing is.
        if self.storage().is_some() { 0 } else { self.pending.load(Ordering::Relaxed) as usize }
    }
}

impl Tensor {
    fn node(kind: Arc<Kind>, pending: usize, planned: Option<Arc<Planned>>) -> TensorNode {
        let (planned, pending) = (Mutex::new(planned), AtomicU32::new(pending as u32));
        let (number, was_inlined) = (AtomicU32::new(0), AtomicBool::new(false));
        TensorNode { kind, pending, number, was_inlined, planned, storage: OnceLock::new(), record: None }
    }

    /// A tensor in memory.
    pub(super) fn ready(ty: TensorType, device: &Device, storage: Storage) -> Self {
        let kind = Arc::new(Kind { ty, device: device.clone() });
        Self(Arc::new(TensorNode { storage: storage.into(), ..Self::node(kind, 0, None) }))
    }

    /// A tensor that an op without inputs gives.
    pub(super) fn source(op: Op, scalar: u32, ty: TensorType, device: &Device) -> Self {
        let planned = Planned { op, inputs: SmallVec::new(), scalar };
        Self(Arc::new(Self::node(Arc::new(Kind { ty, device: device.clone() }), 1, Some(Arc::new(planned)))))
    }

    /// A tensor that an op gives of others, which the caller has checked. Runs what is pending where that has grown large.
    pub(super) fn planned(op: Op, inputs: &[&Self], ty: TensorType) -> crate::Result<Self> {
        Self::planned_as(op, inputs, Arc::new(Kind { ty, device: inputs[0].device().clone() }))
    }

    /// As [`planned`](Self::planned), of the shape and dtype of the first of them.
    pub(super) fn planned_like(op: Op, inputs: &[&Self]) -> crate::Result<Self> {
        Self::planned_as(op, inputs, Arc::clone(&inputs[0].0.kind))
    }

    fn planned_as(op: Op, inputs: &[&Self], kind: Arc<Kind>) -> crate::Result<Self> {
        let pending = 1 + inputs.iter().map(|input| input.0.pending()).sum::<usize>();
        let mut kept: SmallVec<[Self; 3]> = SmallVec::new();
        inputs.iter().for_each(|&input| kept.push(input.clone()));
        let planned = Arc::new(Planned { op, inputs: kept, scalar: 0 });
        let record = Record::of(&planned, &kind.ty);
        let tensor = Self(Arc::new(TensorNode { record, ..Self::node(kind, pending, Some(planned)) }));
        if pending >= MAX_PENDING {
            // Nodes that several others use were counted several times.
            let pending = super::run::eval_from(&tensor, MAX_PENDING)?;
            tensor.0.pending.store(pending as u32, Ordering::Relaxed);
        }
        Ok(tensor)
    }

    /// A view of a tensor; of one in memory it is in memory too, where strides can say it.
    pub(super) fn viewed(&self, view: View, shape: Shape) -> crate::Result<Self> {
        let ty = TensorType { shape, dtype: self.dtype() };
        if let Some(storage) = self.0.storage()
            && let Some(layout) = view.apply(&storage.layout, &ty.shape)
        {
            let storage = Storage { layout: layout.into(), ..storage.clone() };
            let viewed = Self::ready(ty, self.device(), storage);
            return Ok(if self.is_tracked() { viewed.with_record(self.record_of(view, &viewed)) } else { viewed });
        }
        Self::planned(Op::View(view), &[self], ty)
    }

    /// The record of a view of this tensor.
    fn record_of(&self, view: View, viewed: &Self) -> Option<Box<Record>> {
        let planned = Planned { op: Op::View(view), inputs: [self.clone()].into_iter().collect(), scalar: 0 };
        Record::of(&Arc::new(planned), &viewed.0.kind.ty)
    }

    /// Another node with the same elements and a record of its own.
    pub(super) fn with_record(&self, record: Option<Box<Record>>) -> Self {
        let kind = Arc::clone(&self.0.kind);
        let node = if let Some(storage) = self.0.storage() {
            TensorNode { storage: storage.clone().into(), ..Self::node(kind, 0, None) }
        } else {
            let inputs = [self.clone()].into_iter().collect();
            let planned = Planned { op: Op::View(View::Reshape), inputs, scalar: 0 };
            Self::node(kind, 1 + self.0.pending(), Some(Arc::new(planned)))
        };
        Self(Arc::new(TensorNode { record, ..node }))
    }

    /// Another node with the same elements, which gradients pass through.
    pub(super) fn passed_through(&self) -> Self {
        self.with_record(self.record_of(View::Reshape, self))
    }
}
