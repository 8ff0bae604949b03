//! The plan cache: plans keyed by the ops, dtypes, shapes and layouts of a graph.

use super::collect::Collected;
use super::packing::Packing;
use crate::{Device, Error, ErrorKind, Result};
use kiln_device::CompiledPlan;
use kiln_ir::Layout;
use kiln_ir::graph::{NodeId, OpGraph};
use kiln_ir::plan::{self, Place, Plan, PlanKey, Source, Value};
use kiln_resource_cache::{Cache, CacheError, CacheMetrics, EvictionPolicy};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of plans per device.
const MAX_PLANS: usize = 1024;

/// The plan cache of a device.
pub(crate) struct PlanCache {
    /// A cache of the device's registry, or the error if a user's cache already has its name.
    plans: Result<Arc<Cache<PlanKey, CachedPlan>>>,
    /// The number of plans made for each structure: one per set of shapes.
    structures: Mutex<HashMap<PlanKey, usize>>,
}

/// A plan compiled for its device, and the receivers of its results.
pub(crate) struct CachedPlan {
    plan: Arc<Plan>,
    compiled: Arc<dyn CompiledPlan>,
    /// The receivers of each value stored in its own buffer.
    deliveries: Vec<SmallVec<[Delivery; 1]>>,
    /// Inputs that are also results, possibly with another layout.
    passed: Vec<(usize, Delivery)>,
    packing: Packing,
    /// Ordinal among the plans with this structure.
    pub(super) variant: usize,
}

/// A result of a run and its receiver.
pub(super) struct Delivery {
    pub(super) to: Receiver,
    pub(super) layout: Arc<Layout>,
}

/// The receiver of a result.
#[derive(Clone, Copy)]
pub(super) enum Receiver {
    /// An output of the graph.
    Output(usize),
    /// A held node.
    Held(NodeId),
}

impl PlanCache {
    /// Creates the plan cache in the device's registry.
    pub(crate) fn new(device: &kiln_device::Device) -> Self {
        let plans = Cache::builder("plans")
            .policy(EvictionPolicy::size_limited_lru(MAX_PLANS))
            .weigher(|key: &PlanKey, plan: &CachedPlan| key.bytes() + plan.bytes());
        let plans = device.caches().register(plans).map_err(|error| Failure::from(error).0);
        Self { plans, structures: Mutex::default() }
    }

    /// Returns the plan of a collected graph, from the cache or newly made.
    pub(super) fn get(&self, device: &Device, collected: &Collected) -> Result<Arc<CachedPlan>> {
        let plans = self.plans.as_ref().map_err(Clone::clone)?;
        // Single flight: threads that need the same plan at the same time wait for one of them to create it.
        let found = plans.get_or_try_insert_with(&collected.key, || {
            let graph = collected.graph();
            debug_assert_eq!(collected.key, plan::key(&graph), "the incremental key must equal the key of the graph");
            self.create(device, &graph)
        });
        found.map_err(|Failure(error)| error)
    }

    /// Returns whether a graph was planned before.
    pub(super) fn contains(&self, key: &PlanKey) -> bool {
        self.plans.as_ref().is_ok_and(|plans| plans.contains(key))
    }

    pub(crate) fn statistics(&self) -> CacheMetrics {
        self.plans.as_ref().map_or_else(|_| CacheMetrics::default(), |plans| plans.metrics())
    }
}

impl PlanCache {
    fn create(&self, device: &Device, graph: &OpGraph) -> Result<CachedPlan, Failure> {
        let plan = Plan::new(graph, device.target()).map_err(Failure)?;
        let variant = {
            let mut structures = self.structures.lock();
            // Cleared about as often as plans are evicted. The counts are only used in reports, so a low count is
            // harmless.
            if structures.len() >= MAX_PLANS {
                structures.clear();
            }
            let count = structures.entry(plan::structure(graph)).or_insert(0);
            *count += 1;
            *count
        };
        Ok(CachedPlan { variant, ..CachedPlan::new(device, plan).map_err(Failure)? })
    }
}

impl CachedPlan {
    /// Compiles a plan for a device.
    pub(super) fn new(device: &Device, plan: Plan) -> Result<Self> {
        let plan = Arc::new(plan);
        let numbers = plan.dedicated_values();
        let own: Vec<&Value> = plan.values.iter().filter(|value| value.place == Place::Dedicated).collect();
        let (mut deliveries, mut passed) = (Vec::new(), Vec::new());
        deliveries.resize_with(own.len(), SmallVec::new);
        // A result that is an input, such as a view of one, needs no kernel: it is delivered from the buffer of that
        // input.
        let mut deliver = |source: Source, to: Receiver, layout: Layout| {
            let delivery = Delivery { to, layout: Arc::new(layout) };
            match source {
                Source::Input(input) => passed.push((input, delivery)),
                Source::Value(value) => match numbers[value] {
                    Some(number) => deliveries[number].push(delivery),
                    None => {
                        let message = format!("expected {source:?} in a dedicated buffer, found it in a slot");
                        return Err(Error::new(ErrorKind::Internal, message));
                    }
                },
            }
            Ok(())
        };
        for (number, output) in plan.outputs.iter().enumerate() {
            deliver(output.source, Receiver::Output(number), output.layout.clone())?;
        }
        for &(node, value) in &plan.held {
            // Kernels write their results contiguously; only an output can have another layout, if it is a view of a
            // value.
            let layout = Layout::contiguous(plan.values[value].ty.shape.clone());
            deliver(Source::Value(value), Receiver::Held(node), layout)?;
        }
        let compiled = device.runtime().compile(&plan)?;
        let packing = Packing::new(own.iter().map(|value| &value.ty), compiled.packs_results());
        Ok(Self { plan, compiled, deliveries, passed, packing, variant: 1 })
    }

    /// Returns the size of the plan and its compiled form, in bytes.
    fn bytes(&self) -> u64 {
        let deliveries = self.deliveries.iter().map(|list| size_of_val(list) + size_of_val(&**list)).sum::<usize>();
        let own = size_of::<Self>() + deliveries + size_of_val(&*self.passed);
        self.plan.bytes() + self.compiled.bytes() + own as u64
    }

    /// Returns the compiled plan.
    pub(super) fn compiled(&self) -> &dyn CompiledPlan {
        &*self.compiled
    }

    /// Returns the plan.
    pub(super) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the packing of the values stored in their own buffers, in order.
    pub(super) fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Returns the receivers of each value stored in its own buffer.
    pub(super) fn deliveries(&self) -> &[SmallVec<[Delivery; 1]>] {
        &self.deliveries
    }

    /// Returns the inputs that are also results, with their receivers.
    pub(super) fn passed(&self) -> &[(usize, Delivery)] {
        &self.passed
    }
}

/// Why planning failed, as the error type that the cache requires.
#[derive(Clone)]
struct Failure(Error);

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        Self(Error::new(ErrorKind::Internal, format!("plan cache: {error}")).with_source(error))
    }
}
