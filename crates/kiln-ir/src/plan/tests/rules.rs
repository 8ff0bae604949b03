//! Fusion rules that golden files do not show, and the verification of graphs and plans.

use super::build::{Build, Matmul};
use super::interpret::{Data, run_graph, run_plan};
use crate::graph::{Op, OpGraph, Reduce};
use crate::kernel::{Core, Instruction};
use crate::op::{ADD, EXP, MUL, RELU};
use crate::plan::{Place, Plan, Source, Target};
use crate::{DType, ErrorKind, Layout, Shape};

fn plan(graph: &OpGraph) -> Plan {
    Plan::new(graph, &Target::CPU).unwrap()
}

/// A chain on contiguous tensors has one axis, whatever their rank; equal operands are merged.
#[test]
fn contiguous_chains_have_one_axis() {
    let mut build = Build::default();
    let x = build.input((2, 1, 3, 4), DType::F32);
    let exp = build.element(&EXP, &[x]);
    let sum = build.element(&ADD, &[exp, x]);
    let twice = build.element(&ADD, &[sum, exp]);
    let steps = plan(&build.outputs(&[twice])).steps;
    let body = &steps[0].kernel.body;
    assert_eq!((steps.len(), &body.space, body.operands.len()), (1, &Shape::from(24), 1));
    assert_eq!(body.program.instructions.len(), 4, "load, exp and two sums: {:?}", body.program);
}

/// A reduction over middle axes: kept axes first, both groups merged as far as strides allow.
#[test]
fn reductions_have_kept_axes_first() {
    let mut build = Build::default();
    let x = build.input((2, 3, 4, 5, 1), DType::F32);
    let sum = build.reduce(Reduce::Sum, x, &[2, 1]);
    let plan = plan(&build.outputs(&[sum]));
    let Core::Reduce { input, kept, .. } = &plan.steps[0].kernel.core else { panic!("a reduction") };
    assert_eq!((&input.space, *kept), (&Shape::from((2, 5, 12)), 2));
    assert_eq!(input.operands[0].layout.strides(), [60, 1, 5]);
    assert_eq!(plan.steps[0].kernel.body.space, Shape::from(10));
}

/// An iota is fused where its order is kept, and stored where a view reorders it.
#[test]
fn element_numbers_are_computed_in_order_only() {
    for (is_permuted, kernels) in [(false, 1), (true, 2)] {
        let mut build = Build::default();
        let iota = build.iota((3, 4));
        let seen = if is_permuted { build.permute(iota, &[1, 0]) } else { build.reshape(iota, (4, 3)) };
        let x = build.input((4, 3), DType::U32);
        let sum = build.element(&ADD, &[seen, x]);
        assert_eq!(plan(&build.outputs(&[sum])).steps.len(), kernels);
    }
}

/// A large reduction to few results is split, fused with its surroundings, and gives the same result.
#[test]
fn large_reductions_are_split() {
    let target = Target { split_reduce: Some(8), ..Target::CPU };
    for op in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min] {
        for axes in [&[0, 1, 2][..], &[2], &[0], &[2, 0], &[1]] {
            let mut build = Build::default();
            let (x, row) = (build.input((6, 4, 32), DType::F16), build.input((4, 1), DType::F16));
            let product = build.element(&MUL, &[x, row]);
            let reduced = build.reduce(op, product, axes);
            let relu = build.element(&RELU, &[reduced]);
            let graph = build.outputs(&[relu]);
            let plan = Plan::new(&graph, &target).unwrap();
            let data = Data {
                inputs: vec![(0..768).map(|x| f64::from(x * 7 % 61 - 30)).collect(), vec![1.0, -2.0, 3.0, 4.0]],
                scalars: Vec::new(),
            };
            let (found, expected) = (run_plan(&plan, &data), run_graph(&graph, &data));
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * b.abs();
            assert!(found[0].iter().zip(&expected[0]).all(is_close), "{op:?} {axes:?} {}", plan.explain());
            let reduced: usize = axes.iter().map(|&axis| [6, 4, 32][axis]).product();
            // Each kernel reduces at most 8 elements, and none computes only the product.
            let kernels = match reduced {
                ..=8 => 1,
                9..=64 => 2,
                _ => plan.steps.len().max(3),
            };
            assert_eq!(plan.steps.len(), kernels, "{op:?} {axes:?} {}", plan.explain());
            assert!(plan.steps.iter().all(|step| matches!(step.kernel.core, Core::Reduce { .. })));
            assert_eq!(plan.steps[kernels - 1].kernel.output.dtype, DType::F16);
        }
    }
}

/// Outputs that are inputs, views, duplicates, or scalars: only scalars need a kernel.
#[test]
fn outputs_that_need_no_kernel() {
    let mut build = Build::default();
    let x = build.input((3, 4), DType::F32);
    let transposed = build.permute(x, &[1, 0]);
    let scalar = build.push(Op::Scalar, &[], Shape::from(()), DType::F32);
    let filled = build.broadcast(scalar, (2, 2));
    let plan = plan(&build.outputs(&[x, transposed, transposed, filled]));
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.steps[0].kernel.name, "fill");
    let sources: Vec<Source> = plan.outputs.iter().map(|output| output.source).collect();
    assert_eq!(sources, [Source::Input(0), Source::Input(0), Source::Input(0), Source::Value(0)]);
    assert_eq!(plan.outputs[1].layout.strides(), [1, 4]);
    assert_eq!(plan.values[0].place, Place::Dedicated);
    assert_eq!(plan.peak_bytes(), 4);
}

/// If only a slice of a result is an output, only the slice is computed; several slices are views of the whole
/// result.
#[test]
fn parts_of_results() {
    let mut build = Build::default();
    let x = build.input((100, 4), DType::F32);
    let exp = build.element(&EXP, &[x]);
    let first = build.slice(exp, 0, 0, 1, 1);
    let mut graph = build.outputs(&[first]);
    assert_eq!(plan(&graph).steps[0].kernel.output.shape, Shape::from((1, 4)));
    graph.outputs = vec![first, first];
    assert_eq!(plan(&graph).steps.len(), 1);
}

/// Scalars, generators and casts of inputs that are no smaller are recomputed in each kernel that uses them.
#[test]
fn what_costs_nothing_is_never_stored() {
    let mut build = Build::default();
    let (x, scale) = (build.input((8, 8), DType::F16), build.input((8, 8), DType::F32));
    let wide = build.cast(x, DType::F32);
    let one = build.scalar_like(wide);
    let numbers = build.iota((8, 8));
    let floats = build.cast(numbers, DType::F32);
    let mut outputs = Vec::new();
    for axis in [0, 1] {
        let sum = build.element(&ADD, &[wide, one]);
        let product = build.element(&MUL, &[sum, scale]);
        let counted = build.element(&ADD, &[product, floats]);
        outputs.push(if axis == 1 { build.reduce(Reduce::Sum, counted, &[axis]) } else { counted });
    }
    let plan = plan(&build.outputs(&outputs));
    assert_eq!((plan.steps.len(), plan.notes.len()), (2, 0), "{}", plan.explain());
}

/// A program of thousands of ops is split, and does not exhaust the stack.
#[test]
fn long_chains_are_cut() {
    let mut build = Build::default();
    let mut x = build.input(4, DType::F32);
    for index in 0..20_000 {
        x = if index % 2 == 0 {
            build.element(&RELU, &[x])
        } else {
            build.reshape(x, if index % 4 == 1 { (2, 2) } else { (4, 1) })
        };
    }
    let plan = plan(&build.outputs(&[x]));
    assert!((10_000 / 96..10_000 / 80).contains(&plan.steps.len()), "{} kernels", plan.steps.len());
    assert!(plan.peak_bytes() <= 3 * 16, "two slots and the output, found {} bytes", plan.peak_bytes());
}

/// A node reached through many chains of views is not recomputed for each of them.
#[test]
fn neighbours_of_neighbours_are_not_computed_again_and_again() {
    let mut build = Build::default();
    let mut x = build.input(64, DType::F32);
    for length in (32..64).rev() {
        let (left, right) = (build.slice(x, 0, 0, length, 1), build.slice(x, 0, 1, length, 1));
        x = build.element(&ADD, &[left, right]);
    }
    let graph = build.outputs(&[x]);
    let plan = plan(&graph);
    let instructions: usize = plan.steps.iter().map(|step| step.kernel.body.program.instructions.len()).sum();
    assert!(instructions < 10 * 32, "{instructions} instructions");
    let data = Data { inputs: vec![(0..64).map(f64::from).collect()], scalars: Vec::new() };
    assert_eq!(run_plan(&plan, &data), run_graph(&graph, &data));
}

/// A single kernel that exceeds the target's limit is rejected, with a message that says what was found.
#[test]
fn a_kernel_beyond_the_limit_is_refused() {
    let mut build = Build::default();
    let x = build.input((2, 2), DType::F32);
    let product = build.kernel(Matmul, &[x, x]);
    let target = Target { max_operands: 1, ..Target::CPU };
    let error = Plan::new(&build.outputs(&[product]), &target).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().starts_with("`matmul` expected at most 1 operands"), "{error}");
}

/// A change that breaks something, and the expected error message.
type Wrong<'a, T> = (&'a dyn Fn(&mut T), &'a str);

/// Malformed graphs are detected, with the index of the node.
#[test]
fn wrong_graphs_are_found() {
    let good = || {
        let mut build = Build::default();
        let x = build.input((2, 3), DType::F32);
        let exp = build.element(&EXP, &[x]);
        let slice = build.slice(exp, 1, 0, 2, 1);
        let sum = build.reduce(Reduce::Sum, slice, &[1]);
        build.outputs(&[sum])
    };
    good().verify().unwrap();
    let wrong: [Wrong<'_, OpGraph>; 8] = [
        (&|graph| graph.nodes[1].inputs[0] = 1, "node 1: expected inputs before it"),
        (&|graph| graph.nodes[1].inputs.push(0), "node 1: expected 1 inputs, found 2"),
        (&|graph| graph.nodes[1].ty.shape = Shape::from((3, 2)), "node 1: `exp` expected shapes (3, 2)"),
        (&|graph| graph.nodes[1].ty.dtype = DType::F16, "node 1: `exp` does not map [F32] to f16"),
        (&|graph| graph.nodes[2].ty.shape = Shape::from((2, 4)), "node 2: Slice"),
        (
            &|graph| graph.nodes[3].op = Op::Reduce(Reduce::Sum, [2].as_slice().into()),
            "node 3: Sum expected axes below 2",
        ),
        (&|graph| graph.nodes[3].ty.dtype = DType::I32, "node 3: Sum of f32 does not produce i32"),
        (&|graph| graph.outputs[0] = 4, "expected outputs among the nodes"),
    ];
    for (change, message) in wrong {
        let mut graph = good();
        change(&mut graph);
        let error = graph.verify().unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
    }
}

/// Malformed plans are detected.
#[test]
fn wrong_plans_are_found() {
    let mut build = Build::default();
    let x = build.input((4, 8), DType::F32);
    let max = build.reduce(Reduce::Max, x, &[1]);
    let moved = build.element(&ADD, &[x, max]);
    let sum = build.reduce(Reduce::Sum, moved, &[0]);
    let graph = build.outputs(&[sum]);
    let good = plan(&graph);
    assert_eq!(good.steps.len(), 2);
    let wrong: [Wrong<'_, Plan>; 7] = [
        (&|plan| plan.steps.swap(0, 1), "which no step before it writes"),
        (&|plan| plan.slots[0] = 8, "past the end of slot"),
        (&|plan| (plan.slots[0], plan.values[1].place) = (64, Place::Slot(0)), "which it reads"),
        (&|plan| plan.outputs.clear(), "an output for each"),
        (&|plan| plan.steps[1].reads.truncate(1), "a source for each operand"),
        (
            &|plan| plan.steps[0].kernel.body.program.instructions.push(Instruction::Load { operand: 0 }),
            "an operand below 0",
        ),
        (
            &|plan| {
                let Core::Reduce { input, .. } = &mut plan.steps[0].kernel.core else { panic!("a reduction") };
                input.operands[0].layout = Layout::strided(Shape::from((4, 8)), &[8, 1], 1);
            },
            "covers 0..32 but is read at 1..33",
        ),
    ];
    for (change, message) in wrong {
        let mut plan = good.clone();
        change(&mut plan);
        let error = plan.verify(&graph).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}
