//! Random graphs: fused, unfused and under tight limits, a plan computes what its graph defines.

use super::build::{Build, Matmul, Roll};
use super::interpret::{Data, run_graph, run_plan};
use crate::graph::{NodeId, Op, OpGraph, Reduce, View};
use crate::op::{self, ElementOp, Signature};
use crate::plan::{Place, Plan, Source, Target};
use crate::{Class, DType, Layout, Shape};

const GRAPHS: u64 = 4000;

/// splitmix64, to avoid a dependency.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

fn shape(random: &mut Random) -> Shape {
    let rank = random.of(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
    (0..rank).map(|_| if random.one_in(40) { 0 } else { random.of(&[1, 2, 3, 4]) }).collect()
}

fn dtype(random: &mut Random) -> DType {
    random.of(&[
        DType::F32,
        DType::F32,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U32,
        DType::U8,
        DType::I8,
        DType::Bool,
    ])
}

/// Adds an input: contiguous, or permuted, strided, reversed, broadcast or offset in a larger buffer.
fn input(build: &mut Build, random: &mut Random, shape: &Shape, dtype: DType) -> NodeId {
    let mut axes: Vec<usize> = (0..shape.rank()).collect();
    if random.one_in(3) {
        (0..axes.len()).for_each(|axis| axes.swap(axis, random.0 as usize % shape.rank()));
    }
    let steps: Vec<usize> = axes.iter().map(|_| if random.one_in(6) { 2 } else { 1 }).collect();
    let base: Shape = axes.iter().zip(&steps).map(|(&axis, step)| shape[axis] * step).collect();
    let mut layout = Layout::contiguous(base.clone());
    let offset = random.of(&[0, 0, 0, 5]);
    layout = Layout::strided(base.clone(), layout.strides(), offset);
    for (axis, &step) in steps.iter().enumerate() {
        let length = base[axis] / step;
        layout = match random.below(8) {
            0 if length > 0 => layout.sliced(axis, length - 1, length, -1),
            1 if length > 0 => {
                let mut strides = layout.strides().to_vec();
                strides[axis] = 0;
                Layout::strided(layout.shape().with(axis, length), &strides, layout.offset())
            }
            _ => layout.sliced(axis, 0, length, step as isize),
        };
    }
    let mut back = vec![0; axes.len()];
    axes.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    build.laid_out(layout.permuted(&back), dtype)
}

/// Adds a random reshape.
fn reshape(build: &mut Build, random: &mut Random, node: NodeId) -> NodeId {
    let mut lengths: Vec<usize> = build.shape(node).to_vec();
    for _ in 0..=random.below(3) {
        match random.below(4) {
            0 => lengths.insert(random.0 as usize % (lengths.len() + 1), 1),
            1 if lengths.contains(&1) => {
                let axis = lengths.iter().position(|&length| length == 1).unwrap();
                lengths.remove(axis);
            }
            2 if lengths.len() > 1 => {
                let axis = random.below(lengths.len() - 1);
                let length = lengths.remove(axis);
                lengths[axis] *= length;
            }
            3 if lengths.iter().any(|length| length % 2 == 0) => {
                let axis = lengths.iter().position(|length| length % 2 == 0).unwrap();
                lengths[axis] /= 2;
                lengths.insert(axis + random.below(2), 2);
            }
            _ => {}
        }
    }
    build.reshape(node, lengths)
}

fn view(build: &mut Build, random: &mut Random, node: NodeId) -> NodeId {
    let shape = build.shape(node);
    match random.below(4) {
        0 => {
            let mut axes: Vec<usize> = (0..shape.rank()).collect();
            (0..axes.len()).for_each(|axis| axes.swap(axis, random.below(shape.rank())));
            build.permute(node, &axes)
        }
        1 if shape.elem_count() <= 64 => {
            let mut lengths = shape.to_vec();
            lengths.iter_mut().filter(|length| **length == 1).for_each(|length| *length = random.of(&[1, 2, 3]));
            if random.one_in(3) {
                lengths.insert(0, random.of(&[1, 2, 3]));
            }
            build.view(View::Broadcast, node, lengths)
        }
        2 if shape.rank() > 0 => {
            let axis = random.below(shape.rank());
            let length = shape[axis];
            let step: isize = random.of(&[1, 1, 2, -1, -2]);
            let start = random.below(length.max(1));
            let left = if step > 0 { length.saturating_sub(start) } else { (start + 1).min(length) };
            let most = left.div_ceil(step.unsigned_abs());
            build.slice(node, axis, start, if random.one_in(30) { 0 } else { most - random.below(most.max(1)) }, step)
        }
        _ => reshape(build, random, node),
    }
}

fn ops(dtype: DType) -> Vec<&'static ElementOp> {
    let floats = [&op::DIV, &op::EXP, &op::SQRT];
    let numbers = [
        &op::ADD,
        &op::SUB,
        &op::MUL,
        &op::NEG,
        &op::ABS,
        &op::MAXIMUM,
        &op::MINIMUM,
        &op::RELU,
        &op::EQ,
        &op::LT,
        &op::WHERE,
    ];
    let numbers = numbers.into_iter().filter(|op| op.takes_dtype(dtype));
    if dtype.is_float() { numbers.chain(floats).collect() } else { numbers.collect() }
}

/// Returns a node of a dtype with a compatible shape: an existing one, or a new one.
fn partner(build: &mut Build, random: &mut Random, like: NodeId, dtype: DType) -> NodeId {
    let shape = build.shape(like);
    let fits = |&node: &NodeId| {
        let broadcast = build.shape(node).broadcast(&shape);
        build.ty(node).dtype == dtype && broadcast.is_some_and(|shape| shape.elem_count() <= 200)
    };
    let fitting: Vec<NodeId> = (0..build.0.nodes.len()).filter(fits).collect();
    match random.below(8) {
        0 => build.push(Op::Scalar, &[], shape, dtype),
        1 => {
            let skipped = random.below(shape.rank() + 1);
            let lengths: Shape =
                shape[skipped..].iter().map(|&length| if random.one_in(3) { 1 } else { length }).collect();
            input(build, random, &lengths, dtype)
        }
        2 => {
            let iota = build.iota(shape);
            if dtype == DType::U32 { iota } else { build.cast(iota, dtype) }
        }
        _ if fitting.is_empty() => input(build, random, &shape, dtype),
        _ => random.of(&fitting),
    }
}

fn element(build: &mut Build, random: &mut Random, node: NodeId) -> NodeId {
    let dtype = build.ty(node).dtype;
    let op = random.of(&ops(dtype));
    match (op.signature, op.arity()) {
        (Signature::Select, _) => {
            let other = partner(build, random, node, dtype);
            let condition = {
                let dtype = random.of(&[DType::U8, DType::Bool]);
                partner(build, random, node, dtype)
            };
            let shapes = [other, condition].map(|node| build.shape(node));
            match shapes[0].broadcast(&shapes[1]) {
                Some(shape) if build.shape(node).broadcast(&shape).is_some() => {
                    build.element(op, &[condition, node, other])
                }
                _ => node,
            }
        }
        (_, 1) => build.element(op, &[node]),
        _ => {
            let other = partner(build, random, node, dtype);
            let inputs = if random.one_in(2) { [node, other] } else { [other, node] };
            build.element(op, &inputs)
        }
    }
}

fn reduce(build: &mut Build, random: &mut Random, node: NodeId) -> NodeId {
    let (shape, dtype) = (build.shape(node), build.ty(node).dtype);
    let mut axes: Vec<usize> = (0..shape.rank()).filter(|_| !random.one_in(3)).collect();
    if random.one_in(2) {
        axes.reverse();
    }
    let has_elements = shape.elem_count() > 0;
    let op =
        random.of(&[Reduce::Sum, Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::ArgMax, Reduce::ArgMin]);
    let op = match op {
        Reduce::Mean if !dtype.is_float() && (dtype != DType::Bool || !has_elements) => Reduce::Sum,
        op if !has_elements && op != Reduce::Mean => Reduce::Sum,
        // The sum of `Bool` has another dtype.
        Reduce::Sum | Reduce::Mean if dtype == DType::Bool => Reduce::Max,
        op => op,
    };
    build.reduce(op, node, &axes)
}

fn hand_kernel(build: &mut Build, random: &mut Random, node: NodeId) -> NodeId {
    let shape = build.shape(node);
    if shape.rank() != 2 || !build.ty(node).dtype.is_float() || random.one_in(4) {
        return build.kernel(Roll, &[node]);
    }
    let dtype = build.ty(node).dtype;
    let other = match random.below(2) {
        0 => build.permute(node, &[1, 0]),
        _ => input(build, random, &Shape::from((shape[1], random.0 as usize % 4 + 1)), dtype),
    };
    build.kernel(Matmul, &[node, other])
}

/// Returns a graph of up to 30 ops.
pub(super) fn graph(random: &mut Random) -> OpGraph {
    let mut build = Build::default();
    let first = shape(random);
    let first_dtype = dtype(random);
    input(&mut build, random, &first, first_dtype);
    for _ in 0..1 + random.below(30) {
        let count = build.0.nodes.len();
        // Prefer recent nodes, so that chains grow.
        let node = if random.one_in(3) { random.below(count) } else { count - 1 - random.below(count.min(3)) };
        match random.below(20) {
            0..9 => element(&mut build, random, node),
            9..13 => view(&mut build, random, node),
            13..15 => reduce(&mut build, random, node),
            15 => hand_kernel(&mut build, random, node),
            16 | 17 => {
                let dtype = dtype(random);
                build.cast(node, dtype)
            }
            18 => {
                let (shape, dtype) = (shape(random), dtype(random));
                input(&mut build, random, &shape, dtype)
            }
            _ => {
                let (shape, dtype) = (shape(random), dtype(random));
                build.push(Op::Scalar, &[], shape, dtype)
            }
        };
    }
    let count = build.0.nodes.len();
    let mut outputs: Vec<NodeId> = (0..random.below(4)).map(|_| random.below(count)).collect();
    outputs.push(count - 1);
    build.outputs(&outputs)
}

pub(super) fn data(graph: &OpGraph, random: &mut Random) -> Data {
    let number = |random: &mut Random, dtype: DType| match dtype.class() {
        _ if dtype == DType::Bool => random.below(2) as f64,
        _ if dtype == DType::I8 => random.below(256) as f64 - 128.0,
        Class::Wide => random.below(2000) as f64 - 1000.0,
        Class::Float => random.below(33) as f64 / 4.0 - 4.0,
        Class::Int => random.below(2000) as f64 - 1000.0,
        Class::Uint => random.below(256) as f64,
    };
    let mut data = Data { inputs: Vec::new(), scalars: Vec::new() };
    for node in &graph.nodes {
        match &node.op {
            Op::Input(layout) => {
                let memory = (0..layout.range().end).map(|_| number(random, node.ty.dtype));
                data.inputs.push(memory.collect());
            }
            Op::Scalar => data.scalars.push(number(random, node.ty.dtype)),
            _ => {}
        }
    }
    data
}

/// Bitwise equal, with all NaNs equal.
fn same(a: &[Vec<f64>], b: &[Vec<f64>]) -> bool {
    let equal = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(equal))
}

/// The plan of a graph computes what the graph defines, whatever is fused, stored, copied or split.
#[test]
fn plans_compute_what_their_graphs_say() {
    let narrow = Target { max_operands: 4, max_instructions: 9, ..Target::CPU };
    let targets = [Target::CPU, Target::CPU.unfused(), narrow, Target::gpu(8, false)];
    for seed in 0..GRAPHS {
        let mut random = Random(seed);
        let graph = graph(&mut random);
        graph.verify().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let data = data(&graph, &mut random);
        let expected = run_graph(&graph, &data);
        for target in targets {
            let plan = Plan::new(&graph, &target).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{graph:#?}"));
            plan.verify(&graph).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{graph:#?}"));
            for step in &plan.steps {
                assert!(step.reads.len() <= target.max_operands, "seed {seed}");
            }
            let found = run_plan(&plan, &data);
            assert!(same(&found, &expected), "seed {seed} {target:?}\n{}\n{found:?}\n{expected:?}", plan.explain());
        }
    }
}

/// Returns the first and the last step at which each value is live; an output is live to the end.
fn lifetimes(plan: &Plan) -> Vec<(usize, usize)> {
    let last = plan.steps.len();
    let lifetime = |value: usize| {
        let written = plan.steps.iter().position(|step| step.writes == value).unwrap_or(last);
        let read = plan.steps.iter().rposition(|step| step.reads.contains(&Source::Value(value))).unwrap_or(written);
        (written, if plan.values[value].place == Place::Dedicated { last } else { read })
    };
    (0..plan.values.len()).map(lifetime).collect()
}

/// Values that are live at the same time do not share a slot, and sharing never allocates more than not sharing.
#[test]
fn slots_are_shared_only_by_values_that_never_meet() {
    let (mut shared, mut unshared, mut live) = (0, 0, 0);
    for seed in 0..GRAPHS {
        let graph = graph(&mut Random(seed));
        let plan = Plan::new(&graph, &Target::CPU.unfused()).unwrap();
        let lifetimes = lifetimes(&plan);
        for a in 0..plan.values.len() {
            for b in 0..a {
                let meet = lifetimes[a].0 <= lifetimes[b].1 && lifetimes[b].0 <= lifetimes[a].1;
                let (a, b) = (&plan.values[a], &plan.values[b]);
                let have_bytes = a.ty.bytes() > 0 && b.ty.bytes() > 0;
                assert!(a.place == Place::Dedicated || a.place != b.place || !meet || !have_bytes, "seed {seed}");
            }
        }
        assert!(plan.peak_bytes() <= plan.unshared_bytes(), "seed {seed}");
        assert!(plan.live_bytes() <= plan.peak_bytes(), "seed {seed}");
        shared += plan.peak_bytes();
        unshared += plan.unshared_bytes();
        live += plan.live_bytes();
    }
    assert!(shared * 10 < unshared * 9, "{shared} of {unshared} bytes are allocated; {live} are the least");
}

/// Fusion is effective on these graphs: most ops share a kernel, and memory traffic decreases.
#[test]
fn random_graphs_fuse() {
    let (mut fused, mut unfused, mut moved, mut unfused_moved) = (0, 0, 0, 0);
    for seed in 0..GRAPHS / 4 {
        let graph = graph(&mut Random(seed));
        let plan = Plan::new(&graph, &Target::CPU).unwrap();
        fused += plan.steps.len();
        moved += plan.moved_bytes();
        unfused_moved += plan.unfused_bytes;
        unfused += Plan::new(&graph, &Target::CPU.unfused()).unwrap().steps.len();
    }
    assert!(
        fused * 3 < unfused * 2 && moved < unfused_moved,
        "{fused} of {unfused} kernels, {moved} of {unfused_moved} bytes"
    );
}
