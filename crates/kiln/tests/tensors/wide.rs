//! The dtypes that fused programs do not compute with: `i64` and `f64`; and those that are bytes: `i8` and `bool`.

use crate::devices;
use kiln::ir::with_element;
use kiln::{DType, Device, Element, ErrorKind, Tensor, bf16, f16};

/// Numbers at the edges of the dtypes.
const FLOATS: [f64; 40] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    127.4,
    128.0,
    -128.9,
    -129.0,
    255.9,
    256.0,
    300.0,
    65504.0,
    65519.99,
    65520.0,
    1.00048828125,
    1.000488281251,
    16_777_217.0,
    1_077_936_129.0,
    2_147_483_647.5,
    -2_147_483_648.5,
    4_294_967_295.5,
    4_294_967_296.0,
    9_007_199_254_740_993.0,
    9_223_372_036_854_774_784.0,
    9_223_372_036_854_775_808.0,
    -9_223_372_036_854_775_808.0,
    -9.3e18,
    1e19,
    3.4028235677973366e38,
    3.4028235e38,
    1e300,
    -1e300,
    1.5e-45,
    7.1e-46,
    1.1754942e-38,
    6.1e-5,
    2.98e-8,
    f64::INFINITY,
    f64::NAN,
];

const INTEGERS: [i64; 26] = [
    0,
    1,
    -1,
    127,
    128,
    -128,
    -129,
    255,
    256,
    65_504,
    65_520,
    16_777_217,
    -16_777_219,
    1_077_936_129,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    u32::MAX as i64,
    1 << 32,
    (1 << 53) + 1,
    -(1 << 53) - 3,
    (1 << 62) + (1 << 53) + 1,
    (1 << 62) + (1 << 38),
    i64::MAX,
    i64::MIN,
    -3_000_000_000,
];

/// Converts with Rust casts only. 16-bit floats are found by trying both neighbours.
trait Reference: Element {
    fn of_f64(x: f64) -> Self;
    fn of_i64(x: i64) -> Self;
    fn to_f64(self) -> f64;
    fn to_i64(self) -> i64;
}

macro_rules! references {
    ($($ty:ty)*) => {
        $(impl Reference for $ty {
            fn of_f64(x: f64) -> Self {
                x as $ty
            }
            fn of_i64(x: i64) -> Self {
                x as $ty
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn to_i64(self) -> i64 {
                self as i64
            }
        })*
    };
}

references!(f32 f64 i8 i32 i64 u8 u32);

impl Reference for bool {
    fn of_f64(x: f64) -> Self {
        x != 0.0
    }
    fn of_i64(x: i64) -> Self {
        x != 0
    }
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }
    fn to_i64(self) -> i64 {
        i64::from(self)
    }
}

macro_rules! halves {
    ($($ty:ty, $overflow:expr;)*) => {
        $(impl Reference for $ty {
            fn of_f64(x: f64) -> Self {
                if x.is_nan() || x.is_infinite() || x == 0.0 {
                    return Self::from_f32(x as f32);
                }
                if x.abs() >= $overflow {
                    return Self::from_f32(f32::INFINITY.copysign(x as f32));
                }
                nearest(x, (0..0x7f80).map(Self::from_bits), Self::to_f64)
            }
            fn of_i64(x: i64) -> Self {
                if x.unsigned_abs() as f64 >= $overflow {
                    return Self::from_f32(f32::INFINITY.copysign(x as f32));
                }
                nearest_integer(x, (0..0x7f80).map(Self::from_bits), Self::to_f64)
            }
            fn to_f64(self) -> f64 {
                self.to_f64()
            }
            fn to_i64(self) -> i64 {
                self.to_f64() as i64
            }
        })*
    };
}

halves! {
    f16, 65520.0;
    bf16, 3.3961775292304957e38;
}

/// Returns the nearest of sorted positive numbers, ties to even, with the sign of `x`.
fn nearest<T: Copy + std::ops::Neg<Output = T>>(x: f64, all: impl Iterator<Item = T>, value: impl Fn(T) -> f64) -> T {
    let (mut best, mut best_distance, mut best_index) = (None, f64::INFINITY, 0);
    for (index, candidate) in all.enumerate().filter(|(_, candidate)| value(*candidate).is_finite()) {
        let distance = (value(candidate) - x.abs()).abs();
        if distance < best_distance || distance == best_distance && index % 2 == 0 && best_index % 2 == 1 {
            (best, best_distance, best_index) = (Some(candidate), distance, index);
        }
    }
    let best = best.unwrap();
    if x < 0.0 { -best } else { best }
}

/// The same for integers, whose distances `f64` cannot represent.
fn nearest_integer<T: Copy + std::ops::Neg<Output = T>>(
    x: i64,
    all: impl Iterator<Item = T>,
    value: impl Fn(T) -> f64,
) -> T {
    let size = i128::from(x).abs();
    let (mut best, mut best_distance, mut best_index) = (None, i128::MAX, 0);
    for (index, candidate) in all.enumerate().filter(|(_, candidate)| value(*candidate) < 1e38) {
        // Doubled, so that halves are exact.
        let distance = ((value(candidate) * 2.0) as i128 - 2 * size).abs();
        let is_even = index % 2 == 0 && best_index % 2 == 1;
        if distance < best_distance || distance == best_distance && is_even {
            (best, best_distance, best_index) = (Some(candidate), distance, index);
        }
    }
    let best = best.unwrap();
    if x < 0 { -best } else { best }
}

fn is_same(a: f64, b: f64) -> bool {
    a == b && a.is_sign_negative() == b.is_sign_negative() || a.is_nan() && b.is_nan()
}

/// Every conversion to and from 64 bits, on every device, against Rust casts.
#[test]
fn conversions_are_those_of_the_language() {
    for subject in devices::all() {
        let floats = Tensor::new(FLOATS, &subject.device).unwrap();
        let integers = Tensor::new(INTEGERS, &subject.device).unwrap();
        for to in DType::ALL {
            with_element!(to, T => {
                let found: Vec<T> = floats.to_dtype(to).unwrap().to_vec().unwrap();
                for (x, found) in FLOATS.into_iter().zip(found) {
                    let expected = <T as Reference>::of_f64(x);
                    // A GPU may flush subnormals to zero.
                    let is_tiny = subject.takes_wgsl
                        && Reference::to_f64(expected).abs() < 1.2e-38
                        && Reference::to_f64(found) == 0.0;
                    let is_close = is_same(Reference::to_f64(found), Reference::to_f64(expected));
                    assert!(is_close || is_tiny, "{x:e} to {to} on {}: {expected:?} {found:?}", subject.name);
                }
                let found: Vec<T> = integers.to_dtype(to).unwrap().to_vec().unwrap();
                for (x, found) in INTEGERS.into_iter().zip(found) {
                    let expected = <T as Reference>::of_i64(x);
                    assert_eq!(found, expected, "{x} to {to} on {}", subject.name);
                }
            });
        }
        for from in DType::ALL {
            with_element!(from, T => {
                let numbers: Vec<T> = FLOATS.into_iter().map(<T as Reference>::of_f64).collect();
                let x = Tensor::from_slice(&numbers, numbers.len(), &subject.device).unwrap();
                let found: Vec<f64> = x.to_dtype(DType::F64).unwrap().to_vec().unwrap();
                for (x, found) in numbers.iter().zip(found) {
                    let expected = Reference::to_f64(*x);
                    let is_tiny = subject.takes_wgsl && expected.abs() < 1.2e-38 && found == 0.0;
                    assert!(is_same(found, expected) || is_tiny, "{x:?} of {from} on {}: {found}", subject.name);
                }
                let found: Vec<i64> = x.to_dtype(DType::I64).unwrap().to_vec().unwrap();
                let expected: Vec<i64> = numbers.iter().map(|&x| Reference::to_i64(x)).collect();
                assert_eq!(found, expected, "{from} on {}", subject.name);
            });
        }
    }
}

/// Elements of every dtype on a device, as they come back after being moved in every way.
fn moved<T: Element>(elements: &[T; 12], device: &Device) {
    let x = Tensor::from_slice(elements, (3, 4), device).unwrap();
    assert_eq!(x.dtype(), T::DTYPE);
    assert_eq!(x.to_vec::<T>().unwrap(), elements);
    let at = |row: usize, column: usize| elements[row * 4 + column];
    let transposed: Vec<T> = (0..4).flat_map(|c| (0..3).map(move |r| (r, c))).map(|(r, c)| at(r, c)).collect();
    let t = x.t().unwrap();
    assert_eq!(t.to_vec::<T>().unwrap(), transposed);
    // Strides cannot express this reshape, so the elements are copied.
    assert_eq!(t.reshape(12).unwrap().to_vec::<T>().unwrap(), transposed);
    let stepped = x.slice_step(1, 0..4, 2).unwrap().flip(0).unwrap();
    assert_eq!(stepped.to_vec::<T>().unwrap(), [at(2, 0), at(2, 2), at(1, 0), at(1, 2), at(0, 0), at(0, 2)]);
    let both = Tensor::cat(&[&t, &t], 1).unwrap();
    assert_eq!(both.i((1, ..)).unwrap().to_vec::<T>().unwrap(), [0, 1, 2, 0, 1, 2].map(|r| at(r, 1)));
    let index = Tensor::new([2i64, 0, 2], device).unwrap();
    let rows: Vec<T> = [2, 0, 2].into_iter().flat_map(|r| (0..4).map(move |c| at(r, c))).collect();
    assert_eq!(x.index_select(0, &index).unwrap().to_vec::<T>().unwrap(), rows);
    let places = Tensor::new([[3u32], [0], [1]], device).unwrap();
    assert_eq!(x.gather(1, &places).unwrap().to_vec::<T>().unwrap(), [at(0, 3), at(1, 0), at(2, 1)]);
    let source = x.slice(1, 1..2).unwrap();
    let scattered = x.scatter(1, &places, &source).unwrap();
    assert_eq!(scattered.i((.., 3)).unwrap().to_vec::<T>().unwrap(), [at(0, 1), at(1, 3), at(2, 3)]);
    let spread = x.i((0..1, ..)).unwrap().broadcast_to((2, 4)).unwrap().contiguous().unwrap();
    assert_eq!(spread.to_vec::<T>().unwrap(), [0, 1, 2, 3, 0, 1, 2, 3].map(|c| at(0, c)));
    let other = Device::cpu().unwrap();
    assert_eq!(x.to_device(&other).unwrap().to_vec::<T>().unwrap(), elements);
}

#[test]
fn elements_are_stored_and_moved_on_every_device() {
    for subject in devices::all() {
        let device = &subject.device;
        let integers: [i64; 12] = std::array::from_fn(|i| INTEGERS[i * 2 + 3]);
        moved(&integers, device);
        moved(&std::array::from_fn::<f64, 12, _>(|i| FLOATS[i * 3 + 1]), device);
        moved(&integers.map(|x| x as i8), device);
        moved(&integers.map(|x| x % 3 == 0), device);
    }
}

#[test]
fn made_of_a_number_or_of_many() {
    for subject in devices::all() {
        let device = &subject.device;
        assert_eq!(Tensor::full((2, 2), 0.1, DType::F64, device).unwrap().to_vec::<f64>().unwrap(), [0.1; 4]);
        assert_eq!(Tensor::ones(2, DType::I64, device).unwrap().to_vec::<i64>().unwrap(), [1, 1]);
        assert_eq!(Tensor::full(2, -7, DType::I8, device).unwrap().to_vec::<i8>().unwrap(), [-7, -7]);
        assert_eq!(Tensor::ones(2, DType::Bool, device).unwrap().to_vec::<bool>().unwrap(), [true, true]);
        let counted = Tensor::arange(-2.0, 4.0, 2.0, DType::I64, device).unwrap();
        assert_eq!(counted.to_vec::<i64>().unwrap(), [-2, 0, 2]);
        let between = Tensor::linspace(0.0, 1.0, 4, DType::F64, device).unwrap().to_vec::<f64>().unwrap();
        assert_eq!((between[0], between[3], (between[1] - 1.0 / 3.0).abs() < 1e-15), (0.0, 1.0, true));
        assert_eq!(Tensor::eye(2, DType::F64, device).unwrap().to_vec::<f64>().unwrap(), [1.0, 0.0, 0.0, 1.0]);
        let large = 9_007_199_254_740_992.0;
        let counted = Tensor::arange(large, large + 4.0, 1.0, DType::I64, device).unwrap();
        assert_eq!(counted.to_vec::<i64>().unwrap(), [0, 1, 2, 3].map(|i| (1 << 53) + i));
        let ends = Tensor::linspace(-1.7e308, 1.7e308, 3, DType::F64, device).unwrap();
        assert_eq!(ends.to_vec::<f64>().unwrap(), [-1.7e308, 0.0, 1.7e308]);
        for count in [usize::MAX, 1 << 40] {
            let error = Tensor::linspace(0.0, 1.0, count, DType::F64, device).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        }
        for (value, dtype) in [(0.5, DType::I64), (1e19, DType::I64), (128.0, DType::I8), (2.0, DType::Bool)] {
            let error = Tensor::full(2, value, dtype, device).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{value} {dtype}: {error}");
        }
        let x = Tensor::new([3i64, 1 << 40, 3], device).unwrap();
        assert_eq!(x.unique().unwrap().to_vec::<i64>().unwrap(), [3, 1 << 40]);
        assert_eq!(x.nonzero().unwrap().dims(), [3, 1]);
    }
}

#[test]
fn the_cpu_computes_with_64_bits() {
    for subject in devices::cpus() {
        let device = &subject.device;
        let x = Tensor::new([[1i64 << 60, -5], [7, 1 << 40]], device).unwrap();
        let column = Tensor::new([[2i64], [3]], device).unwrap();
        assert_eq!(x.add(&column).unwrap().to_vec::<i64>().unwrap(), [(1 << 60) + 2, -3, 10, (1 << 40) + 3]);
        assert_eq!(x.mul_scalar(4).unwrap().i((0, 0)).unwrap().to_scalar::<i64>().unwrap(), 1 << 62);
        assert_eq!(x.gt(0).unwrap().to_vec::<u8>().unwrap(), [1, 0, 1, 1]);
        assert_eq!(x.gt(0).unwrap().where_(&x, 0).unwrap().to_vec::<i64>().unwrap(), [1 << 60, 0, 7, 1 << 40]);
        assert_eq!(x.sum(0).unwrap().to_vec::<i64>().unwrap(), [(1 << 60) + 7, (1 << 40) - 5]);
        assert_eq!(x.max(..).unwrap().to_scalar::<i64>().unwrap(), 1 << 60);
        assert_eq!(x.argmin(1).unwrap().to_vec::<u32>().unwrap(), [1, 0]);
        let y = Tensor::new([0.1f64, 0.2, 0.3], device).unwrap();
        assert_eq!(y.exp().unwrap().to_vec::<f64>().unwrap(), [0.1f64, 0.2, 0.3].map(f64::exp));
        assert!((y.mean(0).unwrap().to_scalar::<f64>().unwrap() - 0.2).abs() < 1e-16);
        assert_eq!(y.neg().unwrap().sqrt().unwrap().to_vec::<f64>().unwrap().iter().filter(|x| x.is_nan()).count(), 3);
        assert!(x.add(&column).unwrap().explain().unwrap().to_string().contains("add"));
    }
}

#[test]
fn where_there_is_no_arithmetic_an_error_names_dtype_device_and_remedy() {
    let Some(gpu) = devices::gpu() else { return };
    let (x, y) = (Tensor::new([1i64, 2], gpu).unwrap(), Tensor::new([0.5f64, 2.0], gpu).unwrap());
    for (what, error) in [
        ("add", x.add(&x).unwrap_err()),
        ("mul", y.mul_scalar(2.0).unwrap_err()),
        ("eq", x.eq(1).unwrap_err()),
        ("sum", y.sum(0).unwrap_err()),
        ("max", x.max(..).unwrap_err()),
    ] {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
        for part in [what, "64", "gpu", "to_dtype", "to_device"] {
            let is_named = text.contains(part) || part == "64" && (text.contains("i64") || text.contains("f64"));
            assert!(is_named, "{part} in {text}");
        }
    }
}

#[test]
fn kernels_that_compute_in_32_bits_refuse_64() {
    for device in [devices::cpu()].into_iter().chain(devices::gpu()) {
        let x = Tensor::new([[1.0f64, 2.0], [3.0, 4.0]], device).unwrap();
        let errors = [x.matmul(&x), x.softmax(1), x.cumsum(0), x.sort(0, false).map(|(sorted, _)| sorted)];
        for error in errors.map(Result::unwrap_err) {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
            assert!(text.contains("f64") && text.contains("to_dtype"), "{text}");
        }
    }
    let x = Tensor::new([1.0f32], devices::cpu()).unwrap().requires_grad().unwrap();
    let error = x.to_dtype(DType::F64).unwrap_err().to_string();
    assert!(error.contains("f64") && error.contains("detach"), "{error}");
}

/// Indices of `i64` are never taken modulo 2^32.
#[test]
fn indices_of_64_bits_select_or_are_out_of_range() {
    for subject in devices::all() {
        let device = &subject.device;
        let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], (3, 2), device).unwrap();
        let index = |values: &[i64]| Tensor::from_slice(values, values.len(), device).unwrap();
        assert_eq!(x.i((&index(&[2, 0]), &index(&[1, 0]))).unwrap().to_vec::<f32>().unwrap(), [6.0, 1.0]);
        assert_eq!(x.embedding(&index(&[1])).unwrap().to_vec::<f32>().unwrap(), [3.0, 4.0]);
        let hot = index(&[1, 1 << 32]).one_hot(2, DType::U8).unwrap();
        assert_eq!(hot.to_vec::<u8>().unwrap(), [0, 1, 0, 0]);
        for far in [1 << 32, (1 << 32) + 1, -1, -(1 << 32), i64::MIN, 1 << 31] {
            let selected = [x.i((&index(&[far]), &index(&[0]))), x.index_select(0, &index(&[far]))];
            for selected in selected.map(Result::unwrap) {
                match selected.to_vec::<f32>() {
                    Ok(found) => {
                        assert!(subject.takes_wgsl && found.iter().all(|&found| found == 0.0), "{far}: {found:?}");
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{far}"),
                }
            }
        }
    }
}

/// Graph checks support 64 bits too.
#[test]
fn checks_and_the_nan_check_know_64_bits() {
    for subject in devices::all() {
        let x = Tensor::new([1.5f64, -2.25, 1e-3], &subject.device).unwrap();
        let half = x.to_dtype(DType::F16).unwrap().add_scalar(1.0).unwrap();
        half.eval_checked().unwrap_or_else(|error| panic!("{}: {error}", subject.name));
    }
    let device = Device::cpu().unwrap();
    device.set_nan_check(true);
    let zero = Tensor::new([0.0f64], &device).unwrap();
    let error = zero.log().unwrap().eval().unwrap_err().to_string();
    assert!(error.contains("log"), "{error}");
    let infinite = Tensor::new([f64::INFINITY], &device).unwrap();
    infinite.to_dtype(DType::F32).unwrap().eval().unwrap();
}

#[test]
fn reading_as_f64_needs_no_gradient() {
    let x = Tensor::new([0.5f32], devices::cpu()).unwrap().requires_grad().unwrap();
    assert_eq!(x.to_scalar::<f64>().unwrap(), 0.5);
    assert_eq!(kiln::no_grad(|| x.to_dtype(DType::F64)).unwrap().dtype(), DType::F64);
}

#[test]
fn signed_bytes_wrap_and_truth_has_logic() {
    for subject in devices::all() {
        let device = &subject.device;
        let x = Tensor::new([100i8, -100, 7, -128], device).unwrap();
        assert_eq!(x.add(&x).unwrap().to_vec::<i8>().unwrap(), [-56, 56, 14, 0], "{}", subject.name);
        assert_eq!(x.neg().unwrap().to_vec::<i8>().unwrap(), [-100, 100, -7, -128]);
        assert_eq!(x.div_scalar(7).unwrap().to_vec::<i8>().unwrap(), [14, -14, 1, -18]);
        assert_eq!(x.sum(0).unwrap().to_scalar::<i32>().unwrap(), -121);
        assert_eq!(x.min(0).unwrap().to_scalar::<i8>().unwrap(), -128);
        assert_eq!(x.lt(0).unwrap().to_vec::<u8>().unwrap(), [0, 1, 0, 1]);
        assert_eq!(x.sort(0, false).unwrap().0.to_vec::<i8>().unwrap(), [-128, -100, 7, 100]);
        assert_eq!(x.cumsum(0).unwrap().to_vec::<i32>().unwrap(), [100, 0, 7, -121]);
        assert_eq!(x.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap(), [100.0, -100.0, 7.0, -128.0]);
        let places = Tensor::new([0u32, 0], device).unwrap();
        let twice = x.scatter_add(0, &places, &x.slice(0, ..2).unwrap()).unwrap();
        assert_eq!(twice.to_vec::<i8>().unwrap(), [100, -100, 7, -128]);
        let (a, b) =
            (Tensor::new([true, true, false], device).unwrap(), Tensor::new([true, false, false], device).unwrap());
        let logic = |found: kiln::Result<Tensor>| found.unwrap().to_vec::<bool>().unwrap();
        assert_eq!(logic(a.bit_and(&b)), [true, false, false]);
        assert_eq!(logic(a.bit_or(&b)), [true, true, false]);
        assert_eq!(logic(a.bit_xor(&b)), [false, true, false]);
        assert_eq!(logic(a.logical_not()), [false, false, true]);
        assert_eq!(logic(b.max_keepdim(0)), [true]);
        assert_eq!(a.sum(0).unwrap().to_scalar::<u32>().unwrap(), 2);
        assert_eq!(a.eq(&b).unwrap().to_vec::<u8>().unwrap(), [1, 0, 1]);
        assert_eq!(a.where_(&x.slice(0, ..3).unwrap(), 0).unwrap().to_vec::<i8>().unwrap(), [100, -100, 0]);
        let error = a.add(&b).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("bool") && error.to_string().contains("to_dtype"), "{error}");
    }
}
