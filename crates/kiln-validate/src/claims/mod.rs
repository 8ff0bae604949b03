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
pub fn claims() -> &'static [Claim] {
    &CLAIMS
}

/// A claim about square matmuls of one size.
macro_rules! product {
    ($n:literal, $measures:literal, $in_quick:literal) => {
        Claim {
            id: concat!("matmul-", $n),
            title: concat!("A product of ", $n, " x ", $n, " takes no more than a tenth longer than the library's"),
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
        title: "Adding two tensors reaches its share of the speed of memory",
        measures: "a + b of f32, against the time that the machine needs to move the bytes",
        comparison: "the measured bandwidth",
        target: Targets::both(0.5, 0.2),
        in_quick: true,
        run: |context| throughput::many_elements(context, "elementwise", |len| Op::Add { len }),
    },
    Claim {
        id: "reduction",
        title: "The sum of a tensor reaches its share of the speed of memory",
        measures: "the sum of all elements of f32, against the time that the machine needs to read them",
        comparison: "the measured bandwidth",
        target: Targets::both(0.5, 0.2),
        in_quick: true,
        run: |context| throughput::many_elements(context, "reduction", |len| Op::Sum { len }),
    },
    Claim {
        id: "activation",
        title: "GELU costs a bounded multiple of moving its bytes",
        measures: "gelu(x) of f32 in its tanh form, against the larger of the time for its bytes and for its arithmetic",
        comparison: "the measured roofline",
        target: Targets::both(0.2, 0.05),
        in_quick: true,
        run: |context| throughput::many_elements(context, "activation", |len| Op::Gelu { len }),
    },
    Claim {
        id: "matmul",
        title: "A large product reaches its share of the device's arithmetic",
        measures: "a @ b of f32, against the larger of the time for its arithmetic at the peak and for its bytes",
        comparison: "the measured roofline",
        target: Targets::both(0.5, 0.02),
        in_quick: true,
        run: throughput::matmul,
    },
    product!(256, "a @ b of f32 with memory for the result, against gemm into memory that is there already", true),
    product!(512, "as matmul-256", true),
    product!(1024, "as matmul-256", false),
    product!(2048, "as matmul-256", false),
    Claim {
        id: "fusion-launches",
        title: "A chain of eight ops is one kernel",
        measures: "kernels that ran for the chain, against the same ops computed one by one",
        comparison: "one kernel for each op",
        target: Targets::both(8.0, 8.0),
        in_quick: true,
        run: fusion::launches,
    },
    Claim {
        id: "fusion-bytes",
        title: "A chain of eight ops moves the bytes of one",
        measures: "bytes that the kernels of the chain read and write, against the same ops computed one by one",
        comparison: "one kernel for each op",
        target: Targets::both(5.0, 5.0),
        in_quick: true,
        run: fusion::bytes,
    },
    Claim {
        id: "fusion-time",
        title: "A fused chain of eight ops is much faster than the ops one by one",
        measures: "the time of the chain, against the same ops computed one by one",
        comparison: "one kernel for each op",
        target: Targets::both(2.0, 2.0),
        in_quick: true,
        run: fusion::time,
    },
    Claim {
        id: "small-ops",
        title: "Small ops cost less together than one by one",
        measures: "adds of 16 numbers that do not need each other, computed at once, against each before the next one is written down",
        comparison: "one by one",
        target: Targets::both(1.2, 2.0),
        in_quick: true,
        run: throughput::small_ops,
    },
    Claim {
        id: "plan-hit",
        title: "A computation that was planned before is not planned again",
        measures: "four ops on a few numbers in a known shape, against the same in a shape that was never seen",
        comparison: "planning anew",
        target: Targets::both(3.0, 1.0),
        in_quick: true,
        run: plans::hit,
    },
    Claim {
        id: "kernel-hit",
        title: "A kernel in the cache is there at once",
        measures: "asking for a kernel that is in memory, against compiling one that was never seen",
        comparison: "compiling",
        target: Targets::both(100.0, 100.0),
        in_quick: true,
        run: |context| kernels::against_compiling(context, kernels::Origin::Memory),
    },
    Claim {
        id: "kernel-disk-hit",
        title: "A kernel on disk is there sooner than it is compiled",
        measures: "asking for a kernel that is on disk only, against compiling one that was never seen",
        comparison: "compiling",
        target: Targets::both(2.0, 1.2),
        in_quick: true,
        run: |context| kernels::against_compiling(context, kernels::Origin::Disk),
    },
    Claim {
        id: "commands",
        title: "A list of commands is there and filled in a small part of the time that it runs",
        measures: "getting a command list and recording eight dispatches, against recording them, submitting them and waiting",
        comparison: "running the commands",
        target: Targets::gpu(5.0),
        in_quick: true,
        run: kernels::commands,
    },
    Claim {
        id: "cold-start",
        title: "A fresh process has its first result soon after it starts",
        measures: "on the CPU device: a process that computes, against one that only tells its version; on a GPU: \
                   with compiled kernels on disk, against without",
        comparison: "an empty process, or a start without kernels",
        target: Targets::both(0.2, 1.0),
        in_quick: true,
        run: start::cold_start,
    },
    Claim {
        id: "unified-memory",
        title: "Host data is written in place faster than through staging",
        measures: "writing some MiB to a buffer in place, against the same device told to use staging",
        comparison: "staging buffers",
        target: Targets::both(1.2, 1.1),
        in_quick: true,
        run: memory::unified,
    },
    Claim {
        id: "graph-parallelism",
        title: "Independent branches of a graph run at the same time",
        measures: "a graph of branches that do not need each other, against the same graph with each behind the one before",
        comparison: "one branch after the other",
        target: Targets::cpu(1.3),
        in_quick: true,
        run: graphs::parallel,
    },
    Claim {
        id: "pool-reduction",
        title: "Few requests for memory reach the driver",
        measures: "requests of mixed sizes over many rounds, against those that the driver saw",
        comparison: "every request to the driver",
        target: Targets::both(10.0, 10.0),
        in_quick: true,
        run: pool::reduction,
    },
    Claim {
        id: "pool-one-size",
        title: "A buffer of the pool is there sooner than one of the driver",
        measures: "taking and giving back 16 buffers of one size, against the same with pooling turned off",
        comparison: "no pool",
        target: Targets::both(5.0, 2.0),
        in_quick: true,
        run: |context| pool::against_driver(context, pool::Sizes::One),
    },
    Claim {
        id: "pool-mixed-sizes",
        title: "Buffers of mixed sizes are there sooner than those of the driver",
        measures: "taking and giving back 16 buffers of mixed sizes, against the same with pooling turned off",
        comparison: "no pool",
        target: Targets::both(5.0, 2.0),
        in_quick: true,
        run: |context| pool::against_driver(context, pool::Sizes::Shuffled),
    },
    Claim {
        id: "memory-plateau",
        title: "Memory stops growing, and goes back",
        measures: "the most bytes reserved in the first half of a workload with changing sizes, against the second half; what is \
                   left after a cleanup",
        comparison: "the first half of the workload",
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
    fn claims_have_names_of_their_own_and_apply_somewhere() {
        let names: BTreeSet<&str> = claims().iter().map(|claim| claim.id).collect();
        assert_eq!(names.len(), claims().len());
        for claim in claims() {
            assert!(claim.target.cpu.or(claim.target.gpu).is_some_and(|target| target > 0.0), "{}", claim.id);
            assert!(!claim.title.ends_with('.') && !claim.measures.is_empty(), "{}", claim.id);
        }
    }
}
