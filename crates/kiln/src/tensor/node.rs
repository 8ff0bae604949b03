//! The graph node of a tensor handle, and the state of its elements.

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

/// A graph with this many pending nodes is run, which bounds memory and planning time.
const MAX_PENDING: usize = 512;

/// A node of the lazy graph.
pub(super) struct TensorNode {
    pub(super) kind: Arc<Kind>,
    /// Upper bound on the number of pending nodes below this one, itself included.
    pending: AtomicU32,
    /// Its index in the graph last collected on its device.
    number: AtomicU32,
    /// Whether it was computed inside a fused kernel without being stored.
    was_inlined: AtomicBool,
    /// How the elements are computed; `None` once they are stored, so that the inputs can be freed.
    ///
    /// Allocated separately from the node: both then fit the small-block free lists of allocators.
    pub(super) planned: Mutex<Option<Arc<Planned>>>,
    /// The memory of the elements, which is valid once the submitted work is done.
    storage: OnceLock<Storage>,
    /// The autograd record of a tracked tensor.
    pub(super) record: Option<Box<Record>>,
}

/// Shape, dtype and device of a tensor. Shared between nodes, because most ops return the type of their input.
pub(super) struct Kind {
    pub(super) ty: TensorType,
    pub(super) device: Device,
}

impl Kind {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        // Most ops share the kind of their input, so the comparison of shapes is rare.
        std::ptr::eq(self, other) || (self.ty == other.ty && self.device.is_same(&other.device))
    }
}

/// An op that has not run.
pub(super) struct Planned {
    pub(super) op: Op,
    pub(super) inputs: SmallVec<[Tensor; 3]>,
    /// The value of an [`Op::Scalar`], as bits of its class.
    pub(super) scalar: u32,
}

/// Elements in memory.
#[derive(Clone)]
pub(super) struct Storage {
    pub(super) buffer: Buffer,
    pub(super) layout: Arc<Layout>,
    /// The submission that computes them; 0 if the host wrote them.
    pub(super) submission: u64,
}

impl TensorNode {
    /// Returns how the elements are computed; `None` if they are stored.
    pub(super) fn planned(&self) -> Option<Arc<Planned>> {
        if self.storage().is_some() { None } else { self.planned.lock().clone() }
    }

    /// Returns the memory of the elements, if they are computed.
    pub(super) fn storage(&self) -> Option<&Storage> {
        self.storage.get()
    }

    /// Marks the node as computed without being stored.
    pub(super) fn set_inlined(&self) {
        self.was_inlined.store(true, Ordering::Relaxed);
    }

    /// Returns whether the node was computed before without being stored.
    pub(super) fn was_inlined(&self) -> bool {
        self.was_inlined.load(Ordering::Relaxed)
    }

    /// Returns the index last set by [`set_number`](Self::set_number). Both are called only under the collector's
    /// lock, so relaxed ordering suffices.
    pub(super) fn number(&self) -> NodeId {
        self.number.load(Ordering::Relaxed) as NodeId
    }

    /// Sets the index in the graph being collected.
    pub(super) fn set_number(&self, number: NodeId) {
        self.number.store(number as u32, Ordering::Relaxed);
    }

    /// Sets the storage, unless another thread already did. The inputs are dropped after the lock is released.
    pub(super) fn set_ready(&self, storage: Storage) {
        // If another thread was first, it computed the same elements. The storage is set before the plan is taken, so
        // that a reader without a plan always finds the storage.
        let _ = self.storage.set(storage);
        let before = self.planned.lock().take();
        drop(before);
    }

    fn pending(&self) -> usize {
        // A stored node has no pending nodes. Otherwise this is an estimate that only decides when a batch runs, so
        // relaxed ordering suffices.
        if self.storage().is_some() { 0 } else { self.pending.load(Ordering::Relaxed) as usize }
    }
}

impl Tensor {
    fn node(kind: Arc<Kind>, pending: usize, planned: Option<Arc<Planned>>) -> TensorNode {
        let (planned, pending) = (Mutex::new(planned), AtomicU32::new(pending as u32));
        let (number, was_inlined) = (AtomicU32::new(0), AtomicBool::new(false));
        TensorNode { kind, pending, number, was_inlined, planned, storage: OnceLock::new(), record: None }
    }

    /// Creates a tensor from storage.
    pub(super) fn ready(ty: TensorType, device: &Device, storage: Storage) -> Self {
        let kind = Arc::new(Kind { ty, device: device.clone() });
        Self(Arc::new(TensorNode { storage: storage.into(), ..Self::node(kind, 0, None) }))
    }

    /// Creates a tensor from an op without inputs.
    pub(super) fn source(op: Op, scalar: u32, ty: TensorType, device: &Device) -> Self {
        let planned = Planned { op, inputs: SmallVec::new(), scalar };
        Self(Arc::new(Self::node(Arc::new(Kind { ty, device: device.clone() }), 1, Some(Arc::new(planned)))))
    }

    /// Creates a tensor from an op on inputs that the caller has checked. Runs pending nodes if there are too many.
    pub(super) fn planned(op: Op, inputs: &[&Self], ty: TensorType) -> crate::Result<Self> {
        Self::planned_as(op, inputs, Arc::new(Kind { ty, device: inputs[0].device().clone() }))
    }

    /// Same as [`planned`](Self::planned), with the shape and dtype of the first input.
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
            // Shared nodes were counted several times, so `eval_from` recounts them.
            let pending = super::run::eval_from(&tensor, MAX_PENDING)?;
            tensor.0.pending.store(pending as u32, Ordering::Relaxed);
        }
        Ok(tensor)
    }

    /// Creates a view. A view of a stored tensor shares its memory if strides can express it.
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

    /// Returns the autograd record of a view of this tensor.
    fn record_of(&self, view: View, viewed: &Self) -> Option<Box<Record>> {
        let planned = Planned { op: Op::View(view), inputs: [self.clone()].into_iter().collect(), scalar: 0 };
        Record::of(&Arc::new(planned), &viewed.0.kind.ty)
    }

    /// Creates a node with the same elements and a different record.
    pub(super) fn with_record(&self, record: Option<Box<Record>>) -> Self {
        let kind = Arc::clone(&self.0.kind);
        // A pending tensor gets a reshape to its own shape, which computes nothing: the op stays in the node of
        // `self`, so that both handles evaluate it once.
        let node = if let Some(storage) = self.0.storage() {
            TensorNode { storage: storage.clone().into(), ..Self::node(kind, 0, None) }
        } else {
            let inputs = [self.clone()].into_iter().collect();
            let planned = Planned { op: Op::View(View::Reshape), inputs, scalar: 0 };
            Self::node(kind, 1 + self.0.pending(), Some(Arc::new(planned)))
        };
        Self(Arc::new(TensorNode { record, ..node }))
    }

    /// Creates a node with the same elements that passes gradients through.
    pub(super) fn passed_through(&self) -> Self {
        self.with_record(self.record_of(View::Reshape, self))
    }
}
