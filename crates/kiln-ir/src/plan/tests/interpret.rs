//! Two interpreters in `f64`: one for graphs, which applies the definition of each op to indices, and one for plans,
//! which uses strides and slots.
//!
//! They share the arithmetic of single ops, but no addressing. Numbers are rounded only by casts, so fused and
//! unfused results are bitwise equal. Integers are checked to be in range wherever they are stored.

use crate::graph::{Op, OpGraph, OpNode, Reduce, View};
use crate::kernel::{Body, Core, Instruction, Operand};
use crate::op::{ElementOp, Signature};
use crate::plan::{Place, Plan, Source};
use crate::{Class, DType, Layout, Shape};

/// The arguments of a run.
pub(super) struct Data {
    /// The memory of each input.
    pub(super) inputs: Vec<Vec<f64>>,
    pub(super) scalars: Vec<f64>,
}

/// Returns the elements of each output of a graph.
pub(super) fn run_graph(graph: &OpGraph, data: &Data) -> Vec<Vec<f64>> {
    let (mut inputs, mut scalars) = (data.inputs.iter(), data.scalars.iter());
    let mut values: Vec<Vec<f64>> = Vec::new();
    for node in &graph.nodes {
        let shape = &node.ty.shape;
        let input = |index: usize| &values[node.inputs[index]];
        let input_node = |index: usize| &graph.nodes[node.inputs[index]];
        let value = match &node.op {
            Op::Input(layout) => gather(layout, inputs.next().unwrap()),
            Op::Scalar => vec![*scalars.next().unwrap(); shape.elem_count()],
            Op::Iota => (0..shape.elem_count()).map(|element| element as f64).collect(),
            Op::Element(op) => {
                let class = element_class(op, &|index| input_node(index).ty.dtype.class());
                let element = |index: usize| {
                    let args: Vec<f64> = (0..op.arity()).map(|arg| input(arg)[index]).collect();
                    let value = apply(op, class, &args);
                    in_byte(value, node.ty.dtype)
                };
                (0..shape.elem_count()).map(element).collect()
            }
            Op::Cast => {
                let from = input_node(0).ty.dtype.class();
                input(0).iter().map(|&x| cast(x, from, node.ty.dtype)).collect()
            }
            Op::View(view) => {
                indices(shape).map(|index| input(0)[view_source(view, input_node(0), shape, &index)]).collect()
            }
            Op::Reduce(op, axes) => {
                let mut groups = vec![Vec::new(); shape.elem_count()];
                for (place, mut index) in indices(&input_node(0).ty.shape).enumerate() {
                    axes.iter().for_each(|&axis| index[axis] = 0);
                    groups[place_of(shape, &index)].push(input(0)[place]);
                }
                let results = groups.iter().map(|group| reduce(*op, node.ty.dtype.class(), group));
                results.map(|x| in_byte(x, node.ty.dtype)).collect()
            }
            Op::Kernel(op) => {
                let operands: Vec<_> =
                    node.inputs.iter().map(|&i| (graph.nodes[i].ty.shape.clone(), values[i].clone())).collect();
                hand_kernel(op.name(), &operands)
            }
        };
        values.push(value);
    }
    graph.outputs.iter().map(|&output| values[output].clone()).collect()
}

/// Returns the index in a view's input of an element of the view.
fn view_source(view: &View, input: &OpNode, shape: &Shape, index: &[usize]) -> usize {
    let from = &input.ty.shape;
    let mut source = vec![0; from.rank()];
    match view {
        View::Permute(axes) => axes.iter().zip(index).for_each(|(&axis, &i)| source[axis] = i),
        View::Broadcast => {
            let front = shape.rank() - from.rank();
            (0..from.rank()).for_each(|axis| source[axis] = if from[axis] == 1 { 0 } else { index[front + axis] });
        }
        View::Reshape => return place_of(shape, index),
        &View::Slice { axis, start, step } => {
            source.copy_from_slice(index);
            source[axis] = start.wrapping_add_signed(index[axis] as isize * step);
        }
    }
    place_of(from, &source)
}

/// Returns every index of a shape, in row-major order.
pub(super) fn indices(shape: &Shape) -> impl Iterator<Item = Vec<usize>> {
    let lengths = shape.to_vec();
    (0..shape.elem_count()).map(move |mut place| {
        let mut index = vec![0; lengths.len()];
        for axis in (0..lengths.len()).rev() {
            index[axis] = place % lengths[axis];
            place /= lengths[axis];
        }
        index
    })
}

fn place_of(shape: &Shape, index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |place, (length, i)| place * length + i)
}

fn gather(layout: &Layout, memory: &[f64]) -> Vec<f64> {
    let place = |index: Vec<usize>| {
        let steps = index.iter().zip(layout.strides()).map(|(&i, &stride)| i as isize * stride);
        layout.offset().wrapping_add_signed(steps.sum())
    };
    indices(layout.shape()).map(|index| memory[place(index)]).collect()
}

/// Returns the elements of each output of a plan.
pub(super) fn run_plan(plan: &Plan, data: &Data) -> Vec<Vec<f64>> {
    let mut slots: Vec<Vec<f64>> = plan.slots.iter().map(|_| Vec::new()).collect();
    let mut own: Vec<Vec<f64>> = plan.values.iter().map(|_| Vec::new()).collect();
    let memory = |source: Source, slots: &[Vec<f64>], own: &[Vec<f64>]| match source {
        Source::Input(input) => data.inputs[input].clone(),
        Source::Value(value) => match plan.values[value].place {
            Place::Dedicated => own[value].clone(),
            Place::Slot(slot) => slots[slot].clone(),
        },
    };
    for step in &plan.steps {
        let kernel = &step.kernel;
        let reads = kernel.operands().zip(&step.reads);
        let mut loaded: Vec<Vec<f64>> =
            reads.map(|(operand, &source)| gather(&operand.layout, &memory(source, &slots, &own))).collect();
        let epilogue = loaded.split_off(loaded.len() - kernel.body.operands.len());
        let core = match &kernel.core {
            Core::Map => Vec::new(),
            Core::Reduce { op, input, kept } => {
                let elements = run_body(input, &loaded, &data.scalars, &[]);
                let rows: usize = input.space[..*kept].iter().product();
                let length: usize = input.space[*kept..].iter().product();
                let class = kernel_class(&kernel.body, kernel.output.dtype);
                (0..rows).map(|row| reduce(*op, class, &elements[row * length..][..length])).collect()
            }
            Core::Op { op, operands } => {
                let shape = |operand: &Operand| operand.layout.shape().clone();
                hand_kernel(op.name(), &operands.iter().map(shape).zip(loaded).collect::<Vec<_>>())
            }
        };
        let result = run_body(&kernel.body, &epilogue, &data.scalars, &core);
        assert_eq!(result.len(), kernel.output.shape.elem_count());
        result.iter().for_each(|&x| check_range(x, kernel.output.dtype));
        match plan.values[step.writes].place {
            Place::Dedicated => own[step.writes] = result,
            Place::Slot(slot) => slots[slot] = result,
        }
    }
    plan.outputs.iter().map(|output| gather(&output.layout, &memory(output.source, &slots, &own))).collect()
}

/// Returns the class that the core of a kernel computes in.
fn kernel_class(body: &Body, stored: DType) -> Class {
    let core = body.program.instructions.iter().find_map(|instruction| match instruction {
        Instruction::Core { class } => Some(*class),
        _ => None,
    });
    core.unwrap_or(stored.class())
}

fn run_body(body: &Body, loaded: &[Vec<f64>], scalars: &[f64], core: &[f64]) -> Vec<f64> {
    let element = |place: usize| {
        let mut values: Vec<f64> = Vec::new();
        for instruction in &body.program.instructions {
            values.push(match instruction {
                Instruction::Load { operand } => loaded[*operand][place],
                Instruction::Scalar { scalar, .. } => scalars[*scalar],
                Instruction::Iota => place as f64,
                Instruction::Core { .. } => core[place],
                Instruction::Op { op, class, args } => {
                    apply(op, *class, &args.iter().map(|&arg| values[arg]).collect::<Vec<_>>())
                }
                Instruction::Cast { arg, from, to } => cast(values[*arg], *from, *to),
            });
        }
        values[values.len() - 1]
    };
    (0..body.space.elem_count()).map(element).collect()
}

fn element_class(op: &ElementOp, class: &dyn Fn(usize) -> Class) -> Class {
    class(usize::from(op.signature == Signature::Select))
}

fn apply(op: &ElementOp, class: Class, args: &[f64]) -> f64 {
    let truth = f64::from;
    let value = match (op.name, args) {
        ("add", &[a, b]) => a + b,
        ("sub", &[a, b]) => a - b,
        ("mul", &[a, b]) if class == Class::Float => a * b,
        ("mul", &[a, b]) => ((a as i128 * b as i128) % (1 << 32)) as f64,
        ("div", &[a, b]) => a / b,
        ("neg", &[x]) => -x,
        ("abs", &[x]) => x.abs(),
        ("relu", &[x]) => x.max(0.0),
        ("maximum", &[a, b]) => a.max(b),
        ("minimum", &[a, b]) => a.min(b),
        ("exp", &[x]) => x.exp(),
        ("sqrt", &[x]) => x.sqrt(),
        ("eq", &[a, b]) => truth(a == b),
        ("lt", &[a, b]) => truth(a < b),
        (name, &[condition, a, b]) if name.starts_with("where") => {
            if condition == 0.0 {
                b
            } else {
                a
            }
        }
        (name, _) => panic!("`{name}` is not interpreted"),
    };
    let is_question = op.signature == Signature::Compare;
    if is_question { value } else { wrap(value, class) }
}

/// Wraps an integer to 8 bits if the dtype has 8.
fn in_byte(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::U8 => x.rem_euclid(256.0),
        DType::I8 => (x + 128.0).rem_euclid(256.0) - 128.0,
        _ => x,
    }
}

/// Wraps an integer to 32 bits.
fn wrap(x: f64, class: Class) -> f64 {
    let modulus = 2f64.powi(32);
    match class {
        Class::Float => x,
        Class::Uint => x.rem_euclid(modulus),
        Class::Wide => panic!("programs compute in 32 bits"),
        Class::Int => (x + modulus / 2.0).rem_euclid(modulus) - modulus / 2.0,
    }
}

fn cast(x: f64, from: Class, to: DType) -> f64 {
    let (low, high) = range(to);
    match to {
        DType::F32 => x,
        DType::F16 => half::f16::from_f32(crate::round_to_odd::f32_of(x)).to_f64(),
        DType::BF16 => half::bf16::from_f32(crate::round_to_odd::f32_of(x)).to_f64(),
        DType::Bool => f64::from(u8::from(x != 0.0)),
        _ if from == Class::Float => {
            if x.is_nan() {
                0.0
            } else {
                x.trunc().clamp(low, high)
            }
        }
        DType::U8 | DType::I8 => in_byte(x, to),
        DType::I32 | DType::U32 => wrap(x, to.class()),
        DType::I64 | DType::F64 => panic!("programs compute in 32 bits"),
    }
}

fn range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => (f64::NEG_INFINITY, f64::INFINITY),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U32 => (0.0, u32::MAX.into()),
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::Bool => (0.0, 1.0),
        DType::I64 => (i64::MIN as f64, i64::MAX as f64),
    }
}

fn check_range(x: f64, dtype: DType) {
    let (low, high) = range(dtype);
    assert!(dtype.is_float() || low <= x && x <= high && x.fract() == 0.0, "{x} is stored as {dtype}");
}

fn reduce(op: Reduce, class: Class, group: &[f64]) -> f64 {
    let sum = || group.iter().fold(0.0, |sum, x| sum + x);
    let first = |is_better: &dyn Fn(f64, f64) -> bool| {
        let better = |best: usize, next: usize| if is_better(group[next], group[best]) { next } else { best };
        (0..group.len()).reduce(better).expect("elements")
    };
    match op {
        Reduce::Sum => wrap(sum(), class),
        Reduce::Mean => sum() / group.len() as f64,
        Reduce::Max => group[first(&|a, b| a > b)],
        Reduce::Min => group[first(&|a, b| a < b)],
        Reduce::ArgMax => first(&|a, b| a > b) as f64,
        Reduce::ArgMin => first(&|a, b| a < b) as f64,
    }
}

fn hand_kernel(name: &str, operands: &[(Shape, Vec<f64>)]) -> Vec<f64> {
    match (name, operands) {
        ("matmul", [(a_shape, a), (b_shape, b)]) => {
            let (rows, inner, columns) = (a_shape[0], a_shape[1], b_shape[1]);
            let dot = |place: usize| -> f64 {
                let (row, column) = (place / columns, place % columns);
                (0..inner).fold(0.0, |sum, k| sum + a[row * inner + k] * b[k * columns + column])
            };
            (0..rows * columns).map(dot).collect()
        }
        ("roll", [(_, x)]) => {
            let mut x = x.clone();
            if !x.is_empty() {
                x.rotate_right(1);
            }
            x
        }
        (name, _) => panic!("`{name}` is not interpreted"),
    }
}
