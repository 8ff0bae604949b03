//! Dependencies that follow from buffer accesses.

use crate::fixture::{device, graph_of, part};
use BufferUse::{Read, ReadWrite, Write};
use kiln_device::{BufferUse, Graph, NullDevice};
use std::ops::Range;

/// The access of a node to bytes of the buffer `x` of 16 bytes.
type Touch = (BufferUse, Range<u64>);

/// Returns the edges of the diagram, as `from to cause`.
fn edges(graph: &Graph) -> Vec<String> {
    let arrows = graph.to_dot();
    let arrows = arrows.lines().filter_map(|line| line.trim().strip_suffix("];")?.split_once(" [label="));
    arrows
        .filter(|(ends, _)| ends.contains("->"))
        .map(|(ends, label)| format!("{} {label}", ends.replace("->", "")).replace('"', "").replace("  ", " "))
        .collect()
}

/// Read after write, write after read and write after write, by overlapping bytes.
#[test]
fn nodes_depend_on_each_other_by_the_bytes_they_touch() {
    let table: &[(&str, &[Touch], &[&str])] = &[
        ("no access", &[], &[]),
        ("two reads", &[(Read, 0..16), (Read, 0..16)], &[]),
        ("read after write", &[(Write, 0..16), (Read, 0..16)], &["n0 n1 x: read after write"]),
        ("write after read", &[(Read, 0..16), (Write, 0..16)], &["n0 n1 x: write after read"]),
        ("write after write", &[(Write, 0..16), (Write, 0..16)], &["n0 n1 x: write after write"]),
        ("both after both", &[(ReadWrite, 0..16), (ReadWrite, 0..16)], &["n0 n1 x: read after write"]),
        ("disjoint ranges", &[(Write, 0..8), (Write, 8..16), (Read, 4..4)], &[]),
        ("one byte in common", &[(Write, 0..9), (Read, 8..16)], &["n0 n1 x: read after write"]),
        ("inside", &[(Read, 0..16), (Write, 4..8)], &["n0 n1 x: write after read"]),
        (
            "around two",
            &[(Write, 0..4), (Write, 12..16), (Read, 0..16)],
            &["n0 n2 x: read after write", "n1 n2 x: read after write"],
        ),
        (
            "readers of one write run side by side",
            &[(Write, 0..16), (Read, 0..16), (Read, 0..8), (Write, 0..16)],
            &[
                "n0 n1 x: read after write",
                "n0 n2 x: read after write",
                "n1 n3 x: write after read",
                "n2 n3 x: write after read",
            ],
        ),
        (
            "a part that was not read",
            &[(Write, 0..16), (Read, 0..8), (Write, 0..16)],
            &["n0 n1 x: read after write", "n0 n2 x: write after write", "n1 n2 x: write after read"],
        ),
        (
            "a part that somebody else wrote",
            &[(Write, 0..16), (Write, 4..8), (Read, 0..16), (Read, 4..8)],
            &[
                "n0 n1 x: write after write",
                "n0 n2 x: read after write",
                "n1 n2 x: read after write",
                "n1 n3 x: read after write",
            ],
        ),
    ];
    let device = device(&NullDevice::new());
    let x = device.buffer(16).unwrap();
    for (name, touches, expected) in table {
        let mut graph = graph_of([("x", &x)]);
        for (index, (how, range)) in touches.iter().enumerate() {
            graph.host(format!("{index}"), [(&part(&x, range.clone()), *how)], |_| Ok(())).unwrap();
        }
        assert_eq!(edges(&graph), *expected, "{name}");
    }
}

/// Offsets are relative to the allocation: two declared halves are disjoint, and nested slices are found.
#[test]
fn overlap_is_by_bytes_of_the_allocation() {
    let device = device(&NullDevice::new());
    let whole = device.buffer(64).unwrap();
    let (low, high) = (part(&whole, 0..32), part(&whole, 32..64));
    let mut graph = graph_of([("low", &low), ("high", &high)]);
    graph.host("a", [(&low, Write)], |_| Ok(())).unwrap();
    graph.host("b", [(&high, Write)], |_| Ok(())).unwrap();
    graph.host("c", [(&part(&part(&high, 8..24), 4..8), Read)], |_| Ok(())).unwrap();
    graph.host("d", [(&part(&whole, 28..32), Read), (&part(&whole, 32..36), Write)], |_| Ok(())).unwrap();
    assert_eq!(
        edges(&graph),
        ["n0 n3 low: read after write", "n1 n2 high: read after write", "n1 n3 high: write after write"]
    );
}

/// All accesses of a node count, and it does not depend on itself.
#[test]
fn a_node_of_several_commands_is_one_node() {
    let device = device(&NullDevice::new());
    let (x, y) = (device.buffer(16).unwrap(), device.buffer(16).unwrap());
    let mut graph = graph_of([("x", &x), ("y", &y)]);
    crate::fixture::clear(&mut graph, "clear", &x, &y);
    graph.copy("back", &y, &x).unwrap();
    graph.host("both", [(&x, Write), (&x, Read), (&y, Write)], |_| Ok(())).unwrap();
    assert_eq!(
        edges(&graph),
        ["n0 n1 x: write after write, y: read after write", "n1 n2 x: read after write, y: write after read",]
    );
}
