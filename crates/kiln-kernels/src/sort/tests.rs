//! Argsort and selections against a stable comparison sort.

use super::{Argsort, Merge, Sort};
use crate::offsets::checks::{assert_valid, rendered};
use crate::testing::{Memory, Numbers, Operand, Threads, run_moved};
use kiln_ir::graph::TensorType;
use kiln_ir::wgsl::WgslFeatures;
use kiln_ir::{DType, KernelOp, Layout, Shape, SimdLevel};
use std::cmp::Ordering;

/// Compares numbers. NaN is larger than every number and equals every NaN.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Returns the first `count` indices of each row in order.
fn reference(values: &[f64], length: usize, descending: bool, count: usize) -> Vec<f64> {
    let row = |row: &[f64]| {
        let mut places: Vec<usize> = (0..row.len()).collect();
        places.sort_by(|&a, &b| if descending { compare(row[b], row[a]) } else { compare(row[a], row[b]) });
        places.into_iter().take(count).map(|place| place as f64).collect::<Vec<_>>()
    };
    values.chunks(length.max(1)).flat_map(row).collect()
}

/// Numbers with duplicates, of both signs if the dtype has them; floats also with both zeros, infinities and NaN.
fn operand(dtype: DType, lengths: &[usize], seed: u64) -> Operand {
    let mut numbers = Numbers::new(seed);
    Operand::new(dtype, Layout::contiguous(Shape::new(lengths)), || match dtype {
        DType::I32 => (numbers.next() as i32 >> (numbers.below(4) * 8)) as f64,
        DType::U32 => f64::from(numbers.next() as u32 >> (numbers.below(4) * 8)),
        DType::U8 => numbers.below(256) as f64,
        _ => match numbers.below(24) {
            0 => 0.0,
            1 => -0.0,
            2 => f64::NAN,
            3 => -f64::NAN,
            4 => f64::INFINITY,
            5 => f64::NEG_INFINITY,
            6..=9 => numbers.below(5) as f64 - 2.0,
            10 => numbers.unit() * 1e-40,
            _ => numbers.unit() * 1e3,
        },
    })
}

fn check(op: Argsort, x: &Operand, threads: Threads) -> Memory {
    let length = x.layout.shape().last().copied().unwrap();
    if op.count.is_none() {
        check_values(x, op.descending, threads);
    }
    let wanted = reference(&x.values(), length, op.descending, op.count.unwrap_or(length));
    let found = run_moved(&op, std::slice::from_ref(x), threads).unwrap();
    let is_same = found.values(wanted.len()) == wanted;
    assert!(is_same, "{op:?} {:?} {threads:?}", x.ty());
    found
}

/// Checks the elements against those that the indices of the reference select.
fn check_values(x: &Operand, descending: bool, threads: Threads) {
    let (length, values) = (x.layout.shape().last().copied().unwrap(), x.values());
    let places = reference(&values, length, descending, length);
    let wanted = places.iter().enumerate().map(|(at, &place)| values[at / length * length + place as usize]);
    let found = run_moved(&Sort { descending }, std::slice::from_ref(x), threads).unwrap();
    for (at, wanted) in wanted.enumerate() {
        assert!(compare(found.get(at), wanted).is_eq(), "{at} of {:?} {threads:?}", x.ty());
    }
}

#[test]
fn every_dtype_and_length() {
    for (dtype, descending) in DType::NARROW.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        for length in [0, 1, 2, 3, 95, 96, 97, 300, 5000] {
            let x = operand(dtype, &[3, length], length as u64);
            for threads in Threads::all() {
                check(Argsort::new(descending), &x, threads);
                for count in [0, 1, 2, 30, 40, 700, length / 2, length] {
                    let count = Some(count.min(length));
                    check(Argsort { count, ..Argsort::new(descending) }, &x, threads);
                }
            }
        }
    }
}

#[test]
fn values_of_rows_around_the_sizes_of_a_network() {
    let lengths = (1..=34).chain([63, 64, 65, 127, 128, 129, 255, 257, 1023, 1024, 1025, 4097, 8191, 8192, 8193]);
    for (dtype, length) in
        DType::NARROW.into_iter().flat_map(|dtype| lengths.clone().map(move |length| (dtype, length)))
    {
        let x = operand(dtype, &[3, length], length as u64 + 7);
        for (threads, descending) in Threads::all().into_iter().flat_map(|threads| [(threads, false), (threads, true)])
        {
            check_values(&x, descending, threads);
        }
    }
}

#[test]
fn long_rows_and_many_rows() {
    for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
        for lengths in [[1, 40_000], [3, 33_000], [700, 130]] {
            let x = operand(dtype, &lengths, 5);
            for count in [1, 3, 8] {
                let threads = Threads { count, simd: SimdLevel::detect() };
                check(Argsort::new(true), &x, threads);
                check(Argsort { count: Some(10), ..Argsort::new(false) }, &x, threads);
                check(Argsort { count: Some(lengths[1] / 2), ..Argsort::new(true) }, &x, threads);
            }
        }
    }
    // Too many codes with the same upper bits for a bucket that a network sorts, with different lower bits.
    let mut numbers = Numbers::new(11);
    for (dtype, largest) in
        [(DType::I32, f64::from(i32::MAX)), (DType::U32, 4e9), (DType::F32, 3e38), (DType::BF16, 1e38)]
    {
        let x = Operand::new(dtype, Layout::contiguous(Shape::from((1, 30_000))), || match numbers.below(10_000) {
            0 => largest,
            number => number as f64 % 5000.0,
        });
        for (threads, descending) in Threads::all().into_iter().flat_map(|threads| [(threads, false), (threads, true)])
        {
            check(Argsort::new(descending), &x, threads);
        }
    }
    // All equal, in order, and reversed: the indices are the identity, or reversed.
    let mut next = 0.0;
    for (step, descending) in [(0.0, true), (1.0, false), (-1.0, false)] {
        let x = Operand::new(DType::F32, Layout::contiguous(Shape::from((1, 50_000))), || {
            next += step;
            next
        });
        for threads in Threads::all() {
            check(Argsort::new(descending), &x, threads);
            check(Argsort { count: Some(100), ..Argsort::new(descending) }, &x, threads);
        }
    }
}

#[test]
fn invalid_counts_and_shapes_are_errors() {
    let ty = |lengths: &[usize], dtype| TensorType { shape: Shape::new(lengths), dtype };
    let topk = |count| Argsort { count: Some(count), ..Argsort::new(true) };
    assert_eq!(topk(2).infer(&[ty(&[4, 3], DType::F16)]).unwrap(), ty(&[4, 2], DType::U32));
    let error = topk(4).infer(&[ty(&[4, 3], DType::F16)]).unwrap_err();
    assert_eq!(error.to_string(), "topk expected at most 3 indices of a row, found 4 of f16 (4, 3)");
    let error = Argsort::new(false).infer(&[ty(&[], DType::F32)]).unwrap_err();
    assert_eq!(error.to_string(), "argsort expected at least one axis, found f32 ()");
    let merge = Merge { descending: false, run: 4 };
    assert!(merge.infer(&[ty(&[9], DType::F32), ty(&[9], DType::U32)]).is_ok());
    assert!(merge.infer(&[ty(&[9], DType::F32), ty(&[8], DType::U32)]).is_err());
    assert_ne!(topk(2).attributes(), topk(3).attributes());
}

#[test]
fn the_wgsl_is_valid_and_new_shapes_need_no_other() {
    let whole = |lengths: &[usize]| Layout::contiguous(Shape::new(lengths));
    for (dtype, descending) in DType::NARROW.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        for lengths in [&[9][..], &[3, 200], &[2, 1000], &[2, 0]] {
            assert_valid(&Argsort::new(descending), &[(dtype, whole(lengths))]);
        }
        assert_valid(&Argsort { run: Some(1024), ..Argsort::new(descending) }, &[(dtype, whole(&[2, 5000]))]);
        let operands = [(dtype, whole(&[2, 5000])), (DType::U32, whole(&[2, 5000]))];
        assert_valid(&Merge { descending, run: 1024 }, &operands);
    }
    let kernel = |lengths: &[usize]| {
        rendered(&Argsort::new(false), &[(DType::F32, whole(lengths))], WgslFeatures::default()).source
    };
    assert_eq!(kernel(&[3, 300]), kernel(&[70_000, 1000]));
}
