//! The timeline of a run.

use super::node::NodeKind;
use serde::Serialize;
use std::fmt;

/// The timeline of one run of a [`GraphPlan`](super::GraphPlan). Times are nanoseconds since the start of the run, on
/// the host's clock. Its `Display` form is a small chart.
///
/// Returned by [`GraphPlan::run`](crate::GraphPlan::run); see [`Graph`](crate::Graph) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// All nodes, in the order in which they started.
    pub nodes: Vec<NodeRun>,
    /// The number of threads, including the caller's.
    pub workers: usize,
    /// The duration of the run. Submitted work that was not awaited may end later.
    pub total_ns: u64,
}

/// When one node ran.
///
/// Part of a [`RunReport`]; see [`Graph`](crate::Graph) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeRun {
    /// The name of the node.
    pub name: String,
    /// The kind of the node.
    pub kind: NodeKind,
    /// The thread that ran or submitted the node; 0 is the caller.
    pub worker: usize,
    /// When the thread started the node, after waiting for the devices that it depends on.
    pub start_ns: u64,
    /// When the thread finished: a host node or a node of the CPU device is done then; a node of another device is
    /// submitted. Nodes of one submission have the same times.
    pub end_ns: u64,
    /// The number of the submission, if a device runs the node.
    pub submission: Option<u64>,
    /// When a dependent node observed the end of the submission; `None` if no node waited for it.
    pub done_ns: Option<u64>,
}

const COLUMNS: u64 = 40;
/// Longer names are truncated in the chart.
const MAX_NAME: usize = 24;

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (nodes, workers) = (self.nodes.len(), self.workers);
        let total = Millis(self.total_ns);
        write!(f, "{nodes} node{}, {workers} worker{}, {total}", plural(nodes), plural(workers))?;
        let width = self.nodes.iter().map(|node| node.name.chars().count().min(MAX_NAME)).max().unwrap_or(0);
        for node in &self.nodes {
            let name: String = node.name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_NAME).collect();
            write!(f, "\n{name:<width$}  {:<8}  {:>2} |{}|", node.kind, node.worker, self.bar(node))?;
            write!(f, " {} to {}", Millis(node.start_ns), Millis(node.end_ns))?;
            if let Some(submission) = node.submission {
                write!(f, ", submission {submission}")?;
            }
            if let Some(done_ns) = node.done_ns {
                write!(f, ", done by {}", Millis(done_ns))?;
            }
        }
        Ok(())
    }
}

impl RunReport {
    /// Draws a bar: `#` while a thread works on the node, `-` until the device was observed to be done with it.
    fn bar(&self, node: &NodeRun) -> String {
        let total = self.total_ns.max(1);
        let column = |ns: u64| ns.min(total).saturating_mul(COLUMNS) / total;
        let (start, end) = (column(node.start_ns).min(COLUMNS - 1), column(node.end_ns));
        let done = node.done_ns.map_or(0, column);
        let mark = |at: u64| match at {
            _ if at < start => ' ',
            _ if at == start || at < end => '#',
            _ if at < done => '-',
            _ => ' ',
        };
        (0..COLUMNS).map(mark).collect()
    }
}

struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0 as f64 / 1e6)
    }
}
