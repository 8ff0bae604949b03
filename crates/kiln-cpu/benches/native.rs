//! `cargo bench -p kiln-cpu --bench native`: plans on the CPU, fused and with one kernel per op.
//!
//! Both arms run once in each round, in random order; a time is a median with its quartiles, a ratio the median of the ratios within a
//! round. The results of both arms must agree closely, or the run stops.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

use kiln_cpu::CpuOptions;
use kiln_device::{Buffer, CompiledPlan, Device, PlanRun};
use kiln_ir::graph::{Op, OpGraph, OpNode, Reduce, TensorType};
use kiln_ir::op::ElementOp;
use kiln_ir::plan::{Place, Plan, Target};
use kiln_ir::{DType, Layout, Shape, op};
use kiln_testkit::arms::{self, Arm, Quartiles};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    // Under `cargo test --benches` only the checks count.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    let large = if is_bench { 16 << 20 } else { 1 << 18 };
    for dtype in [DType::F32, DType::F16] {
        println!("{dtype}, {} threads", device.info().limits.threads.unwrap());
        for elements in [16, 1 << 20, large] {
            let rounds = if is_bench { ((1 << 26) / elements).clamp(20, 2000) } else { 2 };
            let shape = Shape::from(elements);
            compare(&device, &format!("add of {elements}"), rounds, &chain(&shape, dtype, &[&op::ADD]));
            let fused = [&op::MUL, &op::ADD, &op::RELU];
            compare(&device, &format!("relu(a*b+c) of {elements}"), rounds, &chain(&shape, dtype, &fused));
            let eight = [&op::MUL, &op::ADD, &op::SUB, &op::MAXIMUM, &op::MUL, &op::ABS, &op::MINIMUM, &op::RELU];
            compare(&device, &format!("8 ops on {elements}"), rounds, &chain(&shape, dtype, &eight));
            compare(&device, &format!("gelu of {elements}"), rounds, &chain(&shape, dtype, &[&op::GELU]));
            compare(&device, &format!("mean of {elements}"), rounds, &reduction((1, elements), dtype, 1));
        }
        let rounds = if is_bench { 200 } else { 2 };
        let shape = if is_bench { (4096, 1024) } else { (64, 1024) };
        compare(&device, &format!("row means of {shape:?}"), rounds, &reduction(shape, dtype, 1));
        compare(&device, &format!("column means of {shape:?}"), rounds, &reduction(shape, dtype, 0));
        compare(&device, &format!("transposed add of {shape:?}"), rounds, &transposed(shape, dtype));
    }
}

fn node(op: Op, inputs: &[usize], shape: &Shape, dtype: DType) -> OpNode {
    OpNode { op, inputs: SmallVec::from_slice(inputs), ty: TensorType { shape: shape.clone(), dtype } }
}

fn input(shape: &Shape, dtype: DType) -> OpNode {
    node(Op::Input(Layout::contiguous(shape.clone()).into()), &[], shape, dtype)
}

/// A chain of ops; each binary op reads one more input.
fn chain(shape: &Shape, dtype: DType, ops: &[&'static ElementOp]) -> OpGraph {
    let mut nodes: Vec<OpNode> = (0..3).map(|_| input(shape, dtype)).collect();
    let mut last = 0;
    for (index, op) in ops.iter().enumerate() {
        let args = [last, 1 + index % 2];
        nodes.push(node(Op::Element(op), &args[..op.arity()], shape, dtype));
        last = nodes.len() - 1;
    }
    OpGraph { nodes, outputs: vec![last], held: Vec::new() }
}

fn reduction(shape: (usize, usize), dtype: DType, axis: usize) -> OpGraph {
    let shape = Shape::from(shape);
    let reduced = shape.with(axis, 1);
    let mean = node(Op::Reduce(Reduce::Mean, SmallVec::from_slice(&[axis])), &[0], &reduced, dtype);
    OpGraph { nodes: vec![input(&shape, dtype), mean], outputs: vec![1], held: Vec::new() }
}

/// A matrix and the transpose of another.
fn transposed((rows, columns): (usize, usize), dtype: DType) -> OpGraph {
    let shape = Shape::from((rows, columns));
    let turned = Layout::contiguous(Shape::from((columns, rows))).permuted(&[1, 0]);
    let nodes = vec![
        input(&shape, dtype),
        node(Op::Input(turned.into()), &[], &shape, dtype),
        node(Op::Element(&op::ADD), &[0, 1], &shape, dtype),
    ];
    OpGraph { nodes, outputs: vec![2], held: Vec::new() }
}

/// A plan with its buffers, ready to run again and again.
struct Ready {
    plan: Arc<dyn CompiledPlan>,
    slots: Vec<Buffer>,
    output: Buffer,
}

impl Ready {
    fn new(device: &Device, graph: &OpGraph, target: &Target) -> Self {
        let plan = Arc::new(Plan::new(graph, target).unwrap());
        let slots = plan.slots.iter().map(|&bytes| device.buffer(bytes).unwrap()).collect();
        let own = plan.values.iter().find(|value| value.place == Place::Dedicated).unwrap();
        let output = device.buffer((own.ty.shape.elem_count() * own.ty.dtype.bytes()) as u64).unwrap();
        Self { plan: device.compile(&plan).unwrap(), slots, output }
    }

    /// Microseconds of one run.
    fn run(&self, device: &Device, inputs: &[&Buffer]) -> f64 {
        let outputs = std::slice::from_ref(&self.output);
        let start = Instant::now();
        self.plan.run(device, &PlanRun { inputs, slots: &self.slots, outputs, scalars: &[] }).unwrap();
        start.elapsed().as_secs_f64() * 1e6
    }
}

fn compare(device: &Device, name: &str, rounds: usize, graph: &OpGraph) {
    let inputs = graph.nodes.iter().filter(|node| matches!(node.op, Op::Input(_)));
    let inputs: Vec<Buffer> = inputs.map(|node| filled(device, &node.ty)).collect();
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    let (fused, unfused) = (Ready::new(device, graph, &Target::CPU), Ready::new(device, graph, &Target::CPU.unfused()));
    let mut arms =
        [Arm::new("fused", || fused.run(device, &inputs)), Arm::new("unfused", || unfused.run(device, &inputs))];
    let results = arms::run(rounds, &mut arms);
    let dtype = graph.nodes[0].ty.dtype;
    for (a, b) in numbers(&fused.output, dtype).iter().zip(numbers(&unfused.output, dtype)) {
        assert!((a - b).abs() <= 0.02 * (1.0 + b.abs()), "{name}: {a} and {b}");
    }
    let Quartiles { low, median, high } = results.quartiles("fused");
    let (unfused, ratio) = (results.quartiles("unfused").median, results.ratio("unfused", "fused").median);
    println!("  {name:<32} {median:>10.2} µs ({low:.2} to {high:.2}), unfused {unfused:>10.2} µs, {ratio:.2} times");
}

/// Numbers between 0 and 1.
fn filled(device: &Device, ty: &TensorType) -> Buffer {
    let number = |index: usize| (index * 7919 % 1000) as f32 / 1000.0;
    let elements = ty.shape.elem_count();
    let bytes: Vec<u8> = match ty.dtype {
        DType::F16 => (0..elements).flat_map(|i| half::f16::from_f32(number(i)).to_le_bytes()).collect(),
        _ => (0..elements).flat_map(|i| number(i).to_le_bytes()).collect(),
    };
    device.buffer_from(&bytes).unwrap().as_bytes().clone()
}

fn numbers(buffer: &Buffer, dtype: DType) -> Vec<f32> {
    let bytes = buffer.read().unwrap();
    match dtype {
        DType::F16 => bytes.chunks(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        _ => bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}
