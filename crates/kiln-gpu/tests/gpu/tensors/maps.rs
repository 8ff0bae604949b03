//! Elementwise kernels over every dtype, layout, rank and size.

use super::{body, devices, encode, gathered, map, operand_values, run, sum_of};
use crate::support;
use kiln_device::{Device, DeviceKind};
use kiln_gpu::GpuOptions;
use kiln_ir::kernel::{Instruction, Kernel};
use kiln_ir::{Class, DType, Layout, Shape, op};

/// Returns views of a shape: contiguous, offset, transposed, reversed, broadcast, strided, and of one element.
fn views(shape: &Shape, offset: usize) -> Vec<Vec<Layout>> {
    let rank = shape.rank();
    let rows = Layout::contiguous(shape.clone());
    let with_offset = Layout::strided(shape.clone(), rows.strides(), offset);
    let axes: Vec<usize> = (0..rank).rev().collect();
    let turned = Layout::contiguous(axes.iter().map(|&axis| shape[axis]).collect()).permuted(&axes);
    let backwards =
        (0..rank).fold(rows.clone(), |view, axis| view.sliced(axis, shape[axis].saturating_sub(1), shape[axis], -1));
    let spread = |axis: Option<usize>| {
        let kept = (0..rank).map(|other| if Some(other) == axis { shape[other] } else { 1 });
        Layout::contiguous(kept.collect()).broadcast_to(shape)
    };
    let wide = Layout::contiguous(shape.iter().map(|length| length * 3).collect());
    let stepped = (0..rank).fold(wide, |view, axis| view.sliced(axis, usize::from(shape[axis] > 0), shape[axis], 2));
    vec![
        vec![rows, with_offset, spread(rank.checked_sub(1)), spread(None)],
        vec![turned, spread(Some(0).filter(|_| rank > 0)), backwards, stepped],
    ]
}

fn check(device: &Device, dtype: DType, shape: &Shape, offset: usize) {
    for layouts in views(shape, offset) {
        let values: Vec<Vec<f64>> =
            layouts.iter().enumerate().map(|(seed, layout)| operand_values(layout, seed)).collect();
        let mut expected = vec![0.0; shape.elem_count()];
        for (layout, values) in layouts.iter().zip(&values) {
            for (sum, value) in expected.iter_mut().zip(gathered(layout, values)) {
                *sum += value;
            }
        }
        let operands: Vec<Vec<u8>> = values.iter().map(|values| encode(dtype, values)).collect();
        let kernel = map(sum_of(shape, dtype, &layouts), dtype);
        assert_eq!(run(device, &kernel, &operands, &[]), expected, "{dtype} {shape} {offset} {layouts:?}");
    }
}

/// Sizes around groups of four, words and workgroups. The sums are small integers, exact in every dtype.
#[test]
fn every_dtype_layout_rank_and_size_adds_up() {
    let shapes: [&[usize]; 20] = [
        &[],
        &[1],
        &[0],
        &[3],
        &[4],
        &[5],
        &[63],
        &[64],
        &[65],
        &[255],
        &[256],
        &[1027],
        &[3, 4],
        &[5, 7],
        &[3, 0, 2],
        &[2, 3, 4],
        &[3, 1, 5],
        &[2, 3, 2, 5],
        &[2, 1, 3, 2, 4],
        &[2, 3, 1, 2, 2, 3],
    ];
    for (number, shape) in shapes.iter().enumerate() {
        let offset = 1 + number % 5;
        for (number, device) in devices().iter().enumerate() {
            // Compilation for a GPU dominates the time. The devices differ in `f16`.
            let dtypes: &[DType] = match (number, offset) {
                _ if device.info().kind == DeviceKind::Cpu => &DType::NARROW[..7],
                (0, 2) => &DType::NARROW[..7],
                (0, _) => &[DType::F32],
                _ => &[DType::F16],
            };
            for &dtype in dtypes {
                check(device, dtype, &Shape::new(shape), offset);
            }
        }
    }
}

/// More workgroups than a device accepts along an axis, in the smallest dtype.
#[test]
fn a_large_map_computes_every_element() {
    // One device of each kind.
    for device in devices().into_iter().step_by(2) {
        let shape = Shape::from(65_535 * 256 + 5);
        let layout = Layout::contiguous(shape.clone());
        let kernel = map(sum_of(&shape, DType::U8, &[layout.clone(), layout]), DType::U8);
        let values: Vec<u8> = (0..shape.elem_count().next_multiple_of(16)).map(|index| (index % 127) as u8).collect();
        let found = run(&device, &kernel, &[values.clone(), values.clone()], &[]);
        assert!(found.iter().zip(&values).all(|(found, value)| *found == 2.0 * f64::from(*value)));
    }
}

fn scalar_kernel(shape: &Shape) -> Kernel {
    let multiply =
        Instruction::Op { op: op::by_name("mul").unwrap(), class: Class::Float, args: [0, 1].into_iter().collect() };
    let add =
        Instruction::Op { op: op::by_name("add").unwrap(), class: Class::Float, args: [2, 4].into_iter().collect() };
    let instructions = vec![
        Instruction::Load { operand: 0 },
        Instruction::Scalar { scalar: 1, class: Class::Float },
        multiply,
        Instruction::Iota,
        Instruction::Cast { arg: 3, from: Class::Uint, to: DType::F32 },
        add,
    ];
    map(body(shape, DType::F32, &[Layout::contiguous(shape.clone())], instructions), DType::F32)
}

/// Scalars and lengths are passed to the run; the kernel is compiled once for all of them.
#[test]
fn scalars_and_lengths_come_with_the_run() {
    // A separate device, because its compiles are counted.
    if let Some(device) = support::open(GpuOptions::new()) {
        let values = |length: usize| (0..length).map(|index| index as f64).collect::<Vec<_>>();
        let check = |length: usize, scale: f32| {
            let kernel = scalar_kernel(&Shape::from(length));
            let operand = encode(DType::F32, &values(length));
            let found = run(&device, &kernel, &[operand], &[7f32.to_bits(), scale.to_bits()]);
            let expected: Vec<f64> = values(length).iter().map(|value| value * f64::from(scale) + value).collect();
            assert_eq!(found, expected, "{length} {scale}");
        };
        check(10, 2.0);
        let compiled = device.kernel_cache_stats().compiles;
        check(10, -3.5);
        check(333, 0.25);
        assert_eq!(device.kernel_cache_stats().compiles, compiled);
    }
}
