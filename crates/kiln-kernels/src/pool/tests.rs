//! Pooling against loops over the elements of a window.

use super::{Pool, PoolGradient, PoolOp};
use crate::offsets::checks::assert_valid;
use crate::rows::assert_close;
use crate::testing::{Numbers, Operand, Threads, run_direct, run_moved, run_stored};
use crate::window::Window;
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape};

fn window(size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> Window {
    Window { size, stride, padding, dilation }
}

fn cases() -> Vec<(Window, [usize; 4])> {
    let one = [1, 1];
    vec![
        (window([2, 2], [2, 2], [0, 0], one), [2, 3, 8, 10]),
        (window([3, 3], [2, 2], one, one), [1, 2, 9, 13]),
        (window([3, 2], one, [1, 0], one), [2, 1, 5, 70]),
        (window([2, 3], [3, 4], [1, 1], one), [1, 3, 11, 33]),
        (window([3, 3], [1, 2], one, [2, 3]), [1, 2, 12, 20]),
        (window(one, one, [0, 0], one), [1, 1, 1, 1]),
        (window([1, 5], [1, 5], [0, 2], one), [3, 2, 1, 101]),
        (window([2, 2], [2, 2], [0, 0], one), [0, 3, 4, 4]),
        (window([7, 7], [7, 7], [0, 0], one), [2, 40, 7, 7]),
    ]
}

/// Returns the indices of the image elements that a window covers, by signed coordinates.
fn covered(window: &Window, [height, width]: [usize; 2], position: [usize; 2]) -> Vec<usize> {
    let mut places = Vec::new();
    for row in 0..window.size[0] {
        for column in 0..window.size[1] {
            let at = |axis: usize, place: usize| {
                (position[axis] * window.stride[axis] + place * window.dilation[axis]) as isize
                    - window.padding[axis] as isize
            };
            let (y, x) = (at(0, row), at(1, column));
            if (0..height as isize).contains(&y) && (0..width as isize).contains(&x) {
                places.push(y as usize * width + x as usize);
            }
        }
    }
    places
}

/// Returns the result of a pool, or the gradient of the images if that of the result is given.
fn reference(pool: &Pool, sizes: [usize; 4], x: &[f64], slopes: Option<&[f64]>) -> Vec<f64> {
    let image = [sizes[2], sizes[3]];
    let [down, across] = pool.window.positions(image).unwrap();
    let (mut results, mut gradient) = (Vec::new(), vec![0.0; x.len()]);
    for plane in 0..sizes[0] * sizes[1] {
        let first = plane * image[0] * image[1];
        for position in 0..down * across {
            let places = covered(&pool.window, image, [position / across, position % across]);
            let slope = slopes.map_or(0.0, |slopes| slopes[results.len()]);
            results.push(match pool.op {
                PoolOp::Sum => {
                    places.iter().for_each(|place| gradient[first + place] += slope);
                    places.iter().map(|place| x[first + place]).sum()
                }
                PoolOp::Max => {
                    let mut best = places[0];
                    for &place in &places {
                        let (new, old) = (x[first + place], x[first + best]);
                        best = if new > old || (new.is_nan() && !old.is_nan()) { place } else { best };
                    }
                    gradient[first + best] += slope;
                    x[first + best]
                }
            });
        }
    }
    if slopes.is_some() { gradient } else { results }
}

/// Small integers with many duplicates: they and their sums are exact in every dtype.
fn numbers(seed: u64, dtype: DType, lengths: &[usize]) -> Operand {
    let mut numbers = Numbers::new(seed);
    let low = if matches!(dtype, DType::U32 | DType::U8) { 0.0 } else { 4.0 };
    Operand::new(dtype, Layout::contiguous(Shape::new(lengths)), || numbers.below(9) as f64 - low)
}

#[test]
fn pools_are_those_of_the_reference() {
    for (window, sizes) in cases() {
        for dtype in DType::NARROW {
            let x = numbers(1, dtype, &sizes);
            for threads in Threads::all() {
                let max = Pool { op: PoolOp::Max, window };
                let wanted = reference(&max, sizes, &x.values(), None);
                let found = run_moved(&max, std::slice::from_ref(&x), threads).unwrap();
                assert_eq!(found.values(wanted.len()), wanted, "{window:?} {sizes:?} {dtype}");
                if dtype.is_float() {
                    let sum = Pool { op: PoolOp::Sum, window };
                    let wanted = reference(&sum, sizes, &x.values(), None);
                    let found = run_stored(&sum, std::slice::from_ref(&x), threads);
                    assert_eq!(found.values(wanted.len()), wanted, "{window:?} {sizes:?} {dtype}");
                    let direct = run_direct(&sum, std::slice::from_ref(&x), threads);
                    assert_eq!(direct.bytes(), found.bytes());
                }
            }
        }
    }
}

#[test]
fn gradients_go_to_what_was_taken() {
    for (window, sizes) in cases() {
        let image = [sizes[2], sizes[3]];
        let [down, across] = window.positions(image).unwrap();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let (x, slopes) = (numbers(1, dtype, &sizes), numbers(2, dtype, &[sizes[0], sizes[1], down, across]));
            for op in [PoolOp::Max, PoolOp::Sum] {
                let pool = Pool { op, window };
                let wanted = reference(&pool, sizes, &x.values(), Some(&slopes.values()));
                let inputs = if op == PoolOp::Max { vec![slopes.clone(), x.clone()] } else { vec![slopes.clone()] };
                for threads in Threads::all() {
                    let found = run_stored(&PoolGradient { pool, image }, &inputs, threads);
                    assert_eq!(found.values(wanted.len()), wanted, "{pool:?} {sizes:?} {dtype}");
                }
            }
        }
    }
}

#[test]
fn poison_stays_in_its_windows() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let numbers = [1.0, nan, -inf, -inf, 2.0, inf, 3.0, 4.0, -inf, -inf, 0.0, nan, nan, 1.0, -inf, -inf];
    let mut next = numbers.into_iter().cycle();
    let sizes = [1, 2, 4, 8];
    let x = Operand::new(DType::F32, Layout::contiguous(Shape::from(sizes)), || next.next().unwrap());
    for (op, padding) in [(PoolOp::Max, [0, 0]), (PoolOp::Max, [1, 1]), (PoolOp::Sum, [0, 0])] {
        let pool = Pool { op, window: window([2, 2], [2, 2], padding, [1, 1]) };
        let wanted = reference(&pool, sizes, &x.values(), None);
        for threads in Threads::all() {
            let found = match op {
                PoolOp::Max => run_moved(&pool, std::slice::from_ref(&x), threads).unwrap(),
                PoolOp::Sum => run_stored(&pool, std::slice::from_ref(&x), threads),
            };
            assert_close(&found, &wanted, 0.0, 1.0, &format!("{pool:?} {threads:?}"));
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let ty = |lengths: &[usize], dtype| TensorType { shape: Shape::new(lengths), dtype };
    let pool = |op, padding| Pool { op, window: window([2, 2], [2, 2], padding, [1, 1]) };
    let max = pool(PoolOp::Max, [0, 0]);
    assert_eq!(max.infer(&[ty(&[2, 3, 5, 4], DType::U8)]).unwrap(), ty(&[2, 3, 2, 2], DType::U8));
    for (op, lengths, dtype, kind, part) in [
        (
            max,
            &[3, 5, 4][..],
            DType::F32,
            ErrorKind::ShapeMismatch,
            "max_pool expected (batch, channels, height, width), found f32 (3, 5, 4)",
        ),
        (max, &[1, 1, 1, 4], DType::F32, ErrorKind::ShapeMismatch, "at least its size"),
        (pool(PoolOp::Max, [1, 1]), &[1, 1, 0, 4], DType::F32, ErrorKind::ShapeMismatch, "at least one row"),
        (pool(PoolOp::Sum, [1, 1]), &[1, 1, 4, 0], DType::F32, ErrorKind::ShapeMismatch, "at least one row"),
        (pool(PoolOp::Max, [2, 0]), &[1, 1, 4, 4], DType::F32, ErrorKind::InvalidArgument, "half of the window"),
        (pool(PoolOp::Sum, [0, 0]), &[1, 1, 4, 4], DType::I32, ErrorKind::InvalidArgument, "sum_pool expected floats"),
    ] {
        let error = op.infer(&[ty(lengths, dtype)]).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{error}");
    }
    let gradient = PoolGradient { pool: max, image: [4, 4] };
    let given = [ty(&[1, 2, 2, 2], DType::F32), ty(&[1, 2, 4, 4], DType::F32)];
    assert_eq!(gradient.infer(&given).unwrap(), given[1]);
    assert!(gradient.infer(&given[..1]).is_err());
    assert!(gradient.infer(&[ty(&[1, 2, 2, 3], DType::F32), given[1].clone()]).is_err());
    assert_ne!(max.attributes(), pool(PoolOp::Sum, [0, 0]).attributes());
    assert_ne!(KernelOp::attributes(&gradient), PoolGradient { image: [4, 5], ..gradient }.attributes());
}

#[test]
fn the_text_is_valid() {
    let whole = |lengths: &[usize]| Layout::contiguous(Shape::new(lengths));
    let window = window([2, 2], [2, 2], [0, 0], [1, 1]);
    for dtype in DType::NARROW {
        assert_valid(&Pool { op: PoolOp::Max, window }, &[(dtype, whole(&[2, 3, 5, 4]))]);
        if dtype.is_float() {
            let sum = Pool { op: PoolOp::Sum, window };
            assert_valid(&sum, &[(dtype, whole(&[2, 3, 5, 4]))]);
            assert_valid(&PoolGradient { pool: sum, image: [5, 4] }, &[(dtype, whole(&[2, 3, 2, 2]))]);
            let max = PoolGradient { pool: Pool { op: PoolOp::Max, window }, image: [5, 4] };
            assert_valid(&max, &[(dtype, whole(&[2, 3, 2, 2])), (dtype, whole(&[2, 3, 5, 4]))]);
        }
    }
}
