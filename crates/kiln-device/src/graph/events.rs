//! What a run of a graph tells whoever watches its devices.

use super::node::Work;
use super::report::NodeRun;
use crate::observe::{Happening, Recorder};
use std::time::Instant;

/// Tells a run to the first device of the graph that is watched, and each node to the device that ran it.
pub(super) fn run(first: &Recorder, began: Instant, total_ns: u64, workers: usize, nodes: &[(NodeRun, &Work)]) {
    let (run, base_ns) = (first.next_graph_run(), first.unix_ns(began));
    first.tell(|| Happening::GraphRun {
        run,
        nodes: nodes.len() as u64,
        workers: workers as u64,
        start_ns: base_ns,
        duration_ns: total_ns,
    });
    for (node, work) in nodes {
        // The host's nodes are of no device.
        let own = work.device_buffer().and_then(|buffer| buffer.api().recorder());
        own.unwrap_or(first).tell(|| Happening::GraphNode {
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
