//! The table of all claims. The measuring code is in the file of each subject.

mod fusion;
mod graphs;
mod kernels;
mod memory;
mod plans;
mod pool;
mod products;
mod reopen;
mod start;
mod throughput;

use crate::claim::{Claim, Targets};
use kiln_bench::Op;

/// Returns all claims, in run order.
///
/// See the [crate documentation](crate) for an example.
pub fn claims() -> &'static [Claim] {
    &CLAIMS
}

/// A claim about square matmuls of one size.
macro_rules! product {
    ($n:literal, $measures:literal, $in_quick:literal) => {
        Claim {
            id: concat!("matmul-", $n),
            title: concat!("A ", $n, " x ", $n, " matmul reaches at least 90 % of the speed of gemm"),
            measures: $measures,
            comparison: products::LIBRARY,
            target: Targets::cpu(0.9),
            in_quick: $in_quick,
            run: |context| products::square(context, $n),
        }
    };
}

static CLAIMS: [Claim; 23] = [
    Claim {
        id: "elementwise",
        title: "Elementwise addition reaches its target share of the memory bandwidth",
        measures: "a + b in f32, compared with the time to move its bytes at the measured bandwidth",
        comparison: "measured memory bandwidth",
        target: Targets::both(0.5, 0.2),
        in_quick: true,
        run: |context| throughput::many_elements(context, "elementwise", |len| Op::Add { len }),
    },
    Claim {
        id: "reduction",
        title: "A sum over all elements reaches its target share of the memory bandwidth",
        measures: "the sum of all elements in f32, compared with the time to read them at the measured bandwidth",
        comparison: "measured memory bandwidth",
        target: Targets::both(0.5, 0.2),
        in_quick: true,
        run: |context| throughput::many_elements(context, "reduction", |len| Op::Sum { len }),
    },
    Claim {
        id: "activation",
        title: "GELU stays within a bounded factor of the roofline",
        measures: "gelu(x) in f32 (tanh form), compared with the larger of its memory time and its compute time",
        comparison: "measured roofline",
        target: Targets::both(0.2, 0.05),
        in_quick: true,
        run: |context| throughput::many_elements(context, "activation", |len| Op::Gelu { len }),
    },
    Claim {
        id: "matmul",
        title: "A large matmul reaches its target share of peak FLOP/s",
        measures: "a @ b in f32, compared with the larger of its compute time at peak FLOP/s and its memory time",
        comparison: "measured roofline",
        target: Targets::both(0.5, 0.02),
        in_quick: true,
        run: throughput::matmul,
    },
    product!(256, "a @ b in f32 including allocation of the result, compared with gemm into preallocated memory", true),
    product!(512, "same as matmul-256", true),
    product!(1024, "same as matmul-256", false),
    product!(2048, "same as matmul-256", false),
    Claim {
        id: "fusion-launches",
        title: "A chain of eight elementwise ops runs as one kernel",
        measures: "kernels launched for the chain, compared with the same ops evaluated one at a time",
        comparison: "unfused: one kernel per op",
        target: Targets::both(8.0, 8.0),
        in_quick: true,
        run: fusion::launches,
    },
    Claim {
        id: "fusion-bytes",
        title: "A fused chain of eight ops moves at least five times fewer bytes",
        measures: "bytes read and written by the kernels of the chain, compared with the same ops evaluated one at a time",
        comparison: "unfused: one kernel per op",
        target: Targets::both(5.0, 5.0),
        in_quick: true,
        run: fusion::bytes,
    },
    Claim {
        id: "fusion-time",
        title: "A fused chain of eight ops is at least twice as fast as the ops one at a time",
        measures: "time of the fused chain, compared with the same ops evaluated one at a time",
        comparison: "unfused: one kernel per op",
        target: Targets::both(2.0, 2.0),
        in_quick: true,
        run: fusion::time,
    },
    Claim {
        id: "small-ops",
        title: "Independent small ops are faster evaluated together than one at a time",
        measures: "independent additions of 16 elements evaluated together, compared with evaluating each before recording the next",
        comparison: "evaluated one at a time",
        target: Targets::both(1.2, 2.0),
        in_quick: true,
        run: throughput::small_ops,
    },
    Claim {
        id: "plan-hit",
        title: "A repeated computation reuses its cached plan",
        measures: "four ops on a few elements in a known shape, compared with a shape that was never planned",
        comparison: "planning every time",
        target: Targets::both(3.0, 1.0),
        in_quick: true,
        run: plans::hit,
    },
    Claim {
        id: "kernel-hit",
        title: "A cached kernel is returned without compiling",
        measures: "requesting a kernel that is in memory, compared with compiling a new one",
        comparison: "compiling",
        target: Targets::both(100.0, 100.0),
        in_quick: true,
        run: |context| kernels::against_compiling(context, kernels::Origin::Memory),
    },
    Claim {
        id: "kernel-disk-hit",
        title: "Loading a kernel from disk is faster than compiling it",
        measures: "requesting a kernel that is only on disk, compared with compiling a new one",
        comparison: "compiling",
        target: Targets::both(2.0, 1.2),
        in_quick: true,
        run: |context| kernels::against_compiling(context, kernels::Origin::Disk),
    },
    Claim {
        id: "commands",
        title: "Recording a command list takes a small fraction of the time to run it",
        measures: "creating a command list and recording eight dispatches, compared with recording, submitting and waiting for them",
        comparison: "recording and running",
        target: Targets::gpu(5.0),
        in_quick: true,
        run: kernels::commands,
    },
    Claim {
        id: "cold-start",
        title: "A new process computes its first result soon after it starts",
        measures: "on the CPU device: a process that evaluates an expression, compared with one that only prints its version; on a \
                   GPU: with compiled kernels on disk, compared with an empty kernel cache",
        comparison: "an empty process (CPU), an empty kernel cache (GPU)",
        target: Targets::both(0.2, 1.0),
        in_quick: true,
        run: start::cold_start,
    },
    Claim {
        id: "unified-memory",
        title: "Writing host data in place is faster than through staging buffers",
        measures: "writing 4 MiB to a buffer in place, compared with the same device using staging buffers",
        comparison: "staging buffers",
        target: Targets::both(1.2, 1.1),
        in_quick: true,
        run: memory::unified,
    },
    Claim {
        id: "graph-parallelism",
        title: "Independent branches of a graph run in parallel",
        measures: "a graph of independent branches, compared with the same branches in sequence",
        comparison: "sequential branches",
        target: Targets::cpu(1.3),
        in_quick: true,
        run: graphs::parallel,
    },
    Claim {
        id: "pool-reduction",
        title: "Few allocation requests reach the driver",
        measures: "allocation requests of mixed sizes over 200 rounds, compared with the requests that reach the driver",
        comparison: "every request reaching the driver",
        target: Targets::both(10.0, 10.0),
        in_quick: true,
        run: pool::reduction,
    },
    Claim {
        id: "pool-one-size",
        title: "Allocating from the pool is faster than from the driver (one size)",
        measures: "allocating and freeing 16 buffers of one size, compared with pooling disabled",
        comparison: "pooling disabled",
        target: Targets::both(5.0, 2.0),
        in_quick: true,
        run: |context| pool::against_driver(context, pool::Sizes::One),
    },
    Claim {
        id: "pool-mixed-sizes",
        title: "Allocating from the pool is faster than from the driver (mixed sizes)",
        measures: "allocating and freeing 16 buffers of mixed sizes, compared with pooling disabled",
        comparison: "pooling disabled",
        target: Targets::both(5.0, 2.0),
        in_quick: true,
        run: |context| pool::against_driver(context, pool::Sizes::Shuffled),
    },
    Claim {
        id: "memory-plateau",
        title: "Pool memory stops growing and is released",
        measures: "peak reserved bytes in the first half of a workload with changing sizes, compared with the second half; and the \
                   bytes that remain after a cleanup",
        comparison: "the first half of the run",
        target: Targets::both(1.0, 1.0),
        in_quick: true,
        run: memory::plateau,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn claims_have_unique_names_and_apply_to_some_device() {
        let names: BTreeSet<&str> = claims().iter().map(|claim| claim.id).collect();
        assert_eq!(names.len(), claims().len());
        for claim in claims() {
            assert!(claim.target.cpu.or(claim.target.gpu).is_some_and(|target| target > 0.0), "{}", claim.id);
            assert!(!claim.title.ends_with('.') && !claim.measures.is_empty(), "{}", claim.id);
        }
    }
}
