//! Every WGSL builtin on floats, compared with a reference in `f64`, in single and half precision, with invocations in SIMD lanes
//! and one at a time. The bounds are at most those of WGSL ("accuracy of concrete floating point expressions"), mostly far below.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use half::f16;
use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::{Device, KernelOptions, KernelSource};

/// Samples per function: whole vectors and a tail.
const SAMPLES: usize = 4096 + 3;

/// A call with `x`, `y` and `z`, their intervals, the reference, and the error bound: in ULP of the
/// exact result, or absolute for `f32`, whichever is larger.
struct Row {
    call: &'static str,
    from: [(f64, f64); 3],
    reference: fn(f64, f64, f64) -> f64,
    ulps: f64,
    absolute: f64,
}

const ANY: (f64, f64) = (-1000.0, 1000.0);
const FEW: (f64, f64) = (-4.0, 4.0);
const UNIT: (f64, f64) = (-1.0, 1.0);
const ANGLE: (f64, f64) = (-std::f64::consts::PI, std::f64::consts::PI);
const NONE: (f64, f64) = (0.0, 0.0);
/// The exact result, rounded.
const ROUNDED: f64 = 0.500_001;
/// The exact result, rounded to `f32` and then to `f16`.
const NEAREST: f64 = 0.51;

const fn row1(call: &'static str, x: (f64, f64), reference: fn(f64, f64, f64) -> f64, ulps: f64) -> Row {
    Row { call, from: [x, NONE, NONE], reference, ulps, absolute: 0.0 }
}

const fn row(call: &'static str, from: [(f64, f64); 3], reference: fn(f64, f64, f64) -> f64, ulps: f64) -> Row {
    Row { call, from, reference, ulps, absolute: 0.0 }
}

impl Row {
    const fn absolute(self, absolute: f64) -> Self {
        Self { absolute, ..self }
    }
}

fn fract(x: f64) -> f64 {
    x - x.floor()
}

fn smoothstep(low: f64, high: f64, x: f64) -> f64 {
    let share = ((x - low) / (high - low)).clamp(0.0, 1.0);
    share * share * (3.0 - 2.0 * share)
}

fn length(x: f64, y: f64, z: f64) -> f64 {
    (x * x + y * y + z * z).sqrt()
}

const ROWS: &[Row] = &[
    row("x + y", [ANY, ANY, NONE], |x, y, _| x + y, ROUNDED),
    row("x - y", [ANY, ANY, NONE], |x, y, _| x - y, ROUNDED),
    row("x * y", [FEW, FEW, NONE], |x, y, _| x * y, ROUNDED),
    row("x / y", [ANY, (0.5, 8.0), NONE], |x, y, _| x / y, ROUNDED),
    row("x % y", [(-8.0, 8.0), (1.0, 8.0), NONE], |x, y, _| x % y, 1.0).absolute(1e-6),
    row1("-x", ANY, |x, _, _| -x, 0.0),
    row1("abs(x)", ANY, |x, _, _| x.abs(), 0.0),
    row1("ceil(x)", ANY, |x, _, _| x.ceil(), 0.0),
    row1("floor(x)", ANY, |x, _, _| x.floor(), 0.0),
    row1("round(x)", ANY, |x, _, _| x.round_ties_even(), 0.0),
    row1("trunc(x)", ANY, |x, _, _| x.trunc(), 0.0),
    row1("fract(x)", (-8.0, 8.0), |x, _, _| fract(x), ROUNDED),
    row1("sign(x)", ANY, |x, _, _| if x == 0.0 { 0.0 } else { x.signum() }, 0.0),
    row1("saturate(x)", FEW, |x, _, _| x.clamp(0.0, 1.0), 0.0),
    row("min(x, y)", [ANY, ANY, NONE], |x, y, _| x.min(y), 0.0),
    row("max(x, y)", [ANY, ANY, NONE], |x, y, _| x.max(y), 0.0),
    row("clamp(x, y, z)", [ANY, (-9.0, 0.0), (0.0, 9.0)], f64::clamp, 0.0),
    row("step(x, y)", [FEW, FEW, NONE], |x, y, _| f64::from(u8::from(y >= x)), 0.0),
    row("fma(x, y, z)", [FEW, FEW, FEW], f64::mul_add, NEAREST),
    row("mix(x, y, z)", [FEW, FEW, (0.0, 1.0)], |x, y, z| x * (1.0 - z) + y * z, 2.0).absolute(1e-6),
    row("smoothstep(x, y, z)", [(-2.0, -1.0), (1.0, 2.0), FEW], smoothstep, 8.0).absolute(1e-6),
    row1("degrees(x)", ANGLE, |x, _, _| x.to_degrees(), 1.5),
    row1("radians(x)", (-360.0, 360.0), |x, _, _| x.to_radians(), 1.5),
    row1("sqrt(x)", (0.0, 1000.0), |x, _, _| x.sqrt(), ROUNDED),
    row1("inverseSqrt(x)", (0.001, 1000.0), |x, _, _| x.sqrt().recip(), 2.0),
    row1("exp(x)", (-9.0, 9.0), |x, _, _| x.exp(), 2.0),
    row1("exp2(x)", (-13.0, 13.0), |x, _, _| x.exp2(), 2.0),
    row1("log(x)", (0.001, 1000.0), |x, _, _| x.ln(), 2.0),
    row1("log2(x)", (0.001, 1000.0), |x, _, _| x.log2(), 3.0),
    row("pow(x, y)", [(0.1, 4.0), FEW, NONE], |x, y, _| x.powf(y), 4.0),
    row1("sin(x)", ANGLE, |x, _, _| x.sin(), 2.0).absolute(1e-8),
    row1("cos(x)", ANGLE, |x, _, _| x.cos(), 2.0).absolute(1e-8),
    row1("tan(x)", (-1.5, 1.5), |x, _, _| x.tan(), 8.0),
    row1("asin(x)", UNIT, |x, _, _| x.asin(), NEAREST),
    row1("acos(x)", UNIT, |x, _, _| x.acos(), NEAREST),
    row1("atan(x)", (-100.0, 100.0), |x, _, _| x.atan(), NEAREST),
    row("atan2(x, y)", [FEW, FEW, NONE], |x, y, _| x.atan2(y), NEAREST),
    row1("sinh(x)", (-9.0, 9.0), |x, _, _| x.sinh(), NEAREST),
    row1("cosh(x)", (-9.0, 9.0), |x, _, _| x.cosh(), NEAREST),
    row1("tanh(x)", (-9.0, 9.0), |x, _, _| x.tanh(), 3.0),
    row1("asinh(x)", ANY, |x, _, _| x.asinh(), NEAREST),
    row1("acosh(x)", (1.0, 1000.0), |x, _, _| x.acosh(), NEAREST),
    row1("atanh(x)", (-0.99, 0.99), |x, _, _| x.atanh(), NEAREST),
    row1("ldexp(x, 3)", ANY, |x, _, _| x * 8.0, 0.0),
    row1("ldexp(x, -2)", ANY, |x, _, _| x / 4.0, 0.0),
    row1("modf(x).fract", ANY, |x, _, _| x.fract(), 0.0),
    row1("modf(x).whole", ANY, |x, _, _| x.trunc(), 0.0),
    row("dot(vec3(x, y, z), vec3(y, z, x))", [FEW, FEW, FEW], |x, y, z| x * y + y * z + z * x, 2.0).absolute(8e-6),
    row("length(vec3(x, y, z))", [FEW, FEW, FEW], length, 4.0),
    row("distance(vec3(x, y, z), vec3(y, z, x))", [FEW, FEW, FEW], |x, y, z| length(x - y, y - z, z - x), 4.0)
        .absolute(2e-6),
    row("normalize(vec3(x, y, z)).y", [FEW, FEW, (1.0, 4.0)], |x, y, z| y / length(x, y, z), 4.0),
    row("cross(vec3(x, y, z), vec3(y, z, x)).x", [FEW, FEW, FEW], |x, y, z| y * x - z * z, 2.0).absolute(6e-6),
    row("reflect(vec2(x, y), vec2(0.6, 0.8)).x", [FEW, FEW, NONE], |x, y, _| x - 2.0 * (0.6 * x + 0.8 * y) * 0.6, 4.0)
        .absolute(6e-6),
    row(
        "refract(vec2(0.6, -0.8), vec2(0.0, 1.0), x).y",
        [(0.1, 1.0), NONE, NONE],
        |x, _, _| -(1.0 - x * x * (1.0 - 0.8 * 0.8)).sqrt(),
        6.0,
    )
    .absolute(1e-6),
    row(
        "faceForward(vec2(x, y), vec2(z, 1.0), vec2(1.0, 0.0)).x",
        [FEW, FEW, FEW],
        |x, _, z| if z < 0.0 { x } else { -x },
        0.0,
    ),
    row("determinant(mat2x2(x, y, y, z))", [FEW, FEW, FEW], |x, y, z| x * z - y * y, 2.0).absolute(6e-6),
];

/// Functions of `f32` only.
const ROWS_F32: &[Row] = &[
    // Numbers outside the range of `f16`.
    row1("exp(x)", (-80.0, 80.0), |x, _, _| x.exp(), 3.0),
    row1("exp2(x)", (-120.0, 120.0), |x, _, _| x.exp2(), 3.0),
    row1("log(x)", (1.0, 3e38), |x, _, _| x.ln(), 3.0),
    row1("log2(x * 1e-30)", (0.5, 100.0), |x, _, _| (x * f64::from(1e-30f32)).log2(), 3.0),
    row("pow(x, y)", [(0.5, 1000.0), (-9.0, 9.0), NONE], |x, y, _| x.powf(y), 8.0),
    row1("frexp(x).fract", (0.001, 1000.0), |x, _, _| x / 2f64.powi(x.log2().floor() as i32 + 1), 0.0),
    row1("f32(frexp(x).exp)", (0.001, 1000.0), |x, _, _| x.log2().floor() + 1.0, 0.0),
    row1("quantizeToF16(x)", ANY, |x, _, _| f16::from_f64(x).to_f64(), 0.0),
    row1("unpack2x16float(pack2x16float(vec2(x, 1.0))).x", ANY, |x, _, _| f16::from_f64(x).to_f64(), 0.0),
    row1("unpack4x8snorm(pack4x8snorm(vec4(x))).z", UNIT, |x, _, _| (x * 127.0 + 0.5).floor() / 127.0, ROUNDED),
    row1("unpack2x16unorm(pack2x16unorm(vec2(x))).y", (0.0, 1.0), |x, _, _| (x * 65535.0 + 0.5).floor() / 65535.0, 3.0)
        .absolute(2e-5),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Precision {
    Single,
    Half,
}

impl Precision {
    fn round(self, x: f64) -> f64 {
        match self {
            Self::Single => f64::from(x as f32),
            Self::Half => f16::from_f64(x).to_f64(),
        }
    }

    /// Bits of the mantissa, and the exponent of the smallest normal number.
    fn format(self) -> (i32, i32) {
        match self {
            Self::Single => (23, -126),
            Self::Half => (10, -14),
        }
    }

    /// Returns the ULP at this number.
    fn ulp(self, x: f64) -> f64 {
        let (bits, least) = self.format();
        let exponent = if x == 0.0 { least } else { (x.abs().log2().floor() as i32).max(least) };
        2f64.powi(exponent - bits)
    }

    fn bytes(self, numbers: &[f64]) -> Vec<u8> {
        match self {
            Self::Single => numbers.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect(),
            Self::Half => numbers.iter().flat_map(|x| f16::from_f64(*x).to_le_bytes()).collect(),
        }
    }

    fn numbers(self, bytes: &[u8]) -> Vec<f64> {
        match self {
            Self::Single => {
                bytes.chunks_exact(4).map(|x| f64::from(f32::from_le_bytes([x[0], x[1], x[2], x[3]]))).collect()
            }
            Self::Half => bytes.chunks_exact(2).map(|x| f16::from_le_bytes([x[0], x[1]]).to_f64()).collect(),
        }
    }
}

/// Samples of an interval in the given precision, including its ends and its middle.
fn samples((low, high): (f64, f64), salt: u64, precision: Precision) -> Vec<f64> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut numbers = vec![low, high, low / 2.0 + high / 2.0];
    numbers.extend((numbers.len()..SAMPLES).map(|_| low + (high - low) * random()));
    // Rounding must not leave the interval.
    let inside = |x: f64| {
        let rounded = precision.round(x);
        if rounded < low || rounded > high { precision.round(x + (low / 2.0 + high / 2.0 - x) * 0.01) } else { rounded }
    };
    numbers.into_iter().map(inside).collect()
}

/// Returns the results of a call for these arguments.
fn run(device: &Device, row: &Row, arguments: &[Vec<f64>; 3], precision: Precision) -> Vec<f64> {
    let (enable, ty) = match precision {
        Precision::Single => ("", "f32"),
        Precision::Half => ("enable f16;", "f16"),
    };
    let text = format!(
        "{enable}
        @group(0) @binding(0) var<storage, read> a: array<{ty}>;
        @group(0) @binding(1) var<storage, read> b: array<{ty}>;
        @group(0) @binding(2) var<storage, read> c: array<{ty}>;
        @group(0) @binding(3) var<storage, read_write> out: array<{ty}>;
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            let i = id.x;
            if (i >= arrayLength(&out)) {{ return; }}
            let x = a[i]; let y = b[i]; let z = c[i];
            out[i] = {};
        }}",
        row.call
    );
    let options = KernelOptions { fast_math: false, ..KernelOptions::default() };
    let kernel = device.kernel(KernelSource::wgsl(text).options(options)).unwrap();
    let [a, b, c] = arguments.each_ref().map(|numbers| {
        // Buffers are whole words.
        let mut bytes = precision.bytes(numbers);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let buffer = device.buffer(bytes.len() as u64).unwrap();
        buffer.write(&bytes).unwrap();
        buffer
    });
    let mut out = device.buffer(a.bytes()).unwrap();
    let is_used = |name: &str| kernel.reflection().bindings.iter().any(|binding| binding.name == name);
    let mut launch = kernel.launch().bind("out", &mut out);
    for (name, buffer) in [("a", &a), ("b", &b), ("c", &c)].into_iter().filter(|(name, _)| is_used(name)) {
        launch = launch.bind(name, buffer);
    }
    launch.over(SAMPLES as u32).unwrap();
    let mut numbers = precision.numbers(&out.read().unwrap());
    numbers.truncate(SAMPLES);
    numbers
}

/// Returns the worst error of a row that exceeds its bound, if any.
fn check(device: &Device, row: &Row, precision: Precision) -> Option<String> {
    let arguments: [Vec<f64>; 3] = std::array::from_fn(|place| samples(row.from[place], place as u64 + 1, precision));
    let found = run(device, row, &arguments, precision);
    let (bits, least) = precision.format();
    let mut worst: (f64, String) = (0.0, String::new());
    for (place, found) in found.into_iter().enumerate() {
        let [x, y, z] = arguments.each_ref().map(|numbers| numbers[place]);
        let expected = (row.reference)(x, y, z);
        // Absolute bounds are stated for `f32`; scaled for the shorter mantissa of `f16`.
        let absolute = row.absolute * 2f64.powi(23 - bits);
        // Subnormal results may be flushed to zero.
        let allowed = (row.ulps * precision.ulp(expected)).max(absolute).max(2f64.powi(least));
        let excess = (found - expected).abs() / allowed;
        if excess > worst.0 || found.is_nan() {
            worst = (
                if found.is_nan() { f64::INFINITY } else { excess },
                format!("({x:e}, {y:e}, {z:e}): expected {expected:e}, found {found:e}"),
            );
        }
    }
    (worst.0 > 1.0).then(|| format!("{} in {precision:?}: {:.2} times its bound: {}", row.call, worst.0, worst.1))
}

fn check_all(options: CpuOptions) {
    let device = kiln_cpu::open(options).unwrap();
    let singles = ROWS.iter().chain(ROWS_F32).map(|row| (row, Precision::Single));
    let all = singles.chain(ROWS.iter().map(|row| (row, Precision::Half)));
    let faults: Vec<String> = all.filter_map(|(row, precision)| check(&device, row, precision)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn functions_are_as_accurate_as_wgsl_asks_in_vectors() {
    check_all(CpuOptions::new());
}

#[test]
fn functions_are_as_accurate_as_wgsl_asks_one_by_one() {
    check_all(CpuOptions::new().simd(SimdLevel::Scalar));
}
