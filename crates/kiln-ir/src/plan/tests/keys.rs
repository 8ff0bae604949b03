//! Keys of plans.

use super::build::Build;
use super::random::{Random, graph};
use crate::graph::{OpGraph, Reduce};
use crate::op::{ADD, EXP, RELU};
use crate::plan::{key, structure};
use crate::{DType, Layout, Shape};

fn rows(op: &'static crate::op::ElementOp, layout: Layout, dtype: DType, axis: usize, start: usize) -> OpGraph {
    let mut build = Build::default();
    let x = build.laid_out(layout, dtype);
    let (scalar, length) = (build.scalar_like(x), build.shape(x)[0]);
    let sum = build.element(&ADD, &[x, scalar]);
    let mapped = build.element(op, &[sum]);
    let part = build.slice(mapped, 0, start, length - start, 1);
    let reduced = build.reduce(Reduce::Sum, part, &[axis]);
    build.outputs(&[reduced])
}

/// Everything that a plan depends on changes the key; lengths and strides do not change the structure.
#[test]
fn keys_differ_where_plans_do() {
    let plain = |m: usize, n: usize| Layout::contiguous(Shape::from((m, n)));
    let base = rows(&EXP, plain(4, 6), DType::F32, 1, 0);
    assert_eq!(key(&base), key(&rows(&EXP, plain(4, 6), DType::F32, 1, 0)));
    let permuted = plain(6, 4).permuted(&[1, 0]);
    let offset = Layout::strided(Shape::from((4, 6)), &[6, 1], 3);
    let others = [
        (rows(&EXP, plain(4, 7), DType::F32, 1, 0), true),
        (rows(&EXP, permuted, DType::F32, 1, 0), true),
        (rows(&EXP, offset, DType::F32, 1, 0), true),
        (rows(&EXP, plain(4, 6), DType::F32, 1, 1), true),
        (rows(&RELU, plain(4, 6), DType::F32, 1, 0), false),
        (rows(&EXP, plain(4, 6), DType::F16, 1, 0), false),
        (rows(&EXP, plain(4, 6), DType::F32, 0, 0), false),
    ];
    for (index, (other, has_same_structure)) in others.iter().enumerate() {
        assert_ne!(key(&base), key(other), "{index}");
        assert_eq!(structure(&base) == structure(other), *has_same_structure, "{index}");
    }
    let mut two = base.clone();
    two.outputs.push(0);
    assert_ne!(key(&base), key(&two));
    assert_ne!(structure(&base), structure(&two));
}

/// Keys of random graphs are equal exactly if the graphs print the same.
#[test]
fn keys_of_random_graphs_are_exact() {
    let graphs: Vec<OpGraph> = (0..400).map(|seed| graph(&mut Random(seed % 350))).collect();
    let (keys, texts): (Vec<_>, Vec<_>) = graphs.iter().map(|graph| (key(graph), format!("{graph:?}"))).unzip();
    for a in 0..graphs.len() {
        for b in 0..a {
            assert_eq!(keys[a] == keys[b], texts[a] == texts[b], "{a} {b}");
        }
    }
}
