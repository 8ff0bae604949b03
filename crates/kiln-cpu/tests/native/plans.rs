//! Whole plans of the planner: several steps, slots, outputs.

use crate::support::{Random, Tensor, devices, from_bytes, run_plan};
use kiln_ir::graph::{Op, OpGraph, OpNode, Reduce, TensorType, View};
use kiln_ir::plan::{Place, Plan, Target};
use kiln_ir::{DType, Layout, Shape, op};
use smallvec::{SmallVec, smallvec};

fn node(op: Op, inputs: &[usize], shape: (usize, usize)) -> OpNode {
    let ty = TensorType { shape: Shape::from(shape), dtype: DType::F32 };
    OpNode { op, inputs: SmallVec::from_slice(inputs), ty }
}

/// `y = relu(a * s - mean(a, 1))`, then the sums of its columns: two reductions and a map between them, which also has to
/// be kept.
fn graph(rows: usize, columns: usize) -> OpGraph {
    let shape = (rows, columns);
    let nodes = vec![
        node(Op::Input(Layout::contiguous(Shape::from(shape)).into()), &[], shape),
        node(Op::Reduce(Reduce::Mean, smallvec![1]), &[0], (rows, 1)),
        node(Op::View(View::Broadcast), &[1], shape),
        node(Op::Scalar, &[], shape),
        node(Op::Element(&op::MUL), &[0, 3], shape),
        node(Op::Element(&op::SUB), &[4, 2], shape),
        node(Op::Element(&op::RELU), &[5], shape),
        node(Op::Reduce(Reduce::Sum, smallvec![0]), &[6], (1, columns)),
    ];
    OpGraph { nodes, outputs: vec![6, 7], held: Vec::new() }
}

/// Fused and unfused results are equal on every device, and match the formula.
#[test]
fn fused_and_unfused_plans_agree_with_the_formula() {
    let mut random = Random(31);
    for (rows, columns) in [(1, 1), (4, 6), (300, 200), (1000, 301)] {
        let input = Tensor::random(DType::F32, Layout::contiguous(Shape::from((rows, columns))), &mut random);
        let numbers = input.numbers();
        let y = |r: usize, c: usize| {
            let mean: f64 = numbers[r * columns..(r + 1) * columns].iter().sum::<f64>() / columns as f64;
            (numbers[r * columns + c] * 3.0 - mean).max(0.0)
        };
        let sums: Vec<f64> = (0..columns).map(|c| (0..rows).map(|r| y(r, c)).sum()).collect();
        for target in [Target::CPU, Target::CPU.unfused()] {
            let plan = Plan::new(&graph(rows, columns), &target).unwrap();
            assert_eq!(plan.values.iter().filter(|value| value.place == Place::Dedicated).count(), 2);
            assert!(rows == 1 || !plan.slots.is_empty(), "a value between two steps has a slot");
            for (name, device) in devices() {
                let found = run_plan(device, plan.clone(), std::slice::from_ref(&input), &[3.0f32.to_bits()]).unwrap();
                let [kept, summed] = [0, 1].map(|output| from_bytes(DType::F32, &found[output]));
                for r in 0..rows {
                    for c in 0..columns {
                        let (found, expected) = (kept[r * columns + c], y(r, c));
                        assert!((found - expected).abs() < 1e-5, "{name}: ({r}, {c}) {found} and not {expected}");
                    }
                }
                for (found, expected) in summed.iter().zip(&sums) {
                    assert!((found - expected).abs() <= 1e-5 * rows as f64, "{name}: {found} and not {expected}");
                }
            }
        }
    }
}
