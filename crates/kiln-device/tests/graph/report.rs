//! Timelines of runs.

use crate::fixture::{device, fill, graph_of};
use kiln_device::graph::{NodeKind, NodeRun};
use kiln_device::{BufferUse, NullDevice, RunReport};

fn node(
    name: &str,
    kind: NodeKind,
    worker: usize,
    times_us: (u64, u64),
    device: Option<(u64, Option<u64>)>,
) -> NodeRun {
    let (submission, done) = device.map_or((None, None), |(submission, done)| (Some(submission), done));
    let (start_ns, end_ns) = (times_us.0 * 1000, times_us.1 * 1000);
    NodeRun { name: name.into(), kind, worker, start_ns, end_ns, submission, done_ns: done.map(|us| us * 1000) }
}

#[test]
fn the_chart_is_rendered() {
    let nodes = vec![
        node("load", NodeKind::Host, 0, (0, 400), None),
        node("load the other file\twhose name is long", NodeKind::Host, 1, (12, 700), None),
        node("matmul", NodeKind::Commands, 0, (401, 410), Some((3, Some(900)))),
        node("copy", NodeKind::Copy, 1, (701, 702), Some((4, None))),
        node("save", NodeKind::Host, 0, (901, 1000), None),
        node("late", NodeKind::Host, 10, (1000, 1000), None),
    ];
    let report = RunReport { nodes, workers: 11, total_ns: 1_000_000 };
    insta::assert_snapshot!(report);
    insta::assert_snapshot!(serde_json::to_string(&report.nodes[2]).unwrap());
    insta::assert_snapshot!(RunReport { nodes: Vec::new(), workers: 1, total_ns: 0 }, @"0 nodes, 1 worker, 0.000 ms");
}

/// Starts precede ends, dependencies are in order, and nothing is after the end of the run.
#[test]
fn times_follow_the_dependencies() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (x, y) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
    let mut graph = graph_of([("x", &x), ("y", &y)]);
    fill(&mut graph, "load", &x, 1);
    graph.copy("copy", &x, &y).unwrap();
    graph.host("check", [(&y, BufferUse::Read)], |[y]| y.read().map(drop)).unwrap();
    graph.copy("back", &y, &x).unwrap();
    graph.after("back", "check").unwrap();
    let report = graph.compile().unwrap().run().unwrap();
    let names: Vec<&str> = report.nodes.iter().map(|node| &node.name[..]).collect();
    assert_eq!(names, ["load", "copy", "check", "back"]);
    assert!(report.nodes.iter().all(|node| node.start_ns <= node.end_ns && node.end_ns <= report.total_ns));
    let [load, copy, check, back] = &report.nodes[..] else { panic!("four nodes") };
    assert!(load.end_ns <= copy.start_ns && check.end_ns <= back.start_ns);
    assert!(copy.end_ns <= copy.done_ns.unwrap() && copy.done_ns.unwrap() <= check.start_ns);
    assert_eq!([load, copy, check, back].map(|node| node.submission), [None, Some(1), None, Some(2)]);
    assert_eq!(
        [load, copy, check, back].map(|node| node.kind),
        [NodeKind::Host, NodeKind::Copy, NodeKind::Host, NodeKind::Copy]
    );
    assert!(back.done_ns.is_none(), "no node waited for it");
}
