//! Graphs and captured sequences on a GPU, whose queue runs submissions asynchronously.

use crate::support::{both, filled, pattern};
use kiln_device::{Buffer, BufferUse, Device, Graph, Usage};

const BYTES: usize = 4096;

/// Four chains: the host fills, the device copies twice, the host adds one, the device copies.
fn chains(device: &Device) -> (Graph, Vec<(Buffer, Buffer)>) {
    let mut graph = Graph::new();
    let mut ends = Vec::new();
    for chain in 0..4_u64 {
        let new = |at: u64| filled(device, Usage::Storage, &pattern(10 * chain + at, BYTES));
        let buffers = [new(0), new(1), new(2), new(3)];
        for (at, buffer) in buffers.iter().enumerate() {
            graph.buffer(format!("{chain}.{at}"), buffer).unwrap();
        }
        let [a, b, c, d] = &buffers;
        graph.copy(format!("{chain}: a to b"), a, b).unwrap();
        graph.copy(format!("{chain}: b to c"), b, c).unwrap();
        let add_one = |[c]: [&Buffer; 1]| c.map_write(|c| c.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1)));
        graph.host(format!("{chain}: add one"), [(c, BufferUse::ReadWrite)], add_one).unwrap();
        graph.copy(format!("{chain}: c to d"), c, d).unwrap();
        ends.push((a.clone(), d.clone()));
    }
    (graph, ends)
}

/// Results equal those of sequential execution, with one worker and with several, repeatedly and with new inputs.
#[test]
fn a_graph_agrees_with_sequential_execution() {
    for device in both() {
        let (graph, ends) = chains(&device);
        for workers in [1, 4] {
            let plan = graph.compile().unwrap().with_workers(workers).unwrap();
            for round in 0..3 {
                for (chain, (a, _)) in (0..).zip(&ends) {
                    a.write(&pattern(100 * round + chain, BYTES)).unwrap();
                }
                let other = filled(&device, Usage::Storage, &pattern(7, BYTES));
                let report = plan.run_with(&[("2.0", &other)]).unwrap();
                assert_eq!(report.nodes.len(), 16);
                for (chain, (_, d)) in (0..).zip(&ends) {
                    let seed = if chain == 2 { 7 } else { 100 * round + chain };
                    let expected: Vec<u8> = pattern(seed, BYTES).iter().map(|byte| byte.wrapping_add(1)).collect();
                    assert_eq!(d.read().unwrap(), expected, "chain {chain} of round {round}, {workers} workers");
                }
            }
        }
    }
}

/// Replays a recorded sequence with the same buffers and with others.
#[test]
fn a_captured_sequence_replays() {
    for device in both() {
        let [a, b, c] = [1, 2, 3].map(|seed| filled(&device, Usage::Storage, &pattern(seed, BYTES)));
        let captured = device.capture(|commands| {
            commands.copy(&a, &b)?;
            commands.zero(&a.slice(..16)?)?;
            commands.copy(&b, &c)
        });
        let captured = captured.unwrap();
        for seed in 10..15 {
            let input = filled(&device, Usage::Storage, &pattern(seed, BYTES));
            captured.replay_with(&[(&a, &input)]).unwrap();
            assert_eq!(c.read().unwrap(), pattern(seed, BYTES));
            assert_eq!(input.slice(..16).unwrap().read().unwrap(), [0; 16]);
            a.write(&pattern(2 * seed, BYTES)).unwrap();
            captured.replay().unwrap();
            assert_eq!(c.read().unwrap(), pattern(2 * seed, BYTES));
        }
    }
}
