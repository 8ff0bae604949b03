//! Units of execution: a single node or, on a device with a queue, several nodes in one submission.

use super::edges::Edges;
use super::node::{GraphNode, NodeKind, Work};
use crate::buffer::Buffer;
use crate::info::DeviceKind;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Unit {
    /// The nodes, in execution order.
    pub(super) nodes: Vec<usize>,
    pub(super) work: Work,
    /// Whether the device runs the work after it is submitted, rather than in `submit`.
    pub(super) is_deferred: bool,
    /// The number of units that must finish before; deferred ones must be submitted.
    pub(super) predecessors: usize,
    pub(super) successors: Vec<usize>,
    /// Deferred units of other queues, which must be completed before and not only submitted.
    pub(super) awaited: Vec<usize>,
}

/// Groups nodes into units.
///
/// Nodes of one queue share a submission if they depend on the same nodes outside of the queue: then none of them could
/// have started before the others. A submission ends with a node that another queue or the host depends on, so that the
/// dependent does not wait for later nodes.
///
/// Units have no cycles: a path that leaves a unit and returns would pass a node outside of the queue that the unit's
/// last node depends on and its first does not.
pub(super) fn divide(nodes: &[GraphNode], edges: &Edges, order: &[usize]) -> Vec<Unit> {
    let queues = find_queues(nodes);
    let mut predecessors = vec![Vec::new(); nodes.len()];
    let mut is_awaited = vec![false; nodes.len()];
    for &(from, to) in edges.keys() {
        predecessors[to].push(from);
        // Within one queue the order of commands is enough.
        is_awaited[from] |= queues[from] != queues[to];
    }

    let mut units: Vec<Unit> = Vec::new();
    let mut unit_of = vec![0; nodes.len()];
    // For each node of a queue, the nodes outside of the queue that it depends on, directly or through the queue.
    let mut outside: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); nodes.len()];
    let mut open: BTreeMap<(usize, BTreeSet<usize>), usize> = BTreeMap::new();
    for &node in order {
        let Some(queue) = queues[node] else {
            unit_of[node] = units.len();
            units.push(Unit::new(node, &nodes[node].work, false));
            continue;
        };
        for &from in &predecessors[node] {
            if queues[from] == Some(queue) {
                let inherited = outside[from].clone();
                outside[node].extend(inherited);
            } else {
                outside[node].insert(from);
            }
        }
        let key = (queue, outside[node].clone());
        let unit = match open.get(&key) {
            Some(&unit) => {
                units[unit].append(node, &nodes[node].work);
                unit
            }
            None => {
                units.push(Unit::new(node, &nodes[node].work, true));
                open.insert(key.clone(), units.len() - 1);
                units.len() - 1
            }
        };
        unit_of[node] = unit;
        // Ends the submission, so that the dependent does not wait for later nodes.
        if is_awaited[node] {
            open.remove(&key);
        }
    }
    connect(&mut units, edges, &unit_of, &queues);
    units
}

/// Returns the queue of each node, or `None` for nodes that have finished when their worker returns.
fn find_queues(nodes: &[GraphNode]) -> Vec<Option<usize>> {
    let mut devices: Vec<&Buffer> = Vec::new();
    let mut queues = Vec::with_capacity(nodes.len());
    for node in nodes {
        // The CPU device runs commands in `submit`, on the caller's thread, so that independent nodes need a worker
        // each.
        let buffer = node.work.device_buffer().filter(|buffer| buffer.device_info().kind != DeviceKind::Cpu);
        queues.push(buffer.map(|buffer| {
            let known = devices.iter().position(|device| device.is_on_device_of(buffer));
            known.unwrap_or_else(|| {
                devices.push(buffer);
                devices.len() - 1
            })
        }));
    }
    queues
}

fn connect(units: &mut [Unit], edges: &Edges, unit_of: &[usize], queues: &[Option<usize>]) {
    let between: BTreeSet<(usize, usize, bool)> = edges
        .keys()
        .map(|&(from, to)| (unit_of[from], unit_of[to], queues[from].is_some() && queues[from] != queues[to]))
        .filter(|(from, to, _)| from != to)
        .collect();
    for (from, to, is_awaited) in between {
        units[from].successors.push(to);
        units[to].predecessors += 1;
        if is_awaited {
            units[to].awaited.push(from);
        }
    }
}

impl Unit {
    fn new(node: usize, work: &Work, is_deferred: bool) -> Self {
        let (nodes, work) = (vec![node], work.clone());
        Self { nodes, work, is_deferred, predecessors: 0, successors: Vec::new(), awaited: Vec::new() }
    }

    /// Describes the unit in errors.
    pub(super) fn describe(&self, nodes: &[(String, NodeKind)]) -> String {
        match &self.nodes[..] {
            [node] => format!("node `{}`", nodes[*node].0),
            [first, .., last] => {
                let (first, last) = (&nodes[*first].0, &nodes[*last].0);
                format!("submission of {} nodes, `{first}` to `{last}`", self.nodes.len())
            }
            [] => "no node".into(),
        }
    }

    fn append(&mut self, node: usize, work: &Work) {
        self.nodes.push(node);
        if let (Work::Submit(all), Work::Submit(commands)) = (&mut self.work, work) {
            all.extend_from_slice(commands);
        }
    }
}
