//! NaN, infinities, zeros of both signs, and the smallest and largest numbers, through every op of the table.

use crate::data;
use crate::devices;
use crate::elements::Types;
use kiln::ir::op::{self, ElementOp};
use kiln::{DType, Tensor};
use kiln_testkit::{Array, rounded};

/// The class of a number, on which all devices must agree.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Nan,
    Infinite { negative: bool },
    Finite,
}

fn kind(number: f64, dtype: DType) -> Kind {
    let number = rounded(number, dtype);
    match number {
        _ if number.is_nan() => Kind::Nan,
        _ if number.is_infinite() => Kind::Infinite { negative: number < 0.0 },
        _ => Kind::Finite,
    }
}

/// Numbers at which ops are most likely to go wrong, as the dtype holds them.
fn special(dtype: DType) -> Vec<f64> {
    let (largest, smallest, subnormal) = match dtype {
        DType::F16 => (65504.0, 2f64.powi(-14), 2f64.powi(-24)),
        DType::BF16 => (f64::from(kiln::bf16::MAX), 2f64.powi(-126), 2f64.powi(-133)),
        _ => (f64::from(f32::MAX), 2f64.powi(-126), 2f64.powi(-149)),
    };
    let positive = [0.0, subnormal, smallest, 0.5, 1.0, 2.0, 3.0, largest, f64::INFINITY];
    let both = positive.into_iter().flat_map(|number| [number, -number]);
    both.chain([f64::NAN]).collect()
}

/// The classes that the reference allows, including those for subnormal arguments flushed to zero.
fn allowed(op: &ElementOp, dtype: DType, args: &[f64]) -> Vec<Kind> {
    let smallest = if dtype == DType::F16 { 2f64.powi(-14) } else { 2f64.powi(-126) };
    let flushed = |number: f64| if number.abs() < smallest { 0.0f64.copysign(number) } else { number };
    let mut kinds = vec![kind((op.reference())(args), dtype)];
    if args.iter().any(|&number| number != 0.0 && number.abs() < smallest) {
        kinds.push(kind((op.reference())(&args.iter().copied().map(flushed).collect::<Vec<_>>()), dtype));
    }
    kinds
}

/// Every op of floats: a NaN is a NaN, an infinity has its sign, and what is finite is finite.
#[test]
fn every_op_keeps_nan_and_infinity() {
    for subject in devices::all() {
        for op in op::all() {
            for types in Types::of(op).into_iter().filter(|types| types.result.is_float()) {
                let dtype = types.result;
                if types.args[types.args.len() - 1] != dtype || (subject.lacks_f16 && dtype != DType::F16) {
                    continue;
                }
                let numbers = special(dtype);
                let lists = types.args.iter().map(|&arg| if arg == dtype { numbers.clone() } else { vec![0.0, 1.0] });
                let rows = combinations(&lists.collect::<Vec<_>>());
                let column = |index: usize| Array::new(&[rows.len()], rows.iter().map(|row| row[index]).collect());
                let tensor = |(index, &arg): (usize, &DType)| data::tensor(&column(index), arg, &subject.device);
                let tensors: Vec<Tensor> = types.args.iter().enumerate().map(tensor).collect();
                let found = Tensor::apply(op, &tensors.iter().collect::<Vec<_>>()).unwrap();
                for (row, found) in rows.iter().zip(data::numbers(&found).unwrap()) {
                    let (wanted, found) = (allowed(op, dtype, row), kind(found, dtype));
                    let what = format!("{op:?} of {row:?} in {dtype} on {}", subject.name);
                    assert!(wanted.contains(&found), "{what}: expected {wanted:?}, found {found:?}");
                }
            }
        }
    }
}

/// Every choice of one number of each list.
fn combinations(lists: &[Vec<f64>]) -> Vec<Vec<f64>> {
    lists.iter().fold(vec![vec![]], |rows, list| {
        rows.iter().flat_map(|row| list.iter().map(move |&number| [&row[..], &[number]].concat())).collect()
    })
}

/// A NaN in one row of a product, a softmax or a norm is in that row of the result only.
#[test]
fn a_nan_stays_in_its_row() {
    for subject in devices::all() {
        for dtype in [DType::F32, DType::F16] {
            for (bad, columns) in [(f64::NAN, 33), (f64::INFINITY, 33), (f64::NAN, 5)] {
                let array = Array::from_fn(&[4, columns], |index| if *index == [2, 3] { bad } else { 0.25 });
                let x = data::tensor(&array, dtype, &subject.device);
                let ones = Tensor::ones((columns, 6), dtype, &subject.device).unwrap();
                let results = [
                    ("matmul", x.matmul(&ones)),
                    ("softmax", x.softmax(1)),
                    ("log_softmax", x.log_softmax(1)),
                    ("layer_norm", x.layer_norm(None, None, 1e-5)),
                    ("rms_norm", x.rms_norm(None, 1e-5)),
                ];
                for (name, result) in results {
                    let result = result.unwrap();
                    let (width, numbers) = (result.shape()[1], data::numbers(&result).unwrap());
                    for (place, number) in numbers.iter().enumerate() {
                        let what = format!("{name} of {dtype} with {bad} on {}: {number} at {place}", subject.name);
                        if place / width != 2 {
                            assert!(number.is_finite(), "{what}");
                        } else if bad.is_nan() {
                            assert!(number.is_nan(), "{what}");
                        }
                    }
                }
            }
        }
    }
}

/// An element of minus infinity gets weight 0 and does not affect the others.
#[test]
fn softmax_of_infinities_is_what_the_limit_is() {
    for subject in devices::all() {
        let x = Tensor::from_slice(&[1.0f32, f32::NEG_INFINITY, 1.0], (1, 3), &subject.device).unwrap();
        assert_eq!(x.softmax(1).unwrap().to_vec::<f32>().unwrap(), [0.5, 0.0, 0.5], "{}", subject.name);
        let logs = x.log_softmax(1).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(logs[1], f32::NEG_INFINITY, "{}", subject.name);
        assert!((logs[0] + std::f32::consts::LN_2).abs() < 1e-6, "{logs:?} on {}", subject.name);
    }
}

/// A partial product may overflow where the full product does not: zero stays zero, and overflow is infinite.
#[test]
fn cumulative_products_keep_zeros_and_infinities() {
    for subject in devices::all() {
        let products = |numbers: &[f32]| {
            Tensor::from_slice(numbers, numbers.len(), &subject.device).unwrap().cumprod(0).unwrap().to_vec::<f32>()
        };
        let mut numbers = vec![1e30; 300];
        numbers[0] = 0.0;
        assert!(products(&numbers).unwrap().iter().all(|number| *number == 0.0), "{}", subject.name);
        let powers = products(&[2.0; 200]).unwrap();
        assert_eq!((powers[126], powers[199]), (2f32.powi(127), f32::INFINITY), "{}", subject.name);
    }
    let mut long = vec![2.0f32; 40_000];
    long[0] = 0.0;
    let long = Tensor::from_slice(&long, 40_000, devices::cpu()).unwrap();
    for dtype in [DType::F32, DType::F16] {
        let products = long.to_dtype(dtype).unwrap().cumprod(0).unwrap().to_vec::<f32>().unwrap();
        assert!(products.iter().all(|number| *number == 0.0), "{dtype}");
    }
}

/// Statistics of 16 bits are rounded once, and their gradients are finite where they are 0.
#[test]
fn statistics_are_computed_in_32_bits_and_have_a_gradient_at_zero() {
    for subject in devices::all() {
        let of = |numbers: &[f32], dtype| {
            Tensor::from_slice(numbers, numbers.len(), &subject.device).unwrap().to_dtype(dtype).unwrap()
        };
        let number = |tensor: kiln::Result<Tensor>| tensor.unwrap().to_scalar::<f32>().unwrap();
        assert_eq!(number(of(&[256.0, 258.0], DType::BF16).var(0)), 2.0, "{}", subject.name);
        assert_eq!(number(of(&[1000.0, 1000.5], DType::F16).var(0)), 0.125, "{}", subject.name);
        assert_eq!(number(of(&[300.0, 400.0], DType::F16).norm(0)), 500.0, "{}", subject.name);
        for statistic in [|x: &Tensor| x.norm(0), |x: &Tensor| x.std(0)] {
            let x = of(&[0.0; 3], DType::F32).requires_grad().unwrap();
            statistic(&x).unwrap().backward().unwrap();
            assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [0.0; 3], "{}", subject.name);
        }
    }
}

/// Windows that do not contain an infinite element stay finite.
#[test]
fn adaptive_pooling_keeps_infinities_in_their_part() {
    for subject in devices::all() {
        let mut numbers = [0.0f32; 9];
        numbers[0] = f32::INFINITY;
        let x = Tensor::from_slice(&numbers, [1, 1, 3, 3], &subject.device).unwrap();
        let y = x.adaptive_avg_pool2d((2, 2)).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(y, [f32::INFINITY, 0.0, 0.0, 0.0], "{}", subject.name);
        let error = x.adaptive_avg_pool2d((1 << 40, 2)).unwrap_err();
        assert_eq!(error.kind(), kiln::ErrorKind::Unsupported, "{error}");
    }
}

/// A GPU rejects windows whose loops a driver might terminate early.
#[test]
fn large_windows_are_right_or_refused() {
    for subject in devices::all() {
        let x = Tensor::ones([1, 1, 256, 256], DType::F32, &subject.device).unwrap();
        match x.max_pool2d(256).and_then(|y| y.to_vec::<f32>()) {
            Ok(found) => assert_eq!(found, [1.0], "{}", subject.name),
            Err(error) => assert_eq!(error.kind(), kiln::ErrorKind::Unsupported, "{}: {error}", subject.name),
        }
        // The longest line that a GPU scans: all of its loops together must stay below the limit of the driver.
        if subject.device.info().kind != kiln::DeviceKind::Cpu {
            let sums = Tensor::ones([1, 1 << 22], DType::F32, &subject.device).unwrap().cumsum(1).unwrap();
            let sums = sums.to_vec::<f32>().unwrap();
            assert_eq!((sums[599_999], sums[(1 << 22) - 1]), (600_000.0, 4_194_304.0), "{}", subject.name);
        }
    }
}

/// The mean of a window is its sum divided by its size, to the last bit: 1/9 times the sum would be rounded twice.
#[test]
fn means_of_windows_are_quotients() {
    for subject in devices::cpus() {
        let numbers: Vec<f32> = (0..900).map(|n| (n * 37 % 101) as f32).collect();
        let x = Tensor::from_slice(&numbers, [1, 100, 3, 3], &subject.device).unwrap();
        let wanted: Vec<f32> = numbers.chunks(9).map(|window| window.iter().sum::<f32>() / 9.0).collect();
        assert!(numbers.chunks(9).zip(&wanted).any(|(window, mean)| window.iter().sum::<f32>() * (1.0 / 9.0) != *mean));
        assert_eq!(x.avg_pool2d(3).unwrap().to_vec::<f32>().unwrap(), wanted, "{}", subject.name);
        let rows = x.reshape([1, 100, 9]).unwrap();
        assert_eq!(rows.avg_pool1d(9).unwrap().to_vec::<f32>().unwrap(), wanted, "{}", subject.name);
    }
}
