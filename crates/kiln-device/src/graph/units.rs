//! Units: what a worker runs at once, a node or, where a device runs submissions later, several nodes in one submission.

use super::edges::Edges;
use super::node::{GraphNode, NodeKind, Work};
use crate::buffer::Buffer;
use crate::info::DeviceKind;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Unit {
    /// The nodes, in the order in which they run.
    pub(super) nodes: Vec<usize>,
    pub(super) work: Work,
    /// Whether the device runs the work after it was submitted.
    pub(super) is_deferred: bool,
    /// How many units must be over before; those that are deferred must be submitted.
    pub(super) predecessors: usize,
    pub(super) successors: Vec<usize>,
    /// Deferred units that must be done before, not only submitted: they are of another queue.
    pub(super) awaited: Vec<usize>,
}

/// Divides nodes into units.
///
/// Nodes of one queue share a submission where they wait for the same nodes outside of it: then none of them could have
/// begun before the others. A submission ends with a node that something outside of the queue waits for, which so waits
/// for nothing that comes later.
///
/// Units have no cycle. A path that leaves a unit and comes back would pass a node outside of the queue, which the unit's
/// last node would wait for and the first would not.
pub(super) fn divide(nodes: &[GraphNode], edges: &Edges, order: &[usize]) -> Vec<Unit> {
    let queues = find_queues(nodes);
    let mut predecessors = vec![Vec::new(); nodes.len()];
    let mut is_awaited = vec![false; nodes.len()];
    for &(from, to) in edges.keys() {
        predecessors[to].push(from);
        is_awaited[from] |= queues[from] != queues[to];
    }

    let mut units: Vec<Unit> = Vec::new();
    let mut unit_of = vec![0; nodes.len()];
    // For each node of a queue, the nodes outside of it that it waits for, directly or through others of the queue.
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
        if is_awaited[node] {
            open.remove(&key);
        }
    }
    connect(&mut units, edges, &unit_of, &queues);
    units
}

/// The number of the queue that runs each node later; `None` for nodes that are over when their worker is done with them.
fn find_queues(nodes: &[GraphNode]) -> Vec<Option<usize>> {
    let mut devices: Vec<&Buffer> = Vec::new();
    let mut queues = Vec::with_capacity(nodes.len());
    for node in nodes {
        // The CPU device runs commands in `submit`, on the caller's thread: independent nodes need a worker each.
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

    /// What the unit is called in errors.
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
