//! Random graphs compared with sequential execution of their nodes.

use crate::fixture::{cpu, device, graph_of};
use kiln_device::{Buffer, BufferUse, CommandList, Device, Graph, NullDevice};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::Range;

const BUFFERS: usize = 3;
const BYTES: u64 = 64;

#[derive(Clone, Debug)]
enum ModelNode {
    /// Mixes `from` into `to` on the host.
    Host {
        from: (usize, Range<u64>),
        to: (usize, Range<u64>),
    },
    Copy {
        from: (usize, u64),
        to: (usize, u64),
        bytes: u64,
    },
    Commands {
        zero: (usize, Range<u64>),
        from: usize,
        to: usize,
    },
}

fn words() -> impl Strategy<Value = Range<u64>> {
    (0..=BYTES / 4, 0..=BYTES / 4).prop_map(|(a, b)| 4 * a.min(b)..4 * a.max(b))
}

fn any_range() -> impl Strategy<Value = Range<u64>> {
    prop_oneof![words(), (0..=BYTES, 0..=BYTES).prop_map(|(a, b)| a.min(b)..a.max(b))]
}

fn node() -> impl Strategy<Value = ModelNode> {
    let buffer = || 0..BUFFERS;
    prop_oneof![
        3 => ((buffer(), any_range()), (buffer(), any_range())).prop_map(|(from, to)| ModelNode::Host { from, to }),
        // Lengths and offsets that a device can copy, and others; within one buffer and between two.
        3 => ((buffer(), 0..32_u64), (buffer(), 0..32_u64), 0..=32_u64, any::<bool>()).prop_map(
            |((from, a), (to, b), bytes, aligned)| {
                let mask = if aligned { !3 } else { !0 };
                ModelNode::Copy { from: (from, a & mask), to: (to, b & mask), bytes: bytes & mask }
            }
        ),
        2 => ((buffer(), words()), buffer(), 1..BUFFERS)
            .prop_map(|(zero, from, by)| ModelNode::Commands { zero, from, to: (from + by) % BUFFERS }),
    ]
}

fn mix(from: &[u8], to: &mut [u8], seed: u8) {
    let sum = from.iter().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    to.iter_mut().enumerate().for_each(|(at, byte)| *byte = byte.wrapping_mul(5).wrapping_add(sum ^ at as u8));
}

fn whole(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl ModelNode {
    fn add_to(&self, graph: &mut Graph, index: usize, buffers: &[Buffer]) {
        let slice = |buffer: usize, range: Range<u64>| buffers[buffer].slice(range).unwrap();
        let name = format!("{index}");
        match self.clone() {
            Self::Host { from, to } => {
                let uses = [(&slice(from.0, from.1), BufferUse::Read), (&slice(to.0, to.1), BufferUse::ReadWrite)];
                let callback = move |[from, to]: [&Buffer; 2]| {
                    let from = from.read()?;
                    to.map_write(|to| mix(&from, to, index as u8))
                };
                graph.host(name, uses, callback).unwrap();
            }
            Self::Copy { from, to, bytes } => {
                graph.copy(name, &slice(from.0, from.1..from.1 + bytes), &slice(to.0, to.1..to.1 + bytes)).unwrap();
            }
            Self::Commands { zero, from, to } => {
                let mut commands = CommandList::new();
                commands.zero(&slice(zero.0, zero.1)).unwrap();
                commands.copy(&buffers[from], &buffers[to]).unwrap();
                graph.commands(name, commands).unwrap();
            }
        }
    }

    fn apply(&self, index: usize, data: &mut [Vec<u8>]) {
        match self {
            Self::Host { from, to } => {
                let from = data[from.0][whole(&from.1)].to_vec();
                mix(&from, &mut data[to.0][whole(&to.1)], index as u8);
            }
            Self::Copy { from, to, bytes } => {
                let from = data[from.0][whole(&(from.1..from.1 + bytes))].to_vec();
                data[to.0][whole(&(to.1..to.1 + bytes))].copy_from_slice(&from);
            }
            Self::Commands { zero, from, to } => {
                data[zero.0][whole(&zero.1)].fill(0);
                data[*to] = data[*from].clone();
            }
        }
    }
}

fn run(device: &Device, nodes: &[ModelNode], workers: usize, runs: usize) -> Vec<Vec<u8>> {
    let buffers: Vec<Buffer> = (0..BUFFERS)
        .map(|index| {
            let buffer =
                if index == 0 { crate::fixture::storage(device, BYTES) } else { device.buffer(BYTES).unwrap() };
            buffer.write(&initial(index)).unwrap();
            buffer
        })
        .collect();
    let names: Vec<String> = (0..BUFFERS).map(|index| format!("b{index}")).collect();
    let mut graph = graph_of(names.iter().map(String::as_str).zip(&buffers));
    for (index, node) in nodes.iter().enumerate() {
        node.add_to(&mut graph, index, &buffers);
    }
    let plan = graph.compile().unwrap().with_workers(workers).unwrap();
    for _ in 0..runs {
        plan.run().unwrap();
    }
    buffers.iter().map(|buffer| buffer.read().unwrap()).collect()
}

fn initial(buffer: usize) -> Vec<u8> {
    (0..BYTES as u8).map(|at| at.wrapping_mul(7) ^ (buffer as u8) << 6).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// On one and four workers, immediate and deferred, a run equals sequential execution.
    #[test]
    fn a_run_is_as_if_in_sequence(nodes in vec(node(), 0..24)) {
        const RUNS: usize = 2;
        let mut expected: Vec<Vec<u8>> = (0..BUFFERS).map(initial).collect();
        for _ in 0..RUNS {
            for (index, node) in nodes.iter().enumerate() {
                node.apply(index, &mut expected);
            }
        }
        let devices = [device(&NullDevice::new()), device(&NullDevice::new().manual_completion()), cpu()];
        for device in &devices {
            for workers in [1, 4] {
                prop_assert_eq!(&run(device, &nodes, workers, RUNS), &expected, "{:?}, {} workers", device, workers);
            }
        }
    }
}
