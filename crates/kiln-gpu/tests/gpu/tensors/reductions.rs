//! Reductions over inner, outer, middle and all axes, with lengths that exercise each way to divide the work.

use super::{body, core, decode, devices, encode, gathered, run, sum_of};
use kiln_device::Device;
use kiln_ir::graph::{Reduce, TensorType};
use kiln_ir::kernel::{Body, Core, Instruction, Kernel, Operand};
use kiln_ir::{Class, DType, Layout, Shape, op};

fn is_place(op: Reduce) -> bool {
    matches!(op, Reduce::ArgMax | Reduce::ArgMin)
}

fn kernel(op: Reduce, dtype: DType, layout: &Layout, kept: usize) -> Kernel {
    let class = if is_place(op) { Class::Uint } else { dtype.class() };
    let shape = Shape::new(&layout.shape()[..kept]);
    let input = sum_of(layout.shape(), dtype, std::slice::from_ref(layout));
    let core_op = Core::Reduce { op, input, kept };
    let output = TensorType { shape: shape.clone(), dtype: if is_place(op) { DType::U32 } else { dtype.computed() } };
    Kernel { name: "reduce".to_string(), core: core_op, body: body(&shape, dtype, &[], core(class)), output }
}

/// Reduces elements with a loop.
fn reduced(op: Reduce, class: Class, elements: &[f64]) -> f64 {
    let better = |a: f64, b: f64| {
        let wins = if matches!(op, Reduce::Max | Reduce::ArgMax) { a > b } else { a < b };
        !b.is_nan() && (wins || a.is_nan())
    };
    let best = || (1..elements.len()).fold(0, |best, at| if better(elements[at], elements[best]) { at } else { best });
    let sum: f64 = elements.iter().sum();
    match op {
        Reduce::Sum => match class {
            Class::Float => sum,
            Class::Int => f64::from(sum as i64 as i32),
            Class::Uint => f64::from(sum as i64 as u32),
            Class::Wide => panic!("programs compute in 32 bits"),
        },
        Reduce::Mean => sum / elements.len() as f64,
        Reduce::Max | Reduce::Min => elements[best()],
        Reduce::ArgMax | Reduce::ArgMin => best() as f64,
    }
}

const OPS: [Reduce; 6] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::ArgMax, Reduce::ArgMin];

fn random(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed * 2 + 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    (0..count).map(|_| next()).collect()
}

/// Reduces a tensor over axes, for all ops of its dtype.
fn check(device: &Device, dtype: DType, shape: &[usize], axes: &[usize], ops: &[Reduce]) {
    let rank = shape.len();
    let kept: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    let order: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let layout = Layout::contiguous(Shape::new(shape)).permuted(&order);
    let scale = |value: f64| match dtype.class() {
        _ if dtype == DType::Bool => value.round(),
        _ if dtype == DType::I8 => (value * 256.0 - 128.0).floor(),
        Class::Wide => panic!("programs compute in 32 bits"),
        Class::Float => value * 2.0 - 1.0,
        // Large enough to wrap around.
        Class::Int => (value * 4e9 - 2e9).floor(),
        Class::Uint => (value * if dtype == DType::U8 { 255.0 } else { 4e9 }).floor(),
    };
    let count: usize = shape.iter().product();
    let operand = encode(dtype, &random(count, count as u64).into_iter().map(scale).collect::<Vec<_>>());
    let elements = gathered(&layout, &decode(dtype, &operand)[..count]);
    let length: usize = axes.iter().map(|&axis| shape[axis]).product();
    for &op in ops.iter().filter(|op| **op != Reduce::Mean || dtype.is_float()) {
        if length == 0 && op != Reduce::Sum && op != Reduce::Mean {
            continue;
        }
        let found = run(device, &kernel(op, dtype, &layout, kept.len()), std::slice::from_ref(&operand), &[]);
        for (number, &found) in found.iter().enumerate() {
            let elements = &elements[number * length..(number + 1) * length];
            let expected = reduced(op, dtype.class(), elements);
            // Partial sums of n numbers below 1 are far more accurate than n roundings of the total.
            let is_sum = matches!(op, Reduce::Sum | Reduce::Mean) && dtype.is_float();
            let size: f64 = elements.iter().map(|value| value.abs()).sum();
            let size = if op == Reduce::Mean { size / length.max(1) as f64 } else { size };
            let slack = if is_sum { 3e-7 * size * (2.0 + (length as f64).sqrt() / 16.0) } else { 0.0 };
            let fits = (found - expected).abs() <= slack || (found.is_nan() && expected.is_nan());
            assert!(fits, "{op:?} {dtype} {shape:?} over {axes:?}, {number}: expected {expected}, found {found}");
        }
    }
}

/// Every way to divide the work, for rows and columns, with lengths that are and are not multiples of four.
#[test]
fn every_axis_and_length_is_reduced() {
    let table: [(&[usize], &[usize]); 21] = [
        (&[], &[]),
        (&[1], &[0]),
        (&[5], &[0]),
        (&[0], &[0]),
        (&[3, 0], &[1]),
        (&[0, 3], &[1]),
        (&[1023], &[0]),
        (&[4097], &[0]),
        (&[65536], &[0]),
        (&[70, 3], &[1]),
        (&[37, 100], &[1]),
        (&[9, 63], &[1]),
        (&[5, 2048], &[1]),
        (&[3, 1030], &[1]),
        (&[100, 37], &[0]),
        (&[513, 3], &[0]),
        (&[20, 17000], &[0]),
        (&[5, 12, 7], &[1]),
        (&[6, 4, 8], &[0, 2]),
        (&[2, 3, 4, 5, 3], &[1, 3]),
        (&[2, 2, 3, 2, 2, 8], &[0, 1, 2, 3, 4, 5]),
    ];
    // Compilation dominates the time, and the ops share the code that walks the axes.
    for device in devices() {
        for (shape, axes) in table {
            check(&device, DType::F32, shape, axes, &[Reduce::Sum]);
        }
        for (shape, axes) in [table[2], table[7], table[12], table[13], table[15]] {
            check(&device, DType::F32, shape, axes, &OPS);
        }
    }
}

#[test]
fn every_dtype_is_reduced() {
    for (number, device) in devices().iter().enumerate() {
        for dtype in DType::NARROW {
            let shape: &[usize] = if number == 0 { &[5, 2048] } else { &[7, 30] };
            check(device, dtype, shape, &[1], &[Reduce::Sum, Reduce::Max]);
        }
        for dtype in [DType::I32, DType::U32] {
            check(device, dtype, &[5, 333], &[1], &OPS);
        }
    }
}

/// NaN propagates from any position, argmax and argmin return the first index, and zeros of both signs are equal.
#[test]
fn extremes_propagate_nan_and_places_are_the_first() {
    let rows: [[f64; 5]; 7] = [
        [1.0, f64::NAN, 3.0, f64::NAN, 2.0],
        [f64::NEG_INFINITY; 5],
        [f64::INFINITY; 5],
        [-0.0, 0.0, -0.0, 0.0, 0.0],
        [2.0, 7.0, -7.0, 7.0, -7.0],
        [-3.0, -2.0, -2.5, -3.0, -2.0],
        [f64::NAN; 5],
    ];
    for device in devices() {
        // A row of five for each way to divide the work: alone, and repeated until a row fills a workgroup.
        for repeats in [1usize, 20, 400] {
            let values: Vec<f64> = rows.iter().flat_map(|row| row.repeat(repeats)).collect();
            let length = 5 * repeats;
            let layout = Layout::contiguous(Shape::from((rows.len(), length)));
            let operand = encode(DType::F32, &values);
            for op in [Reduce::Max, Reduce::Min, Reduce::ArgMax, Reduce::ArgMin] {
                let found = run(&device, &kernel(op, DType::F32, &layout, 1), std::slice::from_ref(&operand), &[]);
                for (row, &found) in found.iter().enumerate() {
                    let expected = reduced(op, Class::Float, &values[row * length..(row + 1) * length]);
                    let is_same = found == expected || (found.is_nan() && expected.is_nan());
                    assert!(is_same, "{op:?} row {row} of {length}: expected {expected}, found {found}");
                }
            }
        }
    }
}

/// A prologue and an epilogue with their own operands are fused with a reduction.
#[test]
fn prologue_and_epilogue_are_fused_with_a_reduction() {
    let (rows, columns) = (6, 50);
    let space = Shape::from((rows, columns));
    let bias = Layout::contiguous(Shape::from(columns)).broadcast_to(&space);
    let mut input = sum_of(&space, DType::F32, &[Layout::contiguous(space.clone()), bias]);
    input.operands[1] = Operand { dtype: DType::F16, ..input.operands[1].clone() };
    let op = |name: &str, args: [usize; 2]| {
        let args = args.into_iter().collect();
        Instruction::Op { op: op::by_name(name).unwrap(), class: Class::Float, args }
    };
    let number = Instruction::Cast { arg: 4, from: Class::Uint, to: DType::F32 };
    let epilogue = vec![
        Instruction::Core { class: Class::Float },
        Instruction::Load { operand: 0 },
        op("mul", [0, 1]),
        Instruction::Scalar { scalar: 0, class: Class::Float },
        Instruction::Iota,
        number,
        op("add", [2, 3]),
        op("add", [6, 5]),
    ];
    let shape = Shape::from(rows);
    let epilogue: Body = body(&shape, DType::BF16, &[Layout::strided(shape.clone(), &[-1], rows - 1)], epilogue);
    let core = Core::Reduce { op: Reduce::Sum, input, kept: 1 };
    let output = TensorType { shape, dtype: DType::F32 };
    let kernel = Kernel { name: "scaled_sum".to_string(), core, body: epilogue, output };
    let x: Vec<f64> = (0..rows * columns).map(|index| (index % 11) as f64).collect();
    let bias: Vec<f64> = (0..columns).map(|index| (index % 3) as f64).collect();
    let scale: Vec<f64> = (0..rows).map(|index| index as f64 + 0.5).collect();
    let operands = [encode(DType::F32, &x), encode(DType::F16, &bias), encode(DType::BF16, &scale)];
    let expected: Vec<f64> = (0..rows)
        .map(|row| {
            let sum: f64 = (0..columns).map(|column| x[row * columns + column] + bias[column]).sum();
            sum * scale[rows - 1 - row] + 100.0 + row as f64
        })
        .collect();
    for device in devices() {
        assert_eq!(run(&device, &kernel, &operands, &[100f32.to_bits()]), expected);
    }
}
