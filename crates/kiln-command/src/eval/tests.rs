//! Expressions from text to elements, without the program around them.

use super::ast::Operator;
use super::evaluate::evaluate;
use super::facts::facts;
use super::facts::{Gradient, Kind};
use super::fault::Fault;
use super::parse::parse;
use super::report::Data;
use kiln::function::{Dynamic, Function};
use kiln::ir::op::Signature;
use kiln::{Device, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The variables of the expressions below.
fn variables(device: &Device) -> BTreeMap<String, Dynamic> {
    let all = [
        ("a", Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], (2, 3), device)),
        ("b", Tensor::from_slice(&[1.0f32, 0.0, -1.0, 2.0, -2.0, 0.5], (2, 3), device)),
        ("v", Tensor::from_slice(&[1.0f32, 2.0, 3.0], 3, device)),
        ("m", Tensor::from_slice(&[1i32, -2, 3, 4], (2, 2), device)),
        ("u", Tensor::from_slice(&[0u8, 1, 2], 3, device)),
        ("i", Tensor::from_slice(&[1u32, 0], 2, device)),
        ("h", Tensor::from_slice(&[1.5f32, -0.5], 2, device).and_then(|h| h.to_dtype(kiln::DType::F16))),
        ("empty", Tensor::from_slice::<f32>(&[], (0, 3), device)),
    ];
    all.into_iter().map(|(name, tensor)| (name.to_string(), Dynamic::Tensor(tensor.unwrap()))).collect()
}

fn eval(source: &str, device: &Device) -> Result<Tensor, Fault> {
    evaluate(&parse(source)?, variables(device), device)
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    match Data::of(tensor).unwrap() {
        Data::Floats(data) => data.into_iter().map(f64::from).collect(),
        Data::Doubles(data) => data,
        Data::Integers(data) => data.into_iter().map(|x| x as f64).collect(),
        Data::Truth(data) => data.into_iter().map(|x| f64::from(u8::from(x))).collect(),
    }
}

/// Expression, dtype and shape, elements.
type Row = (&'static str, &'static str, &'static [f64]);

const OPERATORS: &[Row] = &[
    ("a + b", "f32 (2, 3)", &[2.0, 2.0, 2.0, 6.0, 3.0, 6.5]),
    ("a - b*2", "f32 (2, 3)", &[-1.0, 2.0, 5.0, 0.0, 9.0, 5.0]),
    ("a / 2", "f32 (2, 3)", &[0.5, 1.0, 1.5, 2.0, 2.5, 3.0]),
    ("12 / v", "f32 (3,)", &[12.0, 6.0, 4.0]),
    ("v ** 2", "f32 (3,)", &[1.0, 4.0, 9.0]),
    ("2 ** v", "f32 (3,)", &[2.0, 4.0, 8.0]),
    ("-v + 0", "f32 (3,)", &[-1.0, -2.0, -3.0]),
    ("a @ b.T", "f32 (2, 2)", &[-2.0, -0.5, -2.0, 1.0]),
    ("a @ v", "f32 (2,)", &[14.0, 32.0]),
    ("a > b + 3", "u8 (2, 3)", &[0.0, 0.0, 1.0, 0.0, 1.0, 1.0]),
    ("v == 2", "u8 (3,)", &[0.0, 1.0, 0.0]),
    ("v != 2", "u8 (3,)", &[1.0, 0.0, 1.0]),
    ("v <= 2", "u8 (3,)", &[1.0, 1.0, 0.0]),
    ("2 < v", "u8 (3,)", &[0.0, 0.0, 1.0]),
    ("v >= 2", "u8 (3,)", &[0.0, 1.0, 1.0]),
    ("m * 2 - 1", "i32 (2, 2)", &[1.0, -5.0, 5.0, 7.0]),
    ("u * 200", "u8 (3,)", &[0.0, 200.0, 144.0]),
    ("h * 2", "f16 (2,)", &[3.0, -1.0]),
    ("2 * 3 + 4 ** 0.5", "f32 ()", &[8.0]),
    ("-inf", "f32 ()", &[f64::NEG_INFINITY]),
    ("a + v", "f32 (2, 3)", &[2.0, 4.0, 6.0, 5.0, 7.0, 9.0]),
    ("empty + v", "f32 (0, 3)", &[]),
    ("y = a*b; z = y.sum(1); z - y[:, 0]", "f32 (2,)", &[-3.0, -7.0]),
    ("a = a[0]; a", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("s = (3, -1); a.reshape(s)", "f32 (3, 2)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
];

const INDICES: &[Row] = &[
    ("a[0]", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("a[-1, 1]", "f32 ()", &[5.0]),
    ("a[:, 1]", "f32 (2,)", &[2.0, 5.0]),
    ("a[..., 1]", "f32 (2,)", &[2.0, 5.0]),
    ("a[0, ...]", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("a[...]", "f32 (2, 3)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ("a[1:, ::2]", "f32 (1, 2)", &[4.0, 6.0]),
    ("a[:, ::-1]", "f32 (2, 3)", &[3.0, 2.0, 1.0, 6.0, 5.0, 4.0]),
    ("a[:, -1:-9:-2]", "f32 (2, 2)", &[3.0, 1.0, 6.0, 4.0]),
    ("a[:, 7:]", "f32 (2, 0)", &[]),
    ("v[none, :]", "f32 (1, 3)", &[1.0, 2.0, 3.0]),
    ("v[:, None]", "f32 (3, 1)", &[1.0, 2.0, 3.0]),
    ("v[None, ..., None]", "f32 (1, 3, 1)", &[1.0, 2.0, 3.0]),
    ("v[1+1]", "f32 ()", &[3.0]),
    ("a[1][2]", "f32 ()", &[6.0]),
];

/// Contains every function that is not elementwise, and both forms of a call.
const FUNCTIONS: &[Row] = &[
    ("relu(a*b+1).sum(1)", "f32 (2,)", &[3.0, 13.0]),
    ("sum(a)", "f32 ()", &[21.0]),
    ("a.sum(axis=(0, 1))", "f32 ()", &[21.0]),
    ("a.sum(-1, keepdim=true)", "f32 (2, 1)", &[6.0, 15.0]),
    ("u.sum()", "u32 ()", &[3.0]),
    ("a.mean(0)", "f32 (3,)", &[2.5, 3.5, 4.5]),
    ("a.max(axis=1)", "f32 (2,)", &[3.0, 6.0]),
    ("min(b, 0, true)", "f32 (1, 3)", &[1.0, -2.0, -1.0]),
    ("b.argmax(1)", "u32 (2,)", &[0.0, 0.0]),
    ("b.argmin(1)", "u32 (2,)", &[2.0, 1.0]),
    ("a.var(1)", "f32 (2,)", &[1.0, 1.0]),
    ("std(a, 0, keepdim=true)", "f32 (1, 3)", &[2.121_320_343_559_642_4; 3]),
    ("norm(v*0+2)", "f32 ()", &[3.464_101_615_137_754_4]),
    ("v.logsumexp(0)", "f32 ()", &[3.407_605_964_444_38]),
    ("flatten_from(a.unsqueeze(0), 1)", "f32 (1, 6)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ("a.narrow(1, 1, 2)", "f32 (2, 2)", &[2.0, 3.0, 5.0, 6.0]),
    ("v.repeat(2, 1)", "f32 (2, 3)", &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]),
    ("v.roll(1, 0)", "f32 (3,)", &[3.0, 1.0, 2.0]),
    ("v.masked_fill(v > 1, 0)", "f32 (3,)", &[1.0, 0.0, 0.0]),
    ("one_hot(i, 2)", "f32 (2, 2)", &[0.0, 1.0, 1.0, 0.0]),
    ("nonzero(v > 1)", "u32 (2, 1)", &[1.0, 2.0]),
    ("unique(cat(v, v))", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("zeros_like(v) + ones_like(v) + full_like(v, 5)", "f32 (3,)", &[6.0; 3]),
    ("(rand_like(v) + randn_like(v)) * 0", "f32 (3,)", &[0.0; 3]),
    ("linspace(0, 1, 3)", "f32 (3,)", &[0.0, 0.5, 1.0]),
    ("softmax(a*0)", "f32 (2, 3)", &[1.0 / 3.0; 6]),
    ("softmax(a*0, axis=0)", "f32 (2, 3)", &[0.5; 6]),
    ("log_softmax(a*0, 0).exp()", "f32 (2, 3)", &[0.5; 6]),
    ("v[:2].layer_norm(eps=0)", "f32 (2,)", &[-1.0, 1.0]),
    ("layer_norm(v[:2], v[:2], bias=v[1:], eps=0)", "f32 (2,)", &[1.0, 5.0]),
    ("rms_norm(v*0+2, eps=0)", "f32 (3,)", &[1.0; 3]),
    ("rms_norm(v*0+2, weight=v, eps=0)", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("a.batch_norm(v, v*0+4, eps=0)", "f32 (2, 3)", &[0.0, 0.0, 0.0, 1.5, 1.5, 1.5]),
    ("matmul(a, v)", "f32 (2,)", &[14.0, 32.0]),
    ("T(a)", "f32 (3, 2)", &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
    ("a.T", "f32 (3, 2)", &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
    ("a.transpose(0, -1)", "f32 (3, 2)", &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
    ("a.permute(1, 0)", "f32 (3, 2)", &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
    ("permute(a, axes=[1, 0])", "f32 (3, 2)", &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
    ("a.reshape(3, 2)", "f32 (3, 2)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ("reshape(a, (-1, 2)).reshape([6])", "f32 (6,)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ("v[1].reshape(())", "f32 ()", &[2.0]),
    ("a.flatten()", "f32 (6,)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ("v.broadcast_to(2, 3)", "f32 (2, 3)", &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]),
    ("v.flip(0)", "f32 (3,)", &[3.0, 2.0, 1.0]),
    ("v.unsqueeze(1).squeeze(-1)", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("v.unsqueeze(-1)", "f32 (3, 1)", &[1.0, 2.0, 3.0]),
    ("cat(v, v*2)", "f32 (6,)", &[1.0, 2.0, 3.0, 2.0, 4.0, 6.0]),
    ("cat([a, a], axis=1).sum(1)", "f32 (2,)", &[12.0, 30.0]),
    ("stack(v, v, axis=1)", "f32 (3, 2)", &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]),
    ("(v + 0.6).to(i32)", "i32 (3,)", &[1.0, 2.0, 3.0]),
    ("to(v, dtype='bf16')", "bf16 (3,)", &[1.0, 2.0, 3.0]),
    ("to_dtype(v, u8)", "u8 (3,)", &[1.0, 2.0, 3.0]),
    ("a.gather(1, i.reshape(2, 1))", "f32 (2, 1)", &[2.0, 4.0]),
    ("a.index_select(1, i)", "f32 (2, 2)", &[2.0, 1.0, 5.0, 4.0]),
    ("embedding(a, i)", "f32 (2, 3)", &[4.0, 5.0, 6.0, 1.0, 2.0, 3.0]),
    ("scatter(v, 0, i, v[1:])", "f32 (3,)", &[3.0, 2.0, 3.0]),
    ("scatter_add(v, 0, i, v[1:])", "f32 (3,)", &[4.0, 4.0, 3.0]),
    ("cumsum(a)", "f32 (2, 3)", &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0]),
    ("a.cumprod(axis=0)", "f32 (2, 3)", &[1.0, 2.0, 3.0, 4.0, 10.0, 18.0]),
    ("b.sort(1)", "f32 (2, 3)", &[-1.0, 0.0, 1.0, -2.0, 0.5, 2.0]),
    ("b.sort(1, descending=true) - b.sort(1).flip(1)", "f32 (2, 3)", &[0.0; 6]),
    ("v.argsort(descending=true)", "u32 (3,)", &[2.0, 1.0, 0.0]),
    ("a.topk(2)", "f32 (2, 2)", &[3.0, 2.0, 6.0, 5.0]),
    ("topk(a, 1, 0, largest=false)", "f32 (1, 3)", &[1.0, 2.0, 3.0]),
    ("max_pool2d(a.reshape(1, 1, 2, 3), 2)", "f32 (1, 1, 1, 1)", &[5.0]),
    ("avg_pool2d(a.reshape(1, 1, 2, 3), [2, 1], stride=1)", "f32 (1, 1, 1, 3)", &[2.5, 3.5, 4.5]),
    ("max_pool1d(a.unsqueeze(0), 3)", "f32 (1, 2, 1)", &[3.0, 6.0]),
    ("avg_pool1d(a.unsqueeze(0), 2, stride=1)", "f32 (1, 2, 2)", &[1.5, 2.5, 4.5, 5.5]),
    ("adaptive_avg_pool2d(a.reshape(1, 1, 2, 3), [1, 2])", "f32 (1, 1, 1, 2)", &[3.0, 4.0]),
    ("einsum('ij,j->i', a, v)", "f32 (2,)", &[14.0, 32.0]),
    ("attention(a*0, a, a)", "f32 (2, 3)", &[2.5, 3.5, 4.5, 2.5, 3.5, 4.5]),
    ("attention(a*0, a, a, scale=1, causal=true)", "f32 (2, 3)", &[1.0, 2.0, 3.0, 2.5, 3.5, 4.5]),
    ("attention(a, a, b, mask=i == 1)", "f32 (2, 3)", &[1.0, 0.0, -1.0, 1.0, 0.0, -1.0]),
    ("rope(a[:, :2])[0]", "f32 (2,)", &[1.0, 2.0]),
    ("dropout(v, 0)", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("(rand(3) < 1) * (rand((3,)) >= 0)", "u8 (3,)", &[1.0; 3]),
    ("randn(2, 2, dtype=f16) * 0", "f16 (2, 2)", &[0.0; 4]),
    ("full((2,), 7, u8)", "u8 (2,)", &[7.0, 7.0]),
    ("full(2, 0.5)", "f32 (2,)", &[0.5, 0.5]),
    ("ones(2)", "f32 (2,)", &[1.0, 1.0]),
    ("zeros(2, dtype=i32)", "i32 (2,)", &[0.0, 0.0]),
    ("arange(1, 2, 0.25)", "f32 (4,)", &[1.0, 1.25, 1.5, 1.75]),
    ("eye(2, i32)", "i32 (2, 2)", &[1.0, 0.0, 0.0, 1.0]),
    ("tri(2, 3, 1)", "f32 (2, 3)", &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0]),
    ("tril(a)", "f32 (2, 3)", &[1.0, 0.0, 0.0, 4.0, 5.0, 0.0]),
    ("triu(a, diagonal=1)", "f32 (2, 3)", &[0.0, 2.0, 3.0, 0.0, 0.0, 6.0]),
    ("maximum(v, 2)", "f32 (3,)", &[2.0, 2.0, 3.0]),
    ("v.clamp(high=2.5, low=1.5)", "f32 (3,)", &[1.5, 2.0, 2.5]),
    ("where(v > 1, v, 0)", "f32 (3,)", &[0.0, 2.0, 3.0]),
    ("where(u, m[0, 0], -1)", "i32 (3,)", &[-1.0, 1.0, 1.0]),
    ("where(v > 1, 1, 0)", "f32 (3,)", &[0.0, 1.0, 1.0]),
    ("where(true, v, 0)", "f32 (3,)", &[1.0, 2.0, 3.0]),
    ("sqrt(16)", "f32 ()", &[4.0]),
];

/// Expressions give the same elements as NumPy.
#[test]
fn expressions_have_the_elements_of_numpy() {
    let device = Device::cpu().unwrap();
    for (source, ty, expected) in [OPERATORS, INDICES, FUNCTIONS].concat() {
        let tensor = eval(source, &device).unwrap_or_else(|fault| panic!("{}", fault.render(source)));
        assert_eq!(format!("{} {}", tensor.dtype(), tensor.shape()), ty, "{source}");
        let found = numbers(&tensor);
        let is_near = |(found, expected): (&f64, &f64)| found == expected || (found - expected).abs() < 1e-6;
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(is_near),
            "{source}: expected {expected:?}, found {found:?}"
        );
    }
}

/// Every listed name can be called: elementwise ops with tensors, all others as in the table above.
#[test]
fn everything_that_is_listed_can_be_called() {
    let device = Device::cpu().unwrap();
    let called: String = FUNCTIONS.iter().map(|(source, ..)| *source).collect();
    let mut names = BTreeSet::new();
    for function in Function::all() {
        let (name, signature) = (function.name(), function.signature());
        assert!(names.insert(name), "{name} is there twice");
        assert!(signature.starts_with(&format!("{name}(")) && !function.doc().is_empty(), "{signature}");
        match function {
            Function::Method(_) => assert!(called.contains(&format!("{name}(")), "{signature} is not tested"),
            Function::Op(op) => {
                // An op takes floats, or integers, or only `u32`.
                let call = |variable: &str| {
                    let arguments =
                        if op.signature == Signature::Select { ["u", variable, "1"] } else { [variable, "1", "2"] };
                    format!("{name}({})", arguments[..op.arity()].join(", "))
                };
                let result = ["v", "i"].iter().find_map(|variable| eval(&call(variable), &device).ok());
                assert!(result.is_some_and(|tensor| !numbers(&tensor).is_empty()), "{signature}");
            }
        }
    }
    for operator in Operator::ALL {
        assert!(names.contains(operator.function), "{}", operator.symbol);
    }
    assert!(names.contains("neg") && Function::by_name("where_").is_none());
}

/// A fault marks the call that caused it, with what was expected and what was found.
#[test]
fn faults_of_evaluation_are_marked() {
    let sources = [
        "rleu(a)",
        "a.sotfmax()",
        "frobnicate(a)",
        "c + 1",
        "vv + 1",
        "sum",
        "a + m",
        "2 * (a + b[0, :2])",
        "a @ b",
        "relu(a, b)",
        "relu()",
        "a.sum(axes=1)",
        "a.sum(1, axis=0)",
        "a.sum(5)",
        "a.sum(1.5)",
        "a.sum(v)",
        "a.max(b)",
        "a.softmax(axis=none)",
        "softmax(m)",
        "a.reshape(4, -1)",
        "a.reshape(-1, -1)",
        "a.reshape(7)",
        "a.to(f128)",
        "a.to(7)",
        "a[2]",
        "a[0, 1, 2]",
        "a[..., ...]",
        "a[v]",
        "a[1.5]",
        "a[::0]",
        "(1, 2)",
        "f32",
        "'text'",
        "none",
        "2[0]",
        "(1, 2) + a",
        "m + 1.5",
        "u + 256",
        "a + true",
        "where(a, a, a)",
        "cat()",
        "cat(a, v)",
        "cat(a, (1, 2))",
        "zeros(-1)",
        "zeros(99999999999, 99999999999)",
        "einsum(a, a)",
        "einsum('ij,jk->ik', a, b)",
        "f32 = a; a",
        "y = 1; y(2)",
        "a.T(1)",
        "a.sum(keepdim=1)",
        "tri(1, 1, 1e12)",
        "full(2, 'x')",
        "dropout(v, 2)",
        "exp(m)",
        "clamp(v, 1)",
        "reshape(a, shape=(2, 3), shape=(3, 2))",
        "a.permute(0)",
        "max(a,\n  b)",
    ];
    let device = Device::cpu().unwrap();
    let mut shown = String::new();
    for source in sources {
        match eval(source, &device) {
            Err(fault) => writeln!(shown, "{}\n", fault.render(source)).unwrap(),
            Ok(tensor) => panic!("{source}: {tensor:?}"),
        }
    }
    insta::assert_snapshot!("faults", shown);
}

/// A chain of ops is as deep as it is long; neither the parser nor the tensors use stack for it.
#[test]
fn long_chains_need_no_stack() {
    let device = Device::cpu().unwrap();
    let source = format!("v{}", "+1".repeat(10_000));
    assert_eq!(numbers(&eval(&source, &device).unwrap()), [10_001.0, 10_002.0, 10_003.0]);
}

/// Any text is a tensor or a fault that can be formatted.
#[test]
fn random_words_and_bytes_are_tensors_or_faults() {
    const WORDS: [&str; 52] = [
        "a",
        "b",
        "v",
        "m",
        "u",
        "i",
        "h",
        "empty",
        "0",
        "1",
        "2",
        "-1",
        "1.5",
        "inf",
        "nan",
        "true",
        "none",
        "f16",
        "u8",
        "+",
        "-",
        "*",
        "/",
        "**",
        "@",
        "<",
        "==",
        "(",
        ")",
        "[",
        "]",
        "(",
        ")",
        ",",
        ".",
        ":",
        ";",
        "=",
        "...",
        "'x'",
        ".sum(",
        ".T",
        ".reshape(",
        "softmax(",
        "relu(",
        "cat(",
        ".to(",
        "axis=",
        "where(",
        "y",
        "é",
        "\n",
    ];
    let device = Device::cpu().unwrap();
    let mut state = 0x5eed_u64;
    let mut random = |below: usize| {
        // splitmix64 by Steele and Vigna.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    };
    let (mut tensors, mut faults) = (0, 0);
    for round in 0..20_000 {
        let source: String = if round % 4 == 0 {
            let bytes: Vec<u8> = (0..random(24)).map(|_| random(256) as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        } else {
            (0..1 + random(10)).map(|_| WORDS[random(WORDS.len())]).collect()
        };
        match eval(&source, &device) {
            Ok(_) => tensors += 1,
            Err(fault) => {
                faults += 1;
                assert!(fault.span.start <= fault.span.end && fault.span.end <= source.len(), "{source:?}: {fault:?}");
                assert!(fault.render(&source).lines().count() == 3, "{source:?}: {fault:?}");
            }
        }
    }
    assert!(tensors > 200 && faults > 10_000, "{tensors} tensors and {faults} faults: the words should make both");
}

/// The gradients that `kiln ops` reports match the op table for entries that take floats.
#[test]
fn facts_are_those_of_the_declarations() {
    let device = Device::cpu().unwrap();
    for function in Function::all() {
        let facts = facts(function, &device).unwrap_or_else(|error| panic!("{}: {error}", function.name()));
        let Function::Op(op) = function else { continue };
        let dtypes: Vec<&str> = match op.signature {
            Signature::Bits { .. } | Signature::BitsToFloat { .. } => vec!["u32"],
            _ => kiln::DType::ALL.into_iter().filter(|&dtype| op.takes_dtype(dtype)).map(kiln::DType::name).collect(),
        };
        assert_eq!((facts.kind, facts.dtypes), (Kind::Elementwise, dtypes), "{op:?}");
        let is_known = matches!(facts.gradient, Gradient::Yes | Gradient::Zero);
        assert_eq!(is_known, op.has_gradient() && op.takes(kiln::ir::Class::Float), "{op:?}");
    }
}
