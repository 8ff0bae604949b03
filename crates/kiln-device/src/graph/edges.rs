//! Dependencies between nodes: which there are, why, and in what order they let the nodes run.

use super::node::{Declared, GraphNode};
use kiln_ir::{Error, Result, error};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;

/// Pairs of nodes of which the second runs after the first, with the reasons. Nodes are numbered in the order of
/// insertion; a sorted map, because pictures and error messages show it.
pub(super) type Edges = BTreeMap<(usize, usize), BTreeSet<Cause>>;

/// Why a node runs after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// [`Graph::after`](super::Graph::after) says so.
    Declared,
    /// Both touch the same bytes of a declared buffer.
    Buffer { declared: usize, hazard: Hazard },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hazard {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
}

impl Cause {
    /// The reason in words, for pictures and errors.
    pub(super) fn describe(self, buffers: &[Declared]) -> String {
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

/// Adds the dependencies that follow from buffer access in the order of insertion. Those that follow from others are
/// left out: a write after a read of a written range does not depend on that earlier write once more.
pub(super) fn infer(nodes: &[GraphNode], buffers: &[Declared], edges: &mut Edges) {
    let mut histories: Vec<History> = buffers.iter().map(|declared| History::new(declared.buffer.bytes())).collect();
    for (index, node) in nodes.iter().enumerate() {
        // Reads first: a node sees what was there before it, not what it writes itself.
        for writes in [false, true] {
            let uses = node.uses.iter().filter(|used| if writes { used.how.is_write() } else { used.how.is_read() });
            for used in uses {
                for (from, hazard) in histories[used.declared].touch(index, used.range.clone(), writes) {
                    let cause = Cause::Buffer { declared: used.declared, hazard };
                    edges.entry((from, index)).or_default().insert(cause);
                }
            }
        }
    }
}

/// Who touched the bytes of one buffer last: ranges without gaps or overlaps, in order.
struct History(Vec<Segment>);

#[derive(Clone)]
struct Segment {
    range: Range<u64>,
    writer: Option<usize>,
    /// Who read since.
    readers: Vec<usize>,
}

impl History {
    fn new(bytes: u64) -> Self {
        Self(vec![Segment { range: 0..bytes, writer: None, readers: Vec::new() }])
    }

    /// Notes that `node` touches the range; the nodes that it must follow for that.
    fn touch(&mut self, node: usize, range: Range<u64>, writes: bool) -> Vec<(usize, Hazard)> {
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
            // Readers follow the writer, so who follows all readers follows the writer too.
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
        found.retain(|(other, _)| *other != node);
        found
    }

    /// Makes `at` a border between two segments.
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

/// The nodes in topological order; of several that could be next, the one that was inserted first.
///
/// # Errors
/// `InvalidArgument` with the nodes of a cycle, in order.
pub(super) fn order(nodes: &[GraphNode], buffers: &[Declared], edges: &Edges) -> Result<Vec<usize>> {
    let mut missing = vec![0_usize; nodes.len()];
    let mut successors = vec![Vec::new(); nodes.len()];
    for &(from, to) in edges.keys() {
        missing[to] += 1;
        successors[from].push(to);
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&node| missing[node] == 0).map(Reverse).collect();
    let mut ordered = Vec::with_capacity(nodes.len());
    while let Some(Reverse(node)) = ready.pop() {
        ordered.push(node);
        for &next in &successors[node] {
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    match missing.iter().position(|&missing| missing > 0) {
        None => Ok(ordered),
        Some(stuck) => Err(cycle_error(nodes, buffers, edges, &find_cycle(stuck, &missing, edges))),
    }
}

/// Walks back from a node that never became ready, over nodes of the same fate, until one comes again. The nodes of
/// that circle in the order in which they would run, beginning with the one that was inserted first.
fn find_cycle(stuck: usize, missing: &[usize], edges: &Edges) -> Vec<usize> {
    let mut predecessor = vec![usize::MAX; missing.len()];
    for &(from, to) in edges.keys().filter(|(from, _)| missing[*from] > 0) {
        predecessor[to] = predecessor[to].min(from);
    }
    let mut path = vec![stuck];
    let mut cycle = loop {
        // A node that never became ready misses one that did not either.
        let next = predecessor[path[path.len() - 1]];
        if let Some(start) = path.iter().position(|&node| node == next) {
            break path.split_off(start);
        }
        path.push(next);
    };
    cycle.reverse();
    let first = (0..cycle.len()).min_by_key(|&at| cycle[at]).unwrap_or(0);
    cycle.rotate_left(first);
    cycle
}

fn cycle_error(nodes: &[GraphNode], buffers: &[Declared], edges: &Edges, cycle: &[usize]) -> Error {
    let name = |node: usize| nodes[node].name.as_str();
    let circle: Vec<&str> = cycle.iter().chain(&cycle[..1]).map(|&node| name(node)).collect();
    let steps = cycle.iter().zip(cycle.iter().cycle().skip(1)).map(|(&from, &to)| {
        let causes: Vec<String> = edges[&(from, to)].iter().map(|cause| cause.describe(buffers)).collect();
        format!("{} -> {} ({})", name(from), name(to), causes.join(", "))
    });
    let steps: Vec<String> = steps.collect();
    error!(InvalidArgument, "graph expected no cycle, found {}; because of {}", circle.join(" -> "), steps.join(", "))
}
