//! Compiled graphs, which can be run many times.

use super::edges::Edges;
use super::invalid;
use super::node::{DeclaredBuffer, GraphNode, NodeKind};
use super::report::RunReport;
use super::run;
use super::units::{self, Unit};
use crate::buffer::Buffer;
use crate::observe::Recorder;
use crate::rebinding::Rebinding;
use kiln_ir::{Result, bail};
use std::fmt;

/// A compiled [`Graph`](super::Graph).
///
/// Concurrent runs of one plan are not ordered with respect to each other, so they must use different buffers.
///
/// Returned by [`Graph::compile`](crate::Graph::compile); see [`Graph`](crate::Graph) for an example.
pub struct GraphPlan {
    /// Names and kinds, in insertion order.
    nodes: Vec<(String, NodeKind)>,
    order: Vec<usize>,
    buffers: Vec<DeclaredBuffer>,
    /// Whether a node writes to each declared buffer.
    is_written: Vec<bool>,
    units: Vec<Unit>,
    /// The recorders of the devices, each once, so that a run does not have to search for them.
    recorders: Vec<Recorder>,
    workers: usize,
}

impl GraphPlan {
    pub(super) fn new(nodes: &[GraphNode], buffers: &[DeclaredBuffer], edges: &Edges, order: &[usize]) -> Self {
        let mut is_written = vec![false; buffers.len()];
        for used in nodes.iter().flat_map(|node| &node.uses).filter(|used| used.how.is_write()) {
            is_written[used.declared] = true;
        }
        let units = units::divide(nodes, edges, order);
        Self {
            nodes: nodes.iter().map(|node| (node.name.clone(), node.kind)).collect(),
            order: order.to_vec(),
            buffers: buffers.to_vec(),
            is_written,
            recorders: recorders(&units),
            units,
            workers: crate::cores(),
        }
    }

    /// Sets the maximum number of threads of a run, including the caller's. Default: the number of cores. Threads are
    /// started when there is work for them and end with the run.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if `workers` is zero.
    pub fn with_workers(mut self, workers: usize) -> Result<Self> {
        if workers == 0 {
            return Err(invalid("graph expected at least one worker, found 0".into()));
        }
        self.workers = workers;
        Ok(self)
    }

    /// Returns the names of the nodes in an order in which each follows its dependencies.
    pub fn order(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(|&node| self.nodes[node].0.as_str())
    }

    /// Runs every node once.
    ///
    /// Host nodes and nodes of the CPU device have finished when this returns. Work of other devices has been
    /// submitted, and is only awaited by host nodes that depend on it.
    ///
    /// # Errors
    /// Returns the error of the first node that fails, with its name: its dependents do not run, no other node starts,
    /// and nodes that are already running finish first. A panic of a callback is `Internal`. A device fault that occurs
    /// later is returned by the next read or [`synchronize`](crate::Device::synchronize), as after any submission.
    pub fn run(&self) -> Result<RunReport> {
        self.run_with(&[])
    }

    /// Runs with replaced buffers, by name, for this run only.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a name is not declared or occurs twice, if a buffer has another device or length,
    /// if a node cannot use it, or if it overlaps another buffer of the graph and one of them is written, which would
    /// change the dependencies. Nothing has run then. Otherwise returns the same errors as [`run`](Self::run).
    pub fn run_with(&self, bindings: &[(&str, &Buffer)]) -> Result<RunReport> {
        let rebinding = self.rebinding(bindings)?;
        let bind =
            |unit: &Unit| unit.work.rebound(&rebinding).map_err(|error| error.context(unit.describe(&self.nodes)));
        // All units are rebound before the first one runs, so that an error leaves nothing half done.
        let rebound = self.units.iter().map(bind).collect::<Result<Vec<_>>>()?;
        run::run(&self.nodes, &self.units, &rebound, &self.recorders, self.workers)
    }

    fn rebinding(&self, bindings: &[(&str, &Buffer)]) -> Result<Rebinding> {
        let mut rebinding = Rebinding::default();
        let mut bound: Vec<&Buffer> = self.buffers.iter().map(|declared| &declared.buffer).collect();
        for (at, (name, new)) in bindings.iter().enumerate() {
            let Some(index) = self.buffers.iter().position(|declared| declared.name == *name) else {
                let names: Vec<String> = self.buffers.iter().map(|declared| format!("`{}`", declared.name)).collect();
                bail!(InvalidArgument, "run expected declared buffers ({}), found `{name}`", names.join(", "));
            };
            if bindings[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(invalid(format!("run expected each buffer once, found `{name}` twice")));
            }
            let add = rebinding.add(&self.buffers[index].buffer, new);
            add.map_err(|error| error.context(format!("buffer `{name}`")))?;
            bound[index] = new;
        }
        self.check_aliases(bindings, &bound)?;
        Ok(rebinding)
    }

    /// Checks that replaced buffers do not overlap others, because dependencies were inferred for disjoint buffers.
    fn check_aliases(&self, bindings: &[(&str, &Buffer)], bound: &[&Buffer]) -> Result<()> {
        let is_replaced = |index: usize| bindings.iter().any(|(name, _)| *name == self.buffers[index].name);
        for new in (0..bound.len()).filter(|&index| is_replaced(index)) {
            for other in (0..bound.len()).filter(|&other| other != new) {
                if (self.is_written[new] || self.is_written[other]) && bound[new].overlaps(bound[other]) {
                    let written = if self.is_written[new] { new } else { other };
                    let name = |index: usize| &self.buffers[index].name;
                    let (new, other, written) = (name(new), name(other), name(written));
                    let message = format!(
                        "buffer `{new}` expected bytes of no other buffer, found some of buffer `{other}`, and `{written}` is written"
                    );
                    return Err(invalid(message));
                }
            }
        }
        Ok(())
    }
}

/// Returns the recorders of the devices in the order of the units. Replaced buffers belong to the same devices.
fn recorders(units: &[Unit]) -> Vec<Recorder> {
    let mut found: Vec<Recorder> = Vec::new();
    for recorder in units.iter().filter_map(|unit| unit.work.device_buffer()?.api().recorder()) {
        if !found.iter().any(|known| known.is_same(recorder)) {
            found.push(recorder.clone());
        }
    }
    found
}

impl fmt::Debug for GraphPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order: Vec<&str> = self.order().collect();
        f.debug_struct("GraphPlan").field("order", &order).field("workers", &self.workers).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::Graph;
    use crate::null::NullDevice;

    /// A plan contains the recorder of each device once, however many nodes the device has.
    #[test]
    fn a_plan_contains_each_recorder_once() {
        let devices = [(); 2].map(|()| NullDevice::new().into_device().unwrap());
        let mut graph = Graph::new();
        for (number, device) in devices.iter().enumerate() {
            let name = |what: &str| format!("{what} {number}");
            let (from, to) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
            graph.buffer(name("from"), &from).unwrap();
            graph.buffer(name("to"), &to).unwrap();
            for copy in ["one", "another", "third"] {
                graph.copy(name(copy), &from, &to).unwrap();
            }
        }
        let plan = graph.compile().unwrap();
        let recorders = devices.iter().map(|device| device.api().recorder().unwrap());
        assert_eq!(plan.recorders.len(), 2);
        assert!(recorders.zip(&plan.recorders).all(|(recorder, known)| recorder.is_same(known)));
    }
}
