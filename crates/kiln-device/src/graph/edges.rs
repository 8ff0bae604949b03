//! Dependencies between nodes: their causes, and the topological order.

use super::node::{DeclaredBuffer, GraphNode};
use kiln_ir::{Error, Result, error};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;

/// Pairs of nodes of which the second depends on the first, with the causes. Nodes are numbered in insertion order. A
/// sorted map, because diagrams and error messages show it.
pub(super) type Edges = BTreeMap<(usize, usize), BTreeSet<Cause>>;

/// Why a node depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// DeclaredBuffer by [`Graph::after`](super::Graph::after).
    Declared,
    /// Both access the same bytes of a declared buffer.
    Buffer { declared: usize, hazard: Hazard },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hazard {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
}

impl Cause {
    /// Describes the cause, for diagrams and errors.
    pub(super) fn describe(self, buffers: &[DeclaredBuffer]) -> String {
        match self {
            Self::Declared => "declared".into(),
            Self::Buffer { declared, hazard } => {
                let hazard = match hazard {
                    Hazard::ReadAfterWrite => "read after write",
                    Hazard::WriteAfterRead => "write after read",
                    Hazard::WriteAfterWrite => "write after write",
                };
                format!("{}: {hazard}", buffers[declared].name)
            }
        }
    }
}

/// Adds the dependencies that follow from buffer accesses in insertion order.
///
/// Redundant ones are omitted: a write depends on the reads of a range, and through them on the write before.
pub(super) fn infer(nodes: &[GraphNode], buffers: &[DeclaredBuffer], edges: &mut Edges) {
    let mut histories: Vec<History> = buffers.iter().map(|declared| History::new(declared.buffer.bytes())).collect();
    for (index, node) in nodes.iter().enumerate() {
        // Reads first: a node reads what was there before it, not what it writes itself.
        for writes in [false, true] {
            let uses = node.uses.iter().filter(|used| if writes { used.how.is_write() } else { used.how.is_read() });
            for used in uses {
                for (from, hazard) in histories[used.declared].record(index, used.range.clone(), writes) {
                    let cause = Cause::Buffer { declared: used.declared, hazard };
                    edges.entry((from, index)).or_default().insert(cause);
                }
            }
        }
    }
}

/// The last accesses of one buffer: adjacent ranges without overlaps, in order.
struct History(Vec<Segment>);

#[derive(Clone)]
struct Segment {
    range: Range<u64>,
    writer: Option<usize>,
    /// The nodes that read the range since the last write.
    readers: Vec<usize>,
}

impl History {
    fn new(bytes: u64) -> Self {
        Self(vec![Segment { range: 0..bytes, writer: None, readers: Vec::new() }])
    }

    /// Records that `node` accesses the range. Returns the nodes that it depends on because of that.
    fn record(&mut self, node: usize, range: Range<u64>, writes: bool) -> Vec<(usize, Hazard)> {
        if range.is_empty() {
            return Vec::new();
        }
        self.split(range.start);
        self.split(range.end);
        let first = self.0.partition_point(|segment| segment.range.end <= range.start);
        let last = self.0.partition_point(|segment| segment.range.start < range.end);
        let mut found = Vec::new();
        for segment in &mut self.0[first..last] {
            let after_write = if writes { Hazard::WriteAfterWrite } else { Hazard::ReadAfterWrite };
            // Readers depend on the writer, so a dependency on all readers includes the writer.
            if !writes || segment.readers.is_empty() {
                found.extend(segment.writer.map(|writer| (writer, after_write)));
            }
            if writes {
                found.extend(segment.readers.drain(..).map(|reader| (reader, Hazard::WriteAfterRead)));
                segment.writer = Some(node);
            } else if segment.readers.last() != Some(&node) {
                segment.readers.push(node);
            }
        }
        // A node that reads and writes a range does not depend on itself.
        found.retain(|(other, _)| *other != node);
        found
    }

    /// Splits the segment that contains `at`.
    fn split(&mut self, at: u64) {
        let index = self.0.partition_point(|segment| segment.range.end <= at);
        if let Some(segment) = self.0.get_mut(index)
            && segment.range.start < at
        {
            let mut rest = segment.clone();
            segment.range.end = at;
            rest.range.start = at;
            self.0.insert(index + 1, rest);
        }
    }
}

/// Returns the nodes in topological order. Among several candidates the one that was inserted first comes first.
///
/// # Errors
/// Returns `InvalidArgument` with the nodes of a cycle, in order.
pub(super) fn order(nodes: &[GraphNode], buffers: &[DeclaredBuffer], edges: &Edges) -> Result<Vec<usize>> {
    // Kahn's algorithm, with a heap of the ready nodes for the order of insertion.
    let mut remaining = vec![0_usize; nodes.len()];
    let mut successors = vec![Vec::new(); nodes.len()];
    for &(from, to) in edges.keys() {
        remaining[to] += 1;
        successors[from].push(to);
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&node| remaining[node] == 0).map(Reverse).collect();
    let mut ordered = Vec::with_capacity(nodes.len());
    while let Some(Reverse(node)) = ready.pop() {
        ordered.push(node);
        for &next in &successors[node] {
            remaining[next] -= 1;
            if remaining[next] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    match remaining.iter().position(|&remaining| remaining > 0) {
        None => Ok(ordered),
        Some(stuck) => Err(cycle_error(nodes, buffers, edges, &find_cycle(stuck, &remaining, edges))),
    }
}

/// Returns a cycle, in the order in which its nodes would run, beginning with the one that was inserted first.
///
/// Walks back from a node that never became ready, over predecessors that never became ready either, until a node
/// repeats.
fn find_cycle(stuck: usize, remaining: &[usize], edges: &Edges) -> Vec<usize> {
    let mut predecessor = vec![usize::MAX; remaining.len()];
    for &(from, to) in edges.keys().filter(|(from, _)| remaining[*from] > 0) {
        predecessor[to] = predecessor[to].min(from);
    }
    let mut path = vec![stuck];
    let mut cycle = loop {
        // A node that never became ready has a predecessor that never became ready.
        let next = predecessor[path[path.len() - 1]];
        if let Some(start) = path.iter().position(|&node| node == next) {
            break path.split_off(start);
        }
        path.push(next);
    };
    // The walk went against the edges.
    cycle.reverse();
    let first = (0..cycle.len()).min_by_key(|&at| cycle[at]).unwrap_or(0);
    cycle.rotate_left(first);
    cycle
}

fn cycle_error(nodes: &[GraphNode], buffers: &[DeclaredBuffer], edges: &Edges, cycle: &[usize]) -> Error {
    let name = |node: usize| nodes[node].name.as_str();
    let circle: Vec<&str> = cycle.iter().chain(&cycle[..1]).map(|&node| name(node)).collect();
    let steps = cycle.iter().zip(cycle.iter().cycle().skip(1)).map(|(&from, &to)| {
        let causes: Vec<String> = edges[&(from, to)].iter().map(|cause| cause.describe(buffers)).collect();
        format!("{} -> {} ({})", name(from), name(to), causes.join(", "))
    });
    let steps: Vec<String> = steps.collect();
    error!(InvalidArgument, "graph expected no cycle, found {}; because of {}", circle.join(" -> "), steps.join(", "))
}
