//! Emits the events of a graph run.

use super::node::Work;
use super::report::NodeRun;
use crate::observe::{EventKind, Recorder};
use std::time::Instant;

/// Emits the run to the first watched device of the graph, and each node to the device that ran it.
pub(super) fn emit_run(first: &Recorder, began: Instant, total_ns: u64, workers: usize, nodes: &[(NodeRun, &Work)]) {
    let (run, base_ns) = (first.next_graph_run(), first.unix_ns(began));
    first.emit(|| EventKind::GraphRun {
        run,
        nodes: nodes.len() as u64,
        workers: workers as u64,
        start_ns: base_ns,
        duration_ns: total_ns,
    });
    for (node, work) in nodes {
        // Host nodes belong to no device; their events go to the first one.
        let own = work.device_buffer().and_then(|buffer| buffer.api().recorder());
        own.unwrap_or(first).emit(|| EventKind::GraphNode {
            run,
            node: node.name.clone(),
            kind: node.kind,
            worker: node.worker as u64,
            start_ns: base_ns.saturating_add(node.start_ns),
            duration_ns: node.end_ns.saturating_sub(node.start_ns),
            submission: node.submission,
            done_ns: node.done_ns.map(|done| base_ns.saturating_add(done)),
        });
    }
}
