//! Independent chains, run in parallel and sequentially.

use crate::Bench;
use crate::harness::report::{Checks, Number, Target, print_arms};
use kiln_device::{BufferUse, Graph, TypedBuffer};
use kiln_testkit::arms::{Arm, run as run_arms};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const CHAINS: usize = 8;
/// Nodes of a chain; each changes the result of the one before.
const LENGTH: u64 = 8;
const ELEMENTS: usize = 16 << 10;
/// The required speed-up over sequential execution, on two cores.
const TARGET: f64 = 1.5;

/// At least 1.5 times as fast on two cores, with the same results.
pub(crate) fn run(bench: &mut Bench) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("chains: {CHAINS} independent chains of {LENGTH} host nodes over {ELEMENTS} u64 each, {cores} cores");
    let device = kiln_cpu::open(kiln_cpu::CpuOptions::new()).unwrap();
    let buffers: Vec<TypedBuffer<u64>> = (0..CHAINS).map(|_| device.buffer_of(ELEMENTS).unwrap()).collect();
    let passes = bench.effort.pick(16, 16, 1);
    let graph = build(&buffers, passes);
    let (parallel, one_worker) = (graph.compile().unwrap(), graph.compile().unwrap().with_workers(1).unwrap());
    let expected = expect(passes);
    let checks = Checks::default();
    let measure = |run: &dyn Fn()| {
        buffers.iter().enumerate().for_each(|(chain, buffer)| buffer.write(&initial(chain)).unwrap());
        let began = Instant::now();
        run();
        let nanoseconds = began.elapsed().as_nanos() as f64;
        let sums = buffers.iter().map(|buffer| buffer.map_read(checksum).unwrap());
        checks.expect(sums.eq(expected.iter().copied()));
        nanoseconds
    };
    let in_sequence = || {
        for buffer in &buffers {
            for node in 0..LENGTH {
                buffer.map_write(|values| mix(values, node, passes)).unwrap();
            }
        }
    };
    let on_plain_threads = || {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(buffer) = buffers.get(next.fetch_add(1, Ordering::Relaxed)) {
                for node in 0..LENGTH {
                    buffer.map_write(|values| mix(values, node, passes)).unwrap();
                }
            }
        };
        std::thread::scope(|scope| {
            (1..cores).for_each(|_| drop(scope.spawn(work)));
            work();
        });
    };
    let mut arms = [
        Arm::new("plain calls, one after the other", || measure(&in_sequence)),
        Arm::new("plain calls on a thread per core", || measure(&on_plain_threads)),
        Arm::new("the graph on one worker", || measure(&|| drop(one_worker.run().unwrap()))),
        Arm::new("the graph in parallel", || measure(&|| drop(parallel.run().unwrap()))),
    ];
    let results = run_arms(bench.effort.pick(31, 9, 1), &mut arms);
    drop(arms);
    print_arms(&results);
    let (calls, threads, graph) =
        ("plain calls, one after the other", "plain calls on a thread per core", "the graph in parallel");
    let offered = results.ratio(calls, threads).median;
    let what = "parallel against plain calls in sequence";
    if offered < TARGET && checks.failed() == 0 {
        // The result would measure other processes on this machine.
        bench.report.withhold(what, &format!("plain threads reach only {offered:.2} x, the cores are not free"));
    } else {
        let speedup = Number::of(results.ratio(calls, graph), "x");
        bench.report.claim(what, &speedup, Target::AtLeast(TARGET), &checks);
    }
    let limit = Number::of(results.ratio(threads, graph), "x");
    bench.report.claim("parallel against plain threads", &limit, Target::AtLeast(0.9), &checks);
    let cost = results.ratio("the graph on one worker", "plain calls, one after the other");
    bench.report.claim("one worker against plain calls", &Number::of(cost, "x"), Target::AtMost(1.05), &checks);
}

fn build(buffers: &[TypedBuffer<u64>], passes: u64) -> Graph {
    let mut graph = Graph::new();
    for (chain, buffer) in buffers.iter().enumerate() {
        graph.buffer(format!("chain {chain}"), buffer.as_bytes()).unwrap();
        for node in 0..LENGTH {
            let callback = move |[bytes]: [&kiln_device::Buffer; 1]| {
                bytes.clone().typed::<u64>()?.map_write(|values| mix(values, node, passes))
            };
            let uses = [(buffer.as_bytes(), BufferUse::ReadWrite)];
            graph.host(format!("chain {chain} node {node}"), uses, callback).unwrap();
        }
    }
    graph
}

fn initial(chain: usize) -> Vec<u64> {
    (0..ELEMENTS as u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ chain as u64).collect()
}

/// CPU-bound work: every element depends on the one before it.
fn mix(values: &mut [u64], node: u64, passes: u64) {
    for pass in 0..passes {
        let mut carry = node.wrapping_mul(31).wrapping_add(pass);
        for value in values.iter_mut() {
            carry = (carry ^ *value).wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(23);
            *value = carry;
        }
    }
}

fn checksum(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, value| sum.rotate_left(7) ^ value)
}

/// Returns the checksums of all chains, computed without device and graph.
fn expect(passes: u64) -> Vec<u64> {
    let chain = |chain| {
        let mut values = initial(chain);
        (0..LENGTH).for_each(|node| mix(&mut values, node, passes));
        checksum(&values)
    };
    (0..CHAINS).map(chain).collect()
}
