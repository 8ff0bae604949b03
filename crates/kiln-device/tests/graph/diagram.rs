//! Diagrams: the same graph always renders to the same text.

use crate::fixture::{clear, device, fill, graph_of, part};
use kiln_device::{BufferUse, Graph, NullDevice};

/// A graph with every kind of node and edge, and names that need escaping.
fn example() -> Graph {
    let device = device(&NullDevice::new());
    let (x, y, z) = (device.buffer(64).unwrap(), device.buffer(64).unwrap(), device.buffer(64).unwrap());
    let mut graph = graph_of([("x", &x), ("y \"hot\"", &y), ("z|<b>", &z)]);
    fill(&mut graph, "load \"a\" & <b>", &part(&x, 0..32), 1);
    fill(&mut graph, "load\\two\n`#`", &part(&x, 32..64), 2);
    graph.copy("copy", &x, &y).unwrap();
    clear(&mut graph, "clear_all", &y, &z);
    graph.host("report", [(&z, BufferUse::Read)], |_| Ok(())).unwrap();
    graph.host("tidy", [], |[]| Ok(())).unwrap();
    graph.after("tidy", "report").unwrap();
    graph.after("report", "clear_all").unwrap();
    graph
}

#[test]
fn mermaid() {
    insta::assert_snapshot!(example().to_mermaid());
    assert_eq!(example().to_mermaid(), example().to_mermaid());
    insta::assert_snapshot!(Graph::new().to_mermaid(), @"flowchart TD");
}

#[test]
fn dot() {
    insta::assert_snapshot!(example().to_dot());
    assert_eq!(example().to_dot(), example().to_dot());
}
