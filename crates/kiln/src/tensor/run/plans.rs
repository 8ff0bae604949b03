//! Plans that were made, found again by the structure of what is computed.

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

/// The most plans that a device keeps.
const MAX_PLANS: usize = 1024;

/// The plans of a device.
pub(crate) struct PlanCache {
    /// A cache of the device's registry; the error where a user's cache has its name.
    plans: Result<Arc<Cache<PlanKey, CachedPlan>>>,
    /// For each structure, how many plans were made: one for each set of shapes.
    structures: Mutex<HashMap<PlanKey, usize>>,
}

/// A plan, ready to run on its device, and where its results go.
pub(crate) struct CachedPlan {
    plan: Arc<Plan>,
    compiled: Arc<dyn CompiledPlan>,
    /// For each value in memory of its own, who receives it.
    deliveries: Vec<SmallVec<[Delivery; 1]>>,
    /// Inputs that are results too, maybe in another order.
    passed: Vec<(usize, Delivery)>,
    packing: Packing,
    /// Ordinal among the plans with this structure.
    pub(super) variant: usize,
}

/// A result of a run.
pub(super) struct Delivery {
    pub(super) to: Receiver,
    pub(super) layout: Arc<Layout>,
}

/// Who receives a result.
#[derive(Clone, Copy)]
pub(super) enum Receiver {
    /// An output of the graph.
    Output(usize),
    /// A node that is held.
    Held(NodeId),
}

impl PlanCache {
    /// The plan cache of the device's registry.
    pub(crate) fn new(device: &kiln_device::Device) -> Self {
        let plans = Cache::builder("plans")
            .policy(EvictionPolicy::size_limited_lru(MAX_PLANS))
            .weigher(|key: &PlanKey, plan: &CachedPlan| key.bytes() + plan.bytes());
        let plans = device.caches().register(plans).map_err(|error| Failure::from(error).0);
        Self { plans, structures: Mutex::default() }
    }

    /// The plan of what was collected: from the cache, or made now.
    pub(super) fn get(&self, device: &Device, collected: &Collected) -> Result<Arc<CachedPlan>> {
        let plans = self.plans.as_ref().map_err(Clone::clone)?;
        let found = plans.get_or_try_insert_with(&collected.key, || {
            let graph = collected.graph();
            debug_assert_eq!(collected.key, plan::key(&graph), "the key is that of the graph");
            self.create(device, &graph)
        });
        found.map_err(|Failure(error)| error)
    }

    /// Whether a graph was planned before.
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
            // Forgotten together with the plans, roughly: a count too low says less in a report, nothing else.
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
    /// Makes a plan ready for a device.
    pub(super) fn new(device: &Device, plan: Plan) -> Result<Self> {
        let plan = Arc::new(plan);
        let numbers = plan.own_values();
        let own: Vec<&Value> = plan.values.iter().filter(|value| value.place == Place::Own).collect();
        let (mut deliveries, mut passed) = (Vec::new(), Vec::new());
        deliveries.resize_with(own.len(), SmallVec::new);
        let mut deliver = |source: Source, to: Receiver, layout: Layout| {
            let delivery = Delivery { to, layout: Arc::new(layout) };
            match source {
                Source::Input(input) => passed.push((input, delivery)),
                Source::Value(value) => match numbers[value] {
                    Some(number) => deliveries[number].push(delivery),
                    None => {
                        let message = format!("expected {source:?} in a buffer of its own, found it in a slot");
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
            let layout = Layout::contiguous(plan.values[value].ty.shape.clone());
            deliver(Source::Value(value), Receiver::Held(node), layout)?;
        }
        let compiled = device.runtime().compile(&plan)?;
        let packing = Packing::new(own.iter().map(|value| &value.ty), compiled.packs_results());
        Ok(Self { plan, compiled, deliveries, passed, packing, variant: 1 })
    }

    /// Bytes of the plan and of what its device made of it.
    fn bytes(&self) -> u64 {
        let deliveries = self.deliveries.iter().map(|list| size_of_val(list) + size_of_val(&**list)).sum::<usize>();
        let own = size_of::<Self>() + deliveries + size_of_val(&*self.passed);
        self.plan.bytes() + self.compiled.bytes() + own as u64
    }

    /// The plan as its device runs it.
    pub(super) fn compiled(&self) -> &dyn CompiledPlan {
        &*self.compiled
    }

    /// The plan.
    pub(super) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Where the values in memory of their own are, in order.
    pub(super) fn packing(&self) -> &Packing {
        &self.packing
    }

    /// For each value in memory of its own, who receives it.
    pub(super) fn deliveries(&self) -> &[SmallVec<[Delivery; 1]>] {
        &self.deliveries
    }

    /// Inputs that are results too, with their receivers.
    pub(super) fn passed(&self) -> &[(usize, Delivery)] {
        &self.passed
    }
}

/// What stopped a plan from being made; the cache asks for its own error to fit in.
#[derive(Clone)]
struct Failure(Error);

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        Self(Error::new(ErrorKind::Internal, format!("plan cache: {error}")).with_source(error))
    }
}
