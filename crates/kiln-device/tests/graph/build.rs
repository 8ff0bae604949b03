//! Errors while a graph is built and compiled.

use crate::fixture::{clear, cpu, device, fill, graph_of, invalid, part};
use kiln_device::{BufferUse, CommandList, Graph, NullDevice};

fn nop(graph: &mut Graph, name: &str) {
    graph.host(name, [], |[]| Ok(())).unwrap();
}

/// Each error names the node or buffer, what was expected and what was found.
#[test]
fn invalid_nodes_are_rejected_by_name() {
    let (device, other) = (device(&NullDevice::new()), cpu());
    let (x, y, far) = (device.buffer(64).unwrap(), device.buffer(64).unwrap(), other.buffer(64).unwrap());
    let mut graph = graph_of([("x", &part(&x, 0..32)), ("far", &far)]);
    nop(&mut graph, "first");
    let mut zero_unknown = CommandList::new();
    zero_unknown.zero(&y).unwrap();
    let mut two_devices = CommandList::new();
    two_devices.zero(&part(&x, 0..32)).unwrap();
    two_devices.zero(&far).unwrap();
    let refusals = [
        invalid(graph.buffer("x", &y)),
        invalid(graph.buffer("upper", &part(&x, 28..64))),
        invalid(graph.host("first", [], |[]| Ok(()))),
        invalid(graph.commands("first", CommandList::new())),
        invalid(graph.commands("zero", zero_unknown)),
        invalid(graph.commands("mixed", two_devices)),
        invalid(graph.copy("copy", &part(&x, 0..16), &part(&y, 16..32))),
        invalid(graph.copy("short", &part(&x, 0..16), &part(&far, 0..8))),
        invalid(graph.host("beyond", [(&part(&x, 16..48), BufferUse::Read)], |_| Ok(()))),
        invalid(graph.after("first", "second")),
        invalid(graph.after("third", "first")),
        invalid(graph.compile().unwrap().with_workers(0)),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
    assert_eq!(graph.node_names().collect::<Vec<_>>(), ["first"], "nothing refused stays");
    assert_eq!(graph.to_dot().matches("->").count(), 0);
    insta::assert_snapshot!(format!("{graph:?}\n{:?}", graph.compile().unwrap().with_workers(3).unwrap()), @r#"
    Graph { nodes: ["first"], buffers: ["x", "far"] }
    GraphPlan { order: ["first"], workers: 3 }
    "#);
}

/// A cycle is an error that lists its nodes in order, and the cause of each edge.
#[test]
fn cycles_are_named_in_order() {
    let device = device(&NullDevice::new());
    let (x, y) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
    type Close = fn(&mut Graph);
    let cycles: [(&str, Close); 4] = [
        ("itself", |graph| graph.after("load", "load").unwrap()),
        ("against a buffer", |graph| graph.after("load", "copy").unwrap()),
        ("long", |graph| {
            graph.after("b", "a").unwrap();
            graph.after("c", "b").unwrap();
            graph.after("a", "c").unwrap();
            // Depends on the cycle, but is not part of it.
            graph.after("load", "c").unwrap();
        }),
        ("two", |graph| {
            graph.after("a", "b").unwrap();
            graph.after("b", "a").unwrap();
            graph.after("load", "copy").unwrap();
        }),
    ];
    let mut messages = Vec::new();
    for (name, close) in cycles {
        let mut graph = graph_of([("x", &x), ("y", &y)]);
        fill(&mut graph, "load", &x, 1);
        graph.copy("copy", &x, &y).unwrap();
        for name in ["c", "b", "a"] {
            nop(&mut graph, name);
        }
        close(&mut graph);
        messages.push(format!("{name}: {}", invalid(graph.compile())));
        assert!(graph.to_mermaid().contains("-.->"), "a picture helps to find it");
    }
    insta::assert_snapshot!(messages.join("\n"));
}

/// A declared dependency overrides the insertion order, and repeating it has no effect.
#[test]
fn declared_dependencies_order_the_plan() {
    let mut graph = Graph::new();
    for name in ["last", "second", "first", "other"] {
        nop(&mut graph, name);
    }
    assert_eq!(graph.compile().unwrap().order().collect::<Vec<_>>(), ["last", "second", "first", "other"]);
    graph.after("last", "second").unwrap();
    graph.after("last", "second").unwrap();
    graph.after("second", "first").unwrap();
    let plan = graph.compile().unwrap().with_workers(2).unwrap();
    assert_eq!(plan.order().collect::<Vec<_>>(), ["first", "second", "last", "other"]);
    let report = plan.run().unwrap();
    let at = |name: &str| report.nodes.iter().find(|node| node.name == name).unwrap();
    assert!(at("first").end_ns <= at("second").start_ns && at("second").end_ns <= at("last").start_ns);
}

/// Graphs without nodes, and nodes without work, are valid.
#[test]
fn empty_graphs_and_empty_nodes_run() {
    let report = Graph::new().compile().unwrap().run().unwrap();
    assert_eq!((report.nodes.len(), report.workers), (0, 1));
    let device = device(&NullDevice::new());
    let (x, nothing) = (device.buffer(64).unwrap(), device.buffer(0).unwrap());
    let mut graph = graph_of([("x", &x), ("nothing", &nothing)]);
    graph.commands("no commands", CommandList::new()).unwrap();
    graph.copy("no bytes", &part(&x, 8..8), &nothing).unwrap();
    nop(&mut graph, "no buffers");
    let report = graph.compile().unwrap().run().unwrap();
    assert_eq!(report.nodes.len(), 3);
    assert!(report.nodes.iter().all(|node| node.submission.is_none()));
}

/// A thousand nodes, as one chain over a buffer and as independent nodes over slices of it.
#[test]
fn a_thousand_nodes_run() {
    const NODES: u64 = 1000;
    let device = cpu();
    let (x, y) = (device.buffer_from(&[0_u64; NODES as usize]).unwrap(), device.buffer_from(&[0_u64]).unwrap());
    let mut graph = graph_of([("x", x.as_bytes()), ("y", y.as_bytes())]);
    for at in 0..NODES / 2 {
        let own = x.slice(at as usize..at as usize + 1).unwrap();
        graph
            .host(format!("own {at}"), [(own.as_bytes(), BufferUse::Write)], move |[own]| own.write(&at.to_ne_bytes()))
            .unwrap();
        graph
            .host(format!("chain {at}"), [(y.as_bytes(), BufferUse::ReadWrite)], move |[y]| {
                y.clone().typed::<u64>()?.map_write(|y| y[0] = y[0].wrapping_mul(3).wrapping_add(at))
            })
            .unwrap();
    }
    let plan = graph.compile().unwrap().with_workers(4).unwrap();
    let report = plan.run().unwrap();
    assert_eq!(report.nodes.len() as u64, NODES);
    assert_eq!(x.read().unwrap()[..500], (0..500).collect::<Vec<u64>>());
    assert_eq!(y.read().unwrap(), [(0..500).fold(0_u64, |y, at| y.wrapping_mul(3).wrapping_add(at))]);
}

/// A plan outlives its graph; their buffers return to the pool with the last of them.
#[test]
fn a_dropped_plan_gives_its_buffers_back() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (x, y) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
    let mut graph = graph_of([("x", &x), ("y", &y)]);
    clear(&mut graph, "clear", &x, &y);
    let plan = graph.compile().unwrap();
    drop((graph, x, y));
    assert_eq!(device.buffer_pool_stats().live_buffers, 2, "the plan holds them");
    plan.run().unwrap();
    drop(plan);
    assert_eq!(device.buffer_pool_stats().live_buffers, 0);
    null.complete(1);
    drop(device);
    assert_eq!(null.live_bytes(), 0);
}
