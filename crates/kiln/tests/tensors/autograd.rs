//! Autograd: tracking, accumulation, execution and errors.

use crate::devices;
use kiln::autograd::{BackwardOptions, GradientCheck, check_gradients};
use kiln::ir::op::{ElementOp, Float, FloatOp};
use kiln::{DType, Device, ErrorKind, Result, Tensor, checkpoint, grad, no_grad, value_and_grad};

fn tensor(elements: &[f32], device: &Device) -> Tensor {
    Tensor::from_slice(elements, elements.len(), device).unwrap()
}

fn leaf(elements: &[f32], device: &Device) -> Tensor {
    tensor(elements, device).requires_grad().unwrap()
}

fn gradient(leaf: &Tensor) -> Vec<f32> {
    leaf.grad().expect("a gradient").to_vec().unwrap()
}

/// The backward pass of a chain of elementwise ops is one kernel per gradient, without stored intermediates.
#[test]
fn the_gradient_of_a_chain_is_one_kernel() {
    for subject in devices::all() {
        let x = leaf(&[0.5, -1.0, 2.0, 0.25], &subject.device);
        let w = leaf(&[1.5, 0.5, -0.5, 2.0], &subject.device);
        let y = x.mul(&w).unwrap().add_scalar(1.0).unwrap().tanh().unwrap().mul(&x).unwrap().gelu().unwrap();
        y.sum_all().unwrap().backward().unwrap();
        for leaf in [&x, &w] {
            let explanation = leaf.grad().unwrap().explain().unwrap();
            assert_eq!(explanation.kernels(), 1, "{}: {explanation}", subject.name);
            // Bytes read and written: both inputs and the gradient.
            assert_eq!(explanation.bytes_moved(), 3 * 16, "{explanation}");
        }
    }
}

/// If the loss is read before `backward`, matrix products are not recomputed.
#[test]
fn what_kernels_computed_is_kept_for_the_gradients() {
    let device = devices::cpu();
    let x = Tensor::rand((8, 16), DType::F32, device).unwrap();
    let w = Tensor::rand((16, 4), DType::F32, device).unwrap().requires_grad().unwrap();
    let v = Tensor::rand((4, 3), DType::F32, device).unwrap();
    // Without gradients the first product and GELU are one kernel, and the product is not stored.
    let loss = x.matmul(&w).unwrap().gelu().unwrap().matmul(&v).unwrap().sum_all().unwrap();
    loss.eval().unwrap();
    loss.backward().unwrap();
    // One for the gradient of the second product, one for that of the first; the first product is not recomputed.
    let explanation = w.grad().unwrap().explain().unwrap();
    assert_eq!(explanation.kernel_names().filter(|name| name.contains("matmul")).count(), 2, "{explanation}");
}

#[test]
fn gradients_are_added_up() {
    let device = devices::cpu();
    let x = leaf(&[3.0], device);
    // Several uses of one tensor, and several calls.
    let y = x.mul(&x).unwrap().add(&x).unwrap();
    y.backward_with(BackwardOptions::new().retain_graph()).unwrap();
    assert_eq!(gradient(&x), [7.0]);
    y.backward().unwrap();
    assert_eq!(gradient(&x), [14.0]);
    x.set_grad(None).unwrap();
    assert!(x.grad().is_none());
    x.mul_scalar(2.0).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [2.0]);
}

#[test]
fn what_is_not_tracked_has_no_gradient() {
    let device = devices::cpu();
    let (x, c) = (leaf(&[3.0], device), tensor(&[2.0], device));
    let y = x.mul(&c).unwrap();
    assert!(y.is_tracked() && !c.is_tracked() && !y.detach().is_tracked());
    assert!(!x.gt(&c).unwrap().is_tracked(), "an answer has no gradient");
    assert!(!no_grad(|| x.exp()).unwrap().is_tracked());
    // The mode is per thread and ends with the scope, also on panic.
    std::thread::scope(|scope| {
        no_grad(|| assert!(scope.spawn(|| x.exp().unwrap().is_tracked()).join().unwrap()));
    });
    let panicked = std::panic::catch_unwind(|| no_grad(|| panic!("inside")));
    assert!(panicked.is_err() && x.exp().unwrap().is_tracked());
    x.mul(&y.detach()).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [6.0]);
    assert!(c.grad().is_none() && y.grad().is_none());
    // A view of a stored tensor is tracked too.
    let m = leaf(&[1.0, 2.0, 3.0], device);
    m.slice(0, 1..2).unwrap().square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&m), [0.0, 4.0, 0.0]);
}

#[test]
fn gradients_cross_devices() {
    let other = Device::cpu().unwrap();
    let x = leaf(&[3.0, 4.0], devices::cpu());
    let y = x.square().unwrap().to_device(&other).unwrap();
    y.exp().unwrap().log().unwrap().sum_all().unwrap().backward().unwrap();
    let found = gradient(&x);
    assert!((found[0] - 6.0).abs() < 1e-4 && (found[1] - 8.0).abs() < 1e-4, "{found:?}");
    assert!(x.grad().unwrap().device().is_same(devices::cpu()));
}

#[test]
fn gradients_of_gradients() {
    let device = devices::cpu();
    let x = tensor(&[0.7, -0.4], device);
    // Elementwise: the second derivative of sin(x²) is 2 cos(x²) - 4 x² sin(x²).
    let first = |p: &[Tensor]| Ok(grad(|p| p[0].square()?.sin()?.sum_all(), &[&p[0]])?.remove(0));
    let second = grad(|p| first(p)?.sum_all(), &[&x]).unwrap()[0].to_vec::<f32>().unwrap();
    for (found, x) in second.iter().zip([0.7f64, -0.4]) {
        let wanted = 2.0 * (x * x).cos() - 4.0 * x * x * (x * x).sin();
        assert!((f64::from(*found) - wanted).abs() < 1e-5, "{found} {wanted}");
    }
    // By finite differences, through matrix products: the gradient of the norm of a gradient.
    let (a, b) = (tensor(&[0.5, -1.0, 0.25, 2.0], device), tensor(&[1.0, 0.5, -0.5, 0.75], device));
    let (a, b) = (a.reshape((2, 2)).unwrap(), b.reshape((2, 2)).unwrap());
    let norm = |p: &[Tensor]| {
        let gradients = grad(|p| p[0].matmul(&p[1])?.tanh()?.sum_all(), &[&p[0], &p[1]])?;
        gradients[0].square()?.sum_all()?.add(&gradients[1].square()?.sum_all()?)
    };
    let report = check_gradients(norm, &[&a, &b], GradientCheck::new()).unwrap();
    assert!(report.passed(), "{report}");
    assert_eq!(report.checked(), 8);
    // The same with `backward`.
    let x = leaf(&[2.0], device);
    x.square().unwrap().mul(&x).unwrap().backward_with(BackwardOptions::new().create_graph()).unwrap();
    let slope = x.grad().unwrap();
    x.set_grad(None).unwrap();
    slope.backward().unwrap();
    assert_eq!(gradient(&x), [12.0]);
}

#[test]
fn functions_have_gradients() {
    let device = devices::cpu();
    let (x, y) = (tensor(&[1.0, 2.0], device), tensor(&[5.0], device));
    let (value, gradients) = value_and_grad(|p| p[0].square()?.sum_all(), &[&x, &y]).unwrap();
    assert_eq!(value.to_scalar::<f32>().unwrap(), 5.0);
    assert!(!value.is_tracked() && !gradients[0].is_tracked());
    assert_eq!(gradients[0].to_vec::<f32>().unwrap(), [2.0, 4.0]);
    // An input that the function does not use.
    assert_eq!(gradients[1].to_vec::<f32>().unwrap(), [0.0]);
    assert!(x.grad().is_none());
}

fn deep(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    // Each layer keeps its product for the gradient.
    (0..6).try_fold(x.clone(), |x, _| x.matmul(w)?.gelu())
}

/// A checkpointed function gives bit-identical gradients with a lower peak of memory.
#[test]
fn checkpoints_save_memory() {
    let device = Device::cpu().unwrap();
    let size = 128;
    let make = |seed: f32| {
        let elements: Vec<f32> = (0..size * size).map(|i| ((i as f32 * 0.37 + seed).sin()) / 12.0).collect();
        Tensor::from_slice(&elements, (size, size), &device).unwrap()
    };
    let (x, w) = (make(0.0).requires_grad().unwrap(), make(1.0).requires_grad().unwrap());
    let in_use = || device.pool().statistics().bytes_in_use;
    let mut kept = Vec::new();
    let mut results = Vec::new();
    for is_checkpoint in [false, true] {
        let before = in_use();
        let y = if is_checkpoint {
            let w = w.clone();
            checkpoint(move |x| deep(&x[0], &w), &[&x]).unwrap()
        } else {
            deep(&x, &w).unwrap()
        };
        let loss = y.sum_all().unwrap();
        loss.eval().unwrap();
        kept.push(in_use() - before);
        loss.backward().unwrap();
        results.push((gradient(&x), gradient(&w)));
        x.set_grad(None).unwrap();
        w.set_grad(None).unwrap();
    }
    assert_eq!(results[0], results[1]);
    let matrix = (size * size * 4) as u64;
    // At least six products without a checkpoint; the result and the sum with it.
    assert!(kept[0] >= 6 * matrix && kept[1] <= 2 * matrix, "{kept:?} bytes, {matrix} each");
}

#[test]
fn a_checkpoint_inside_of_a_checkpoint() {
    let device = devices::cpu();
    let (x, w) = (leaf(&[0.5, 1.0], device), leaf(&[2.0, 3.0], device));
    let inner = w.clone();
    let outer = move |x: &[Tensor]| {
        let w = inner.clone();
        checkpoint(move |x| x[0].mul(&w), &[&x[0].exp()?])?.sin()
    };
    checkpoint(outer, &[&x]).unwrap().sum_all().unwrap().backward().unwrap();
    let found = (gradient(&x), gradient(&w));
    x.set_grad(None).unwrap();
    w.set_grad(None).unwrap();
    x.exp().unwrap().mul(&w).unwrap().sin().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(found, (gradient(&x), gradient(&w)));
    assert!(!no_grad(|| checkpoint(|x| x[0].exp(), &[&x])).unwrap().is_tracked());
}

/// Captured tensors keep their history, and gradients reach parameters that a checkpoint captures.
#[test]
fn functions_leave_what_they_use_alone() {
    let device = devices::cpu();
    let (x, w) = (tensor(&[2.0], device), leaf(&[3.0], device));
    let h = w.square().unwrap();
    let slope = no_grad(|| grad(|p| p[0].mul(&h)?.sum_all(), &[&x])).unwrap();
    assert_eq!(slope[0].to_vec::<f32>().unwrap(), [9.0]);
    h.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&w), [6.0]);
    let captured = |p: &[Tensor]| {
        let c = p[0].clone();
        checkpoint(move |inputs| inputs[0].mul(&c), &[&p[0].square()?])?.sum_all()
    };
    for x in [tensor(&[2.0], device), leaf(&[2.0], device)] {
        assert_eq!(grad(captured, &[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [12.0]); // x³
    }
    // The check tracks even inside `no_grad`.
    let report = no_grad(|| check_gradients(|p| p[0].exp(), &[&x], GradientCheck::new())).unwrap();
    assert!(report.passed(), "{report}");
    assert!(check_gradients(|p| p[0].exp(), &[&x], GradientCheck::new().max_elements(0)).is_err());
}

/// Several threads accumulate into the gradient of one leaf.
#[test]
fn threads_add_up_gradients() {
    let x = leaf(&[1.0], devices::cpu());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| x.mul_scalar(1.0).unwrap().backward().unwrap()));
        }
    });
    assert_eq!(gradient(&x), [400.0]);
}

/// A long history does not overflow the stack.
#[test]
fn a_long_history_is_walked_and_dropped() {
    let x = leaf(&[1.0], devices::cpu());
    let chain = |length: usize| {
        let mut y = x.clone();
        for _ in 0..length {
            y = y.mul_scalar(1.0).unwrap();
        }
        y
    };
    drop(chain(50_000));
    chain(5_000).backward().unwrap();
    assert_eq!(gradient(&x), [1.0]);
}

/// A graph freed by `backward` holds no memory.
#[test]
fn backward_lets_the_graph_go() {
    let device = Device::cpu().unwrap();
    let x = Tensor::rand((64, 64), DType::F32, &device).unwrap().requires_grad().unwrap();
    let in_use = || device.pool().statistics().bytes_in_use;
    let start = in_use();
    let loss = deep(&x, &x).unwrap().sum_all().unwrap();
    loss.eval().unwrap();
    let full = in_use();
    loss.backward().unwrap();
    x.set_grad(None).unwrap();
    assert!(full >= start + 6 * 64 * 64 * 4, "{full} {start}");
    assert!(in_use() <= start + 1024, "{} {start}", in_use());
}

#[test]
fn errors_say_what_was_expected() {
    let device = devices::cpu();
    let x = leaf(&[1.0, 2.0], device);
    let integers = Tensor::from_slice(&[1u32, 2], 2, device).unwrap();
    let y = x.exp().unwrap().sum_all().unwrap();
    y.backward().unwrap();
    let other = tensor(&[1.0, 2.0, 3.0], device);
    let half = x.to_dtype(DType::F16).unwrap();
    let cases: [(&str, kiln::Error, ErrorKind, &[&str]); 8] = [
        ("integers", integers.requires_grad().unwrap_err(), ErrorKind::Unsupported, &["requires_grad", "u32"]),
        ("twice", y.backward().unwrap_err(), ErrorKind::InvalidArgument, &["earlier backward", "retain_graph"]),
        (
            "untracked",
            other.sum_all().unwrap().backward().unwrap_err(),
            ErrorKind::InvalidArgument,
            &["not tracked", "requires_grad"],
        ),
        ("many", x.exp().unwrap().backward().unwrap_err(), ErrorKind::InvalidArgument, &["one element", "(2,)"]),
        (
            "a gradient of another shape",
            x.exp().unwrap().backward_with(BackwardOptions::new().gradient(&other)).unwrap_err(),
            ErrorKind::ShapeMismatch,
            &["(2,)", "(3,)"],
        ),
        (
            "a gradient of another dtype",
            x.exp().unwrap().backward_with(BackwardOptions::new().gradient(&half.detach())).unwrap_err(),
            ErrorKind::InvalidArgument,
            &["f32", "f16"],
        ),
        (
            "set_grad of a result",
            x.exp().unwrap().set_grad(None).unwrap_err(),
            ErrorKind::InvalidArgument,
            &["requires_grad"],
        ),
        (
            "an op without a gradient",
            Tensor::apply(&PLAIN, &[&x]).unwrap().sum_all().unwrap().backward().unwrap_err(),
            ErrorKind::Unsupported,
            &["plain", "declares none"],
        ),
    ];
    for (what, error, kind, parts) in cases {
        assert_eq!(error.kind(), kind, "{what}: {error}");
        let text = format!("{error:#}");
        assert!(parts.iter().all(|part| text.contains(part)), "{what}: {text}");
    }
    // A failed call does not change gradients.
    assert_eq!(gradient(&x).len(), 2);
}

struct Same;

impl FloatOp<1> for Same {
    fn eval<T: Float>([x]: [T; 1]) -> T {
        x * x
    }
}

/// An op without a gradient.
static PLAIN: ElementOp = ElementOp::float::<Same, 1>("plain", "A square.", [(-3.0, 3.0)], |x| x[0] * x[0]);

/// An op with a wrong gradient, which is correct only at 1.
static WRONG: ElementOp = ElementOp::float::<Same, 1>("wrong", "A square.", [(-3.0, 3.0)], |x| x[0] * x[0])
    .gradient(|x, _, g| kiln::ir::gradient::each([g * x[0] * x[0] * 2.0]));

/// The check finds a wrong gradient and its index; an element that happens to be correct is not reported.
#[test]
fn a_wrong_gradient_is_found() {
    let x = tensor(&[1.0, 0.5, -1.5], devices::cpu());
    let report = check_gradients(|p| Tensor::apply(&WRONG, &[&p[0]]), &[&x], GradientCheck::new()).unwrap();
    assert_eq!((report.passed(), report.failed(), report.checked()), (false, 2, 3), "{report}");
    let text = report.to_string();
    assert!(text.contains("input 0 (3,): 2 of 3 elements failed; largest error at [2]"), "{text}");
    // A missing gradient, because of `detach`.
    let report = check_gradients(|p| p[0].mul(&p[0].detach()), &[&x], GradientCheck::new()).unwrap();
    assert_eq!(report.failed(), 3, "{report}");
    // NaN fails too.
    let zero = tensor(&[0.0], devices::cpu());
    let report =
        check_gradients(|p| p[0].mul_scalar(0.0)?.div(&p[0].detach().mul_scalar(0.0)?), &[&zero], GradientCheck::new());
    assert!(!report.unwrap().passed());
    let error = check_gradients(|p| p[0].exp(), &[&x.to_dtype(DType::F16).unwrap()], GradientCheck::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let error = check_gradients(|p| p[0].exp(), &[&x], GradientCheck::new().step(0.0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// The same seed on the same device gives the same bits.
#[test]
fn gradients_are_the_same_each_time() {
    let run = || {
        let device = Device::cpu().unwrap();
        let x = Tensor::randn((16, 32), DType::F32, &device).unwrap();
        let w = Tensor::randn((32, 8), DType::F32, &device).unwrap().requires_grad().unwrap();
        let loss = x.matmul(&w).unwrap().dropout(0.3, 5).unwrap().log_softmax(1).unwrap().mean_all().unwrap();
        loss.backward().unwrap();
        (loss.to_vec::<f32>().unwrap(), gradient(&w))
    };
    assert_eq!(run(), run());
}

/// The gradients of slices are joined once: the bytes and kernels of a recurrent layer's backward grow with the length of the sequence, not with its square.
#[test]
#[cfg(feature = "events")] // Devices count bytes and launches as events.
fn backward_of_a_sequence_is_linear_in_its_length() {
    use kiln::nn::{Gru, Lstm, Mode, Module};
    type Make = fn(&Device) -> Box<dyn Module>;
    let layers: [(&str, Make); 2] = [
        ("lstm", |device| Box::new(Lstm::new(3, 8, device).unwrap())),
        ("gru", |device| Box::new(Gru::new(3, 8, device).unwrap())),
    ];
    for (name, make) in layers {
        let cost = |length: usize| {
            let device = Device::cpu().unwrap();
            let layer = make(&device);
            let x = Tensor::ones((2, length, 3), DType::F32, &device).unwrap().requires_grad().unwrap();
            device.set_profiling(true);
            layer.forward(&x, &Mode::inference()).unwrap().sum_all().unwrap().backward().unwrap();
            x.grad().unwrap().eval().unwrap();
            device.synchronize().unwrap();
            let kernels = device.kernel_statistics();
            let sum = |of: fn(&kiln::observe::KernelStatistics) -> u64| kernels.iter().map(of).sum::<u64>() as f64;
            [sum(|kernel| kernel.bytes), sum(|kernel| kernel.launches)]
        };
        let (short, long) = (cost(32), cost(128));
        for what in 0..2 {
            // 1 if linear, 4 if quadratic. Long graphs run in parts, which compute some results of earlier parts again.
            let growth = long[what] / short[what] / 4.0;
            assert!(growth < 2.0, "{name}: {growth} times as much for each step: {short:?}, {long:?}");
        }
    }
}

/// Slices that overlap, repeat, leave gaps, are empty, or are along several axes, with a use of the whole tensor.
#[test]
fn gradients_of_slices_are_added_where_they_belong() {
    for subject in devices::all() {
        let device = &subject.device;
        let x = Tensor::from_slice(&[0.0f32; 12], (3, 4), device).unwrap().requires_grad().unwrap();
        // Rows and columns with a weight each: the gradient of an element is the sum of the weights of the slices that it is in.
        let slices =
            [(1, 0..2, 1.0), (1, 1..3, 10.0), (1, 0..2, 100.0), (1, 2..2, 7.0), (0, 1..2, 1000.0), (0, 2..3, 5000.0)];
        let mut sum = x.sum_all().unwrap().mul_scalar(0.5).unwrap();
        let mut wanted = [[0.5f32; 4]; 3];
        for (axis, range, weight) in slices {
            sum =
                sum.add(&x.slice(axis, range.clone()).unwrap().sum_all().unwrap().mul_scalar(weight).unwrap()).unwrap();
            for (row, elements) in wanted.iter_mut().enumerate() {
                for (column, element) in elements.iter_mut().enumerate() {
                    if range.contains(if axis == 0 { &row } else { &column }) {
                        *element += weight as f32;
                    }
                }
            }
        }
        sum.backward().unwrap();
        assert_eq!(x.grad().unwrap().to_vec2::<f32>().unwrap(), wanted, "{}", subject.name);
        // Only an empty slice.
        let y = Tensor::ones(3, DType::F32, device).unwrap().requires_grad().unwrap();
        y.slice(0, 1..1).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(y.grad().unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
    }
}
