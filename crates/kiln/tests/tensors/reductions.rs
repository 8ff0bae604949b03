//! Reductions against loops in `f64`, over dtypes, layouts, axes and lengths around the widths of vectors and workgroups.

use crate::data::{self, within};
use crate::devices::{self, Subject};
use kiln::ir::op::Tolerance;
use kiln::nn::AttentionOptions;
use kiln::{DType, Result, Tensor};
use kiln_testkit::{Array, Rng, View, layouts, rounded};

/// Lengths around the SIMD width, the workgroup size and the share of one thread.
const LENGTHS: [usize; 11] = [1, 3, 4, 5, 63, 64, 65, 255, 256, 257, 1025];

struct Reduction {
    name: &'static str,
    run: fn(&Tensor, &[usize]) -> Result<Tensor>,
    reference: fn(&[f64]) -> f64,
    /// Whether the result is rounded: then the tolerance follows from the magnitudes that were added.
    adds: bool,
    takes: fn(DType) -> bool,
}

fn place(row: &[f64], better: fn(f64, f64) -> bool) -> f64 {
    let first = |best: usize, at: usize| if better(row[at], row[best]) { at } else { best };
    (0..row.len()).reduce(first).expect("a row that is not empty") as f64
}

const REDUCTIONS: [Reduction; 6] = [
    Reduction {
        name: "sum",
        run: |x, axes| x.sum_keepdim(axes),
        reference: |row| row.iter().sum(),
        adds: true,
        takes: |_| true,
    },
    Reduction {
        name: "mean",
        run: |x, axes| x.mean_keepdim(axes),
        reference: |row| row.iter().sum::<f64>() / row.len() as f64,
        adds: true,
        takes: |dtype| dtype.is_float() || dtype == DType::F64,
    },
    Reduction {
        name: "max",
        run: |x, axes| x.max_keepdim(axes),
        reference: |row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        adds: false,
        takes: |_| true,
    },
    Reduction {
        name: "min",
        run: |x, axes| x.min_keepdim(axes),
        reference: |row| row.iter().copied().fold(f64::INFINITY, f64::min),
        adds: false,
        takes: |_| true,
    },
    Reduction {
        name: "argmax",
        run: |x, axes| x.argmax_keepdim(axes),
        reference: |row| place(row, |a, b| a > b),
        adds: false,
        takes: |_| true,
    },
    Reduction {
        name: "argmin",
        run: |x, axes| x.argmin_keepdim(axes),
        reference: |row| place(row, |a, b| a < b),
        adds: false,
        takes: |_| true,
    },
];

/// Numbers that the dtype can hold, with few distinct values so that there are ties.
fn numbers(rng: &mut Rng, shape: &[usize], dtype: DType) -> Array {
    Array::from_fn(shape, |_| match dtype {
        DType::U8 | DType::U32 => rng.below(9) as f64,
        DType::I8 | DType::I32 | DType::I64 => rng.below(19) as f64 - 9.0,
        DType::Bool => rng.below(2) as f64,
        _ => rounded((rng.uniform(-8.0, 8.0) * 16.0).round() / 16.0, dtype),
    })
}

fn check(subject: &Subject, reduction: &Reduction, array: &Array, x: &Tensor, axes: &[usize], layout: &str) {
    let dtype = x.dtype();
    // A sum of bytes rarely fits in a byte.
    let result = match dtype {
        _ if reduction.name.starts_with("arg") => DType::U32,
        DType::U8 | DType::Bool if reduction.adds => DType::U32,
        DType::I8 if reduction.adds => DType::I32,
        _ => dtype,
    };
    let wanted = array.reduce(axes, reduction.reference);
    let is_rounded = reduction.adds && (dtype.is_float() || dtype == DType::F64);
    let magnitudes = array.map(f64::abs).reduce(axes, reduction.reference);
    let largest = magnitudes.numbers().iter().copied().fold(0.0, f64::max);
    let rounding = within(1.0, 8.0 * f64::from(f32::EPSILON) * largest);
    let tolerance = if is_rounded { rounding } else { Tolerance::EXACT };
    let what = format!("{} of {layout} {dtype} {:?} over {axes:?} on {}", reduction.name, array.shape(), subject.name);
    let found = (reduction.run)(x, axes).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    data::check(&what, &found, result, &wanted, tolerance);
}

/// Every reduction of every dtype over rows and columns of every length. A GPU compiles no kernel for a new length.
#[test]
fn lengths_around_the_widths() {
    for subject in devices::all() {
        let mut rng = Rng::new(11);
        for length in LENGTHS {
            for dtype in DType::ALL.into_iter().filter(|dtype| !(dtype.is_wide() && subject.takes_wgsl)) {
                for reduction in REDUCTIONS.iter().filter(|reduction| (reduction.takes)(dtype)) {
                    for (shape, axis) in [([3, length], 1), ([length, 3], 0)] {
                        let array = numbers(&mut rng, &shape, dtype);
                        let x = data::tensor(&array, dtype, &subject.device);
                        check(subject, reduction, &array, &x, &[axis], "contiguous");
                    }
                }
            }
        }
    }
}

/// Every reduction over every set of axes of every layout.
#[test]
fn axes_and_layouts() {
    for subject in devices::all() {
        let mut rng = Rng::new(12);
        let sets: &[&[usize]] =
            if subject.takes_wgsl { &[&[1], &[0, 2]] } else { &[&[0], &[1], &[2], &[0, 2], &[1, 2], &[0, 1, 2]] };
        for dtype in if subject.takes_wgsl { &[DType::F32, DType::F16][..] } else { &DType::ALL[..] } {
            for reduction in REDUCTIONS.iter().filter(|reduction| (reduction.takes)(*dtype)) {
                let array = numbers(&mut rng, &[3, 5, 4], *dtype);
                for layout in layouts(&array) {
                    let x = data::placed(&layout, *dtype, &subject.device);
                    for axes in sets {
                        check(subject, reduction, &array, &x, axes, layout.name);
                    }
                }
            }
        }
    }
}

/// Ranks 0 to 6, lengths of 1, and empty tensors.
#[test]
fn ranks_and_empty_tensors() {
    for subject in devices::all() {
        let mut rng = Rng::new(13);
        for shape in [&[][..], &[1], &[4], &[1, 1], &[2, 3, 1], &[2, 1, 3, 2], &[1, 2, 2, 1, 3], &[2, 1, 2, 3, 1, 2]] {
            let array = numbers(&mut rng, shape, DType::F32);
            let x = data::tensor(&array, DType::F32, &subject.device);
            let all: Vec<usize> = (0..shape.len()).collect();
            for reduction in &REDUCTIONS {
                check(subject, reduction, &array, &x, &all, "contiguous");
                if let Some(last) = shape.len().checked_sub(1) {
                    check(subject, reduction, &array, &x, &[last], "contiguous");
                }
            }
        }
        let empty = Tensor::zeros((2, 0, 3), DType::F32, &subject.device).unwrap();
        assert_eq!(empty.sum(1).unwrap().to_vec::<f32>().unwrap(), [0.0; 6], "{}", subject.name);
        assert!(empty.mean(1).unwrap().to_vec::<f32>().unwrap().iter().all(|mean| mean.is_nan()));
        assert!(empty.max(2).unwrap().to_vec::<f32>().unwrap().is_empty());
        assert_eq!(empty.sum_all().unwrap().to_vec::<f32>().unwrap(), [0.0]);
    }
}

/// A NaN anywhere is the result, and its index that of the arg-reductions, also after an infinity.
#[test]
fn a_nan_is_never_lost() {
    for subject in devices::all() {
        for length in [5, 64, 257, 1025] {
            for place in [0, length / 2, length - 1] {
                let mut row = vec![1.0f32; length];
                row[0] = f32::INFINITY;
                row[place] = f32::NAN;
                let x = Tensor::from_slice(&row, (1, length), &subject.device).unwrap();
                let what = format!("NaN at {place} of {length} on {}", subject.name);
                for found in [x.sum(1), x.mean(1), x.max(1), x.min(1)] {
                    assert!(found.unwrap().to_vec::<f32>().unwrap()[0].is_nan(), "{what}");
                }
                for found in [x.argmax(1), x.argmin(1)] {
                    assert_eq!(found.unwrap().to_vec::<u32>().unwrap(), [place as u32], "{what}");
                }
            }
        }
    }
}

/// Softmax, norms and products against the reference, over lengths around the widths and over every layout.
#[test]
fn rows_and_products() {
    for subject in devices::all() {
        let mut rng = Rng::new(14);
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for length in LENGTHS {
                let array = numbers(&mut rng, &[2, length], dtype);
                check_rows(subject, dtype, &array, &data::tensor(&array, dtype, &subject.device), "contiguous");
            }
            let array = numbers(&mut rng, &[3, 7], dtype);
            for layout in layouts(&array) {
                check_rows(subject, dtype, &array, &data::placed(&layout, dtype, &subject.device), layout.name);
            }
            let sides = [[1, 1, 1], [3, 5, 4], [17, 63, 31], [64, 65, 33], [1, 257, 3], [65, 4, 129], [67, 17, 132]];
            for ([rows, inner, columns], batch) in sides.into_iter().zip([1, 1, 1, 1, 1, 1, 2]) {
                let (a, b) = (
                    numbers(&mut rng, &[batch, rows, inner], dtype),
                    numbers(&mut rng, &[batch, inner, columns], dtype),
                );
                let magnitude = a.map(f64::abs).matmul(&b.map(f64::abs)).numbers().iter().copied().fold(0.0, f64::max);
                let tensor = |array: &Array| data::tensor(array, dtype, &subject.device);
                let what =
                    format!("{batch} of ({rows}, {inner}) @ ({inner}, {columns}) of {dtype} on {}", subject.name);
                let found = tensor(&a).matmul(&tensor(&b)).unwrap();
                data::check(
                    &what,
                    &found,
                    dtype,
                    &a.matmul(&b),
                    within(1.0, 8.0 * f64::from(f32::EPSILON) * magnitude),
                );
            }
        }
    }
}

/// Attention over shapes around the blocks that a workgroup takes: 64 queries, 32 keys, 16 steps, 64 elements of a value.
#[test]
fn attention_around_the_blocks() {
    for subject in devices::all() {
        let mut rng = Rng::new(15);
        for ([queries, keys, steps, elements], causal, masked) in [
            ([65, 33, 17, 65], false, false),
            ([70, 100, 5, 130], true, false),
            ([130, 40, 33, 6], true, true),
            ([3, 70, 64, 64], false, true),
        ] {
            let dtype = if masked { DType::F32 } else { DType::F16 };
            let q = numbers(&mut rng, &[2, queries, steps], dtype);
            let k = numbers(&mut rng, &[2, keys, steps], dtype);
            let v = numbers(&mut rng, &[2, keys, elements], dtype);
            // Every query has a key that is not masked.
            let mask = Array::from_fn(&[2, queries, keys], |index| f64::from(index[2] == 0 || rng.below(3) > 0));
            let is_seen = |index: &[usize]| {
                let is_early = index[2] + queries <= index[1] + keys;
                (!causal || is_early) && (!masked || mask.at(index) != 0.0)
            };
            let scores = q.matmul(&k.view(&View::Transpose(1, 2)));
            let seen = Array::from_fn(scores.shape(), |index| if is_seen(index) { 0.0 } else { -1e9 });
            // Scaled so that attention weights differ, but no key dominates.
            let scale = 0.02;
            let shares = scores.map(|score| score * scale).zip(&seen, |score, seen| score + seen).softmax(2, false);
            // A query with all keys masked has results of 0.
            let any = seen.reduce(&[2], |row| f64::from(row.contains(&0.0)));
            let wanted = shares.zip(&any, |share, any| share * any).matmul(&v);
            let tensor = |array: &Array, dtype| data::tensor(array, dtype, &subject.device);
            let mask = tensor(&mask, DType::U8);
            let mut options = AttentionOptions::new().scale(scale as f32);
            options = if causal { options.causal() } else { options };
            options = if masked { options.mask(&mask) } else { options };
            let found = Tensor::attention(&tensor(&q, dtype), &tensor(&k, dtype), &tensor(&v, dtype), options).unwrap();
            let what = format!("attention {queries} {keys} {steps} {elements} of {dtype} on {}", subject.name);
            data::check(&what, &found, dtype, &wanted, within(1.0, 1e-4));
        }
    }
}

fn check_rows(subject: &Subject, dtype: DType, array: &Array, x: &Tensor, layout: &str) {
    let what = |op: &str| format!("{op} of {layout} {dtype} {:?} on {}", array.shape(), subject.name);
    data::check(&what("softmax"), &x.softmax(1).unwrap(), dtype, &array.softmax(1, false), within(1.0, 2e-6));
    data::check(&what("log_softmax"), &x.log_softmax(1).unwrap(), dtype, &array.softmax(1, true), within(1.0, 2e-5));
    let mean = array.reduce(&[1], |row| row.iter().sum::<f64>() / row.len() as f64);
    let centred = array.zip(&mean, |x, mean| x - mean);
    let square = |array: &Array| array.reduce(&[1], |row| row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64);
    let normed = |array: &Array| array.zip(&square(array), |x, square| x / (square + 1e-3).sqrt());
    data::check(
        &what("layer_norm"),
        &x.layer_norm(None, None, 1e-3).unwrap(),
        dtype,
        &normed(&centred),
        within(1.0, 4e-5),
    );
    data::check(&what("rms_norm"), &x.rms_norm(None, 1e-3).unwrap(), dtype, &normed(array), within(1.0, 4e-6));
}
