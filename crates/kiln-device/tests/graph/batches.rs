//! How nodes are grouped into submissions, and which nodes wait for them.

use crate::fixture::{clear, device, fill, graph_of};
use kiln_device::{Buffer, BufferUse, NullDevice, RawMemory, Record};

/// Returns the number of commands in each submission since the last call.
fn submissions(null: &NullDevice) -> Vec<usize> {
    let records = null.records();
    null.clear_records();
    let commands = |record: &Record| match record {
        Record::Submit { commands, .. } => Some(*commands),
        _ => None,
    };
    records.iter().filter_map(commands).collect()
}

/// Nodes that depend on nothing outside of the device form one submission, which is not awaited.
#[test]
fn nodes_of_one_device_share_a_submission() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let buffers = [0; 4].map(|_| device.buffer(64).unwrap());
    let [a, b, c, d] = &buffers;
    let mut graph = graph_of([("a", a), ("b", b), ("c", c), ("d", d)]);
    clear(&mut graph, "one", a, b);
    clear(&mut graph, "other", c, d);
    graph.copy("third", b, c).unwrap();
    let plan = graph.compile().unwrap();
    a.write(&[1; 64]).unwrap();
    submissions(&null);
    let report = plan.run().unwrap();
    assert_eq!(submissions(&null), [5]);
    assert_eq!(null.completed(), 0, "nothing has waited");
    assert!(report.nodes.iter().all(|node| node.submission == Some(1) && node.done_ns.is_none() && node.worker == 0));
    plan.run().unwrap();
    assert_eq!(submissions(&null), [5], "a second run does the same");
    assert_eq!(b.read().unwrap(), [0; 64]);
}

/// A submission ends where the host depends on it, and a new one begins after the host node.
#[test]
fn host_nodes_divide_submissions() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let buffers = [0; 4].map(|_| device.buffer(64).unwrap());
    let [a, b, c, d] = &buffers;
    let mut graph = graph_of([("a", a), ("b", b), ("c", c), ("d", d)]);
    graph.copy("to b", a, b).unwrap();
    let watched = null.clone();
    graph
        .host("check", [(b, BufferUse::ReadWrite)], move |[b]| {
            assert_eq!(watched.completed(), 1, "the first submission was awaited, the second was not");
            b.map_write(|bytes| bytes.iter_mut().for_each(|byte| *byte += 1))
        })
        .unwrap();
    graph.copy("independent", a, c).unwrap();
    graph.copy("to d", b, d).unwrap();
    graph.copy("more", d, a).unwrap();
    a.write(&[7; 64]).unwrap();
    submissions(&null);
    let report = graph.compile().unwrap().with_workers(1).unwrap().run().unwrap();
    assert_eq!(submissions(&null), [1, 1, 2]);
    let of = |name: &str| report.nodes.iter().find(|node| node.name == name).unwrap();
    assert_eq!(
        ["to b", "independent", "to d", "more"].map(|name| of(name).submission),
        [Some(1), Some(2), Some(3), Some(3)]
    );
    assert!(of("to b").done_ns.unwrap() <= of("check").start_ns);
    assert!(of("independent").done_ns.is_none());
    assert_eq!([a, b, c, d].map(|buffer| buffer.read().unwrap()[0]), [8, 8, 7, 8]);
}

/// Work that depends on a slow host node does not delay other work.
#[test]
fn device_nodes_wait_only_for_their_own_host_nodes() {
    let null = NullDevice::new();
    let device = device(&null);
    let buffers = [0; 5].map(|_| device.buffer(64).unwrap());
    let [a, b, c, d, e] = &buffers;
    let mut graph = graph_of([("a", a), ("b", b), ("c", c), ("d", d), ("e", e)]);
    fill(&mut graph, "fast", a, 1);
    fill(&mut graph, "slow", b, 2);
    graph.copy("after slow", b, d).unwrap();
    graph.copy("after fast", a, c).unwrap();
    graph.copy("after fast too", a, e).unwrap();
    let report = graph.compile().unwrap().with_workers(1).unwrap().run().unwrap();
    let order: Vec<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(order, ["fast", "after fast", "after fast too", "slow", "after slow"], "the device gets work first");
    assert_eq!(submissions(&null), [2, 1]);
    assert_eq!([c, d, e].map(|buffer| buffer.read().unwrap()[0]), [1, 2, 1]);
}

/// Each of two devices has its own submissions; copies between them go through the host after the first is done.
#[test]
fn devices_wait_for_each_other_through_the_host() {
    let nulls = [NullDevice::new().manual_completion(), NullDevice::new().manual_completion()];
    let [one, two] = nulls.each_ref().map(device);
    let [a, b, c, d] = [&one, &one, &two, &two].map(|device| crate::fixture::storage(device, 64));
    let mut graph = graph_of([("a", &a), ("b", &b), ("c", &c), ("d", &d)]);
    graph.copy("on one", &a, &b).unwrap();
    graph.copy("across", &b, &c).unwrap();
    graph.copy("on two", &c, &d).unwrap();
    graph.copy("back", &d, &a).unwrap();
    a.write(&[9; 64]).unwrap();
    let report = graph.compile().unwrap().run().unwrap();
    assert_eq!(
        report.nodes.iter().map(|node| node.submission.is_some()).collect::<Vec<_>>(),
        [true, false, true, false]
    );
    assert_eq!(
        [&a, &b, &c, &d].map(|buffer: &Buffer| buffer.read().unwrap()),
        [vec![9; 64], vec![9; 64], vec![9; 64], vec![9; 64]]
    );
    // A declared dependency between devices counts too: the second device gets nothing before the first is done.
    let mut graph = graph_of([("a", &a), ("b", &b), ("c", &c), ("d", &d)]);
    graph.copy("on one", &a, &b).unwrap();
    graph.copy("on two", &c, &d).unwrap();
    graph.after("on two", "on one").unwrap();
    let report = graph.compile().unwrap().run().unwrap();
    assert_eq!(nulls[0].completed(), report.nodes[0].submission.unwrap());
    assert!(nulls[1].completed() < report.nodes[1].submission.unwrap());
}
