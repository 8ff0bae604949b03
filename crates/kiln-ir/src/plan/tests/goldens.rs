//! Golden files: the kernels of typical graphs.

use super::build::{Build, Matmul, Roll};
use crate::graph::{OpGraph, Reduce};
use crate::op::{ADD, DIV, EXP, MAXIMUM, MUL, RELU, SQRT, SUB};
use crate::plan::{Plan, Target};
use crate::{DType, Layout, Shape};

fn explain(graph: &OpGraph, target: &Target) -> String {
    Plan::new(graph, target).unwrap().explain().to_string()
}

/// A chain of elementwise ops, with broadcasting, is one kernel with no intermediate buffer.
#[test]
fn chain_with_broadcast() {
    let mut build = Build::default();
    let (x, row, column) =
        (build.input((64, 32), DType::F32), build.input(32, DType::F32), build.input((64, 1), DType::F32));
    let scaled = build.element(&MUL, &[x, row]);
    let moved = build.element(&ADD, &[scaled, column]);
    let one = build.scalar_like(moved);
    let more = build.element(&SUB, &[moved, one]);
    let exp = build.element(&EXP, &[more]);
    let relu = build.element(&RELU, &[exp]);
    insta::assert_snapshot!(explain(&build.outputs(&[relu]), &Target::CPU));
}

/// A reduction fuses its elementwise input: `relu(a * b + 1).sum(1)`.
#[test]
fn map_and_reduce() {
    let mut build = Build::default();
    let (a, b) = (build.input((64, 32), DType::F32), build.input((64, 32), DType::F32));
    let product = build.element(&MUL, &[a, b]);
    let one = build.scalar_like(product);
    let sum = build.element(&ADD, &[product, one]);
    let relu = build.element(&RELU, &[sum]);
    let rows = build.reduce(Reduce::Sum, relu, &[1]);
    let squeezed = build.reshape(rows, 64);
    insta::assert_snapshot!(explain(&build.outputs(&[squeezed]), &Target::CPU));
}

/// The column means of half floats: one kernel on the CPU; on a GPU that packs halves, one kernel that stores `f32`
/// and one that packs.
#[test]
fn mean_of_columns() {
    let mut build = Build::default();
    let x = build.input((64, 32), DType::F16);
    let mean = build.reduce(Reduce::Mean, x, &[0]);
    let graph = build.outputs(&[mean]);
    let texts = [Target::CPU, Target::gpu(8, true), Target::gpu(8, false)].map(|target| explain(&graph, &target));
    assert_eq!(texts[0], texts[1]);
    insta::assert_snapshot!(texts[1..].join("\n\n"));
}

/// A prologue and an epilogue of a reduction, with the axis squeezed in between.
#[test]
fn norm_of_rows() {
    let mut build = Build::default();
    let x = build.input((4, 8, 16), DType::F32);
    let squares = build.element(&MUL, &[x, x]);
    let sums = build.reduce(Reduce::Sum, squares, &[1]);
    let squeezed = build.reshape(sums, (4, 16));
    let norms = build.element(&SQRT, &[squeezed]);
    insta::assert_snapshot!(explain(&build.outputs(&[norms]), &Target::CPU));
}

/// Matmul fuses bias, activation and residual as an epilogue.
#[test]
fn matmul_with_epilogue() {
    let mut build = Build::default();
    let (x, w) = (build.input((32, 64), DType::F32), build.input((16, 64), DType::F32));
    let (bias, residual) = (build.input(16, DType::F32), build.input((32, 16), DType::F32));
    let transposed = build.permute(w, &[1, 0]);
    let product = build.kernel(Matmul, &[x, transposed]);
    let biased = build.element(&ADD, &[product, bias]);
    // The gate uses the sum twice.
    let exp = build.element(&EXP, &[biased]);
    let gated = build.element(&MUL, &[exp, biased]);
    let sum = build.element(&ADD, &[gated, residual]);
    insta::assert_snapshot!(explain(&build.outputs(&[sum]), &Target::CPU));
}

/// Operands of a hand-written kernel are stored, and copied if it does not accept the layout. Its result is
/// stored if it has no epilogue.
#[test]
fn operands_of_kernels() {
    let mut build = Build::default();
    let x = build.input((8, 8), DType::F32);
    let exp = build.element(&EXP, &[x]);
    let every_other = Layout::strided(Shape::from((8, 8)), &[16, 2], 0);
    let stepped = build.laid_out(every_other, DType::F32);
    let product = build.kernel(Matmul, &[exp, stepped]);
    let rolled = build.kernel(Roll, &[product]);
    let relu = build.element(&RELU, &[rolled]);
    insta::assert_snapshot!(explain(&build.outputs(&[relu]), &Target::CPU));
}

/// Softmax by hand: a node used by two kernels is stored once.
#[test]
fn node_of_two_kernels() {
    let mut build = Build::default();
    let x = build.input((16, 32), DType::F32);
    let largest = build.reduce(Reduce::Max, x, &[1]);
    let moved = build.element(&SUB, &[x, largest]);
    let exp = build.element(&EXP, &[moved]);
    let sum = build.reduce(Reduce::Sum, exp, &[1]);
    let shares = build.element(&DIV, &[exp, sum]);
    insta::assert_snapshot!(explain(&build.outputs(&[shares]), &Target::CPU));
}

#[test]
fn output_that_is_used() {
    let mut build = Build::default();
    let x = build.input(100, DType::F32);
    let exp = build.element(&EXP, &[x]);
    let relu = build.element(&RELU, &[exp]);
    insta::assert_snapshot!(explain(&build.outputs(&[exp, relu, exp]), &Target::CPU));
}

/// A permuted and sliced input is read in place; an output that is a view of an input needs no kernel.
#[test]
fn permuted_input() {
    let mut build = Build::default();
    let x = build.input((8, 4, 6), DType::F32);
    let permuted = build.permute(x, &[2, 0, 1]);
    let sliced = build.slice(permuted, 0, 5, 3, -2);
    let exp = build.element(&EXP, &[sliced]);
    insta::assert_snapshot!(explain(&build.outputs(&[exp, permuted]), &Target::CPU));
}

#[test]
fn reshape_that_is_no_view() {
    let mut build = Build::default();
    let (x, y) = (build.input((4, 6), DType::F32), build.input((6, 4), DType::F32));
    let transposed = build.permute(x, &[1, 0]);
    let sum = build.element(&ADD, &[transposed, y]);
    let flat = build.reshape(sum, 24);
    let exp = build.element(&EXP, &[flat]);
    insta::assert_snapshot!(explain(&build.outputs(&[exp]), &Target::CPU));
}

/// An expensive op is not recomputed for each copy of a broadcast; a cheap one is.
#[test]
fn costly_op_below_a_broadcast() {
    let mut build = Build::default();
    let (row, x) = (build.input(32, DType::F32), build.input((64, 32), DType::F32));
    let cheap = build.element(&RELU, &[row]);
    let costly = build.element(&EXP, &[row]);
    let product = build.element(&MUL, &[x, cheap]);
    let sum = build.element(&ADD, &[product, costly]);
    insta::assert_snapshot!(explain(&build.outputs(&[sum]), &Target::CPU));
}

/// 8-bit arithmetic wraps after each op that can leave the range.
#[test]
fn bytes() {
    let mut build = Build::default();
    let (a, b) = (build.input(64, DType::U8), build.input(64, DType::U8));
    let sum = build.element(&ADD, &[a, b]);
    let largest = build.element(&MAXIMUM, &[sum, a]);
    let total = build.reduce(Reduce::Sum, largest, &[0]);
    insta::assert_snapshot!(explain(&build.outputs(&[total]), &Target::gpu(8, true)));
}

/// Sums of more tensors than a kernel may read, and a chain longer than a program may be.
#[test]
fn limits() {
    let mut build = Build::default();
    let inputs: Vec<_> = (0..9).map(|_| build.input(100, DType::F32)).collect();
    let sum = inputs.into_iter().reduce(|a, b| build.element(&ADD, &[a, b])).unwrap();
    let operands = explain(&build.outputs(&[sum]), &Target { max_operands: 4, ..Target::CPU });
    let mut build = Build::default();
    let mut x = build.input(100, DType::F32);
    for _ in 0..20 {
        x = build.element(&EXP, &[x]);
    }
    let instructions = explain(&build.outputs(&[x]), &Target { max_instructions: 8, ..Target::CPU });
    insta::assert_snapshot!(format!("{operands}\n\n{instructions}"));
}

/// Casts round where they appear in the graph, and nowhere else.
#[test]
fn casts() {
    let mut build = Build::default();
    let x = build.input(64, DType::F16);
    let wide = build.cast(x, DType::F32);
    let exp = build.element(&EXP, &[wide]);
    let narrow = build.cast(exp, DType::BF16);
    let relu = build.element(&RELU, &[narrow]);
    let whole = build.cast(relu, DType::I32);
    insta::assert_snapshot!(explain(&build.outputs(&[whole]), &Target::CPU));
}

/// Empty results need no kernel; the sum of no elements does.
#[test]
fn no_elements() {
    let mut build = Build::default();
    let x = build.input((0, 4), DType::F32);
    let exp = build.element(&EXP, &[x]);
    let sum = build.reduce(Reduce::Sum, exp, &[0]);
    insta::assert_snapshot!(explain(&build.outputs(&[exp, sum]), &Target::CPU));
}
