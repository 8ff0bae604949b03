//! What ran when.

use super::node::NodeKind;
use serde::Serialize;
use std::fmt;

/// The timeline of one run of a [`GraphPlan`](super::GraphPlan). Times are nanoseconds from the beginning of the run, on the
/// host's clock. The text form is a small chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// Every node, in the order in which they began.
    pub nodes: Vec<NodeRun>,
    /// How many threads took part, the caller's included.
    pub workers: usize,
    /// How long the run took. Work that was submitted and not awaited may end later.
    pub total_ns: u64,
}

/// When one node ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeRun {
    /// The name of the node.
    pub name: String,
    /// What sort of node it is.
    pub kind: NodeKind,
    /// The thread that ran or submitted it; 0 is the caller of the run.
    pub worker: usize,
    /// When the thread began with the node, after it had waited for what the node needs from devices.
    pub start_ns: u64,
    /// When the thread was through with it: a host node, or a node of the CPU device, is done then; a node of another
    /// device is submitted. Nodes that share a submission have the same times.
    pub end_ns: u64,
    /// The number of the submission, where a device runs the node.
    pub submission: Option<u64>,
    /// When a node that waited for the submission saw that it was done; `None` where no node waited for it.
    pub done_ns: Option<u64>,
}

const COLUMNS: u64 = 40;
/// A longer name is cut in the chart.
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
    /// `#` where a thread is with the node, `-` until the device was seen to be done with it.
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
