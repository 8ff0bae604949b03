//! The overhead of a node that does almost nothing.

use crate::Bench;
use crate::harness::report::{Checks, Number, print_arms};
use kiln_device::Graph;
use kiln_testkit::arms::{Arm, run as run_arms};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const NODES: u64 = 1000;

/// Nanoseconds per node to compile and to run a graph, as a chain and as independent nodes.
pub(crate) fn run(bench: &mut Bench) {
    println!("overhead: {NODES} host nodes that add one to a counter, nanoseconds per node");
    let (counter, checks) = (Arc::new(AtomicU64::new(0)), Checks::default());
    let (chain, apart) = (build(&counter, true), build(&counter, false));
    let plans = [&chain, &apart].map(|graph| graph.compile().unwrap());
    let one_worker = apart.compile().unwrap().with_workers(1).unwrap();
    let per_node = |work: &dyn Fn()| {
        let (before, began) = (counter.load(Ordering::Relaxed), Instant::now());
        work();
        let nanoseconds = began.elapsed().as_nanos() as f64;
        (nanoseconds / NODES as f64, counter.load(Ordering::Relaxed) - before)
    };
    let running = |plan: &kiln_device::GraphPlan| {
        let (nanoseconds, ran) = per_node(&|| drop(plan.run().unwrap()));
        checks.expect(ran == NODES);
        nanoseconds
    };
    let mut arms = [
        Arm::new("compile a chain", || per_node(&|| checks.expect(chain.compile().is_ok())).0),
        Arm::new("run a chain", || running(&plans[0])),
        Arm::new("run side by side", || running(&plans[1])),
        Arm::new("run side by side on one worker", || running(&one_worker)),
    ];
    let results = run_arms(bench.effort.pick(101, 21, 1), &mut arms);
    drop(arms);
    print_arms(&results);
    bench.report.note("a node of a chain", &Number::of(results.quartiles("run a chain"), "ns"), &checks);
}

fn build(counter: &Arc<AtomicU64>, is_chain: bool) -> Graph {
    let mut graph = Graph::new();
    for node in 0..NODES {
        let counter = Arc::clone(counter);
        graph
            .host(format!("{node}"), [], move |[]| {
                counter.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
        if is_chain && node > 0 {
            graph.after(&format!("{node}"), &format!("{}", node - 1)).unwrap();
        }
    }
    graph
}
