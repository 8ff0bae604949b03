//! Layers, losses, optimizers and their saved state, against loops in `f64`.

use crate::devices;
use kiln::autograd::{GradientCheck, check_gradients};
use kiln::nn::Activation;
use kiln::nn::{
    self, BatchNorm, Dropout, Embedding, LayerNorm, Linear, Mode, Module, MultiHeadAttention, Parameter, RmsNorm,
    Sequential,
};
use kiln::optim::{Adam, LossScale, Optimizer, Rule, Schedule, Sgd};
use kiln::{DType, Device, ErrorKind, Tensor, checkpoint};
use std::sync::Arc;

pub(crate) fn wave(shape: &[usize], salt: f64, device: &Device) -> Tensor {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> = (0..count).map(|number| ((number as f64 * 0.73 + salt).sin()) as f32).collect();
    Tensor::from_slice(&elements, shape, device).unwrap()
}

pub(crate) fn near(what: &str, found: &[f32], wanted: &[f64], error: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((f64::from(*found) - wanted).abs() <= error, "{what}: {found} {wanted}");
    }
}

/// Each rule against the formulas of its authors, step by step, on every device.
#[test]
fn rules_follow_their_formulas() {
    type Formula = fn(&mut [f64; 4], f64, f64);
    type Make = fn() -> Box<dyn Rule>;
    // Arguments: the parameter, two states and the step number; its gradient; the learning rate.
    let rules: [(&str, Make, Formula); 6] = [
        ("sgd", || Box::new(Sgd::new()), |x, g, rate| x[0] -= rate * g),
        (
            "sgd with decay",
            || Box::new(Sgd::new().weight_decay(0.1)),
            |x, g, rate| {
                x[0] -= rate * (g + 0.1 * x[0]);
            },
        ),
        (
            "momentum",
            || Box::new(Sgd::new().momentum(0.9)),
            |x, g, rate| {
                x[1] = 0.9 * x[1] + g;
                x[0] -= rate * x[1];
            },
        ),
        (
            "nesterov",
            || Box::new(Sgd::new().momentum(0.9).nesterov().weight_decay(0.01)),
            |x, g, rate| {
                let g = g + 0.01 * x[0];
                x[1] = 0.9 * x[1] + g;
                x[0] -= rate * (g + 0.9 * x[1]);
            },
        ),
        (
            "adam",
            || Box::new(Adam::new().weight_decay(0.1)),
            |x, g, rate| {
                let g = g + 0.1 * x[0];
                x[1] = 0.9 * x[1] + 0.1 * g;
                x[2] = 0.999 * x[2] + 0.001 * g * g;
                let (mean, square) = (x[1] / (1.0 - 0.9f64.powf(x[3])), x[2] / (1.0 - 0.999f64.powf(x[3])));
                x[0] -= rate * mean / (square.sqrt() + 1e-8);
            },
        ),
        (
            "adamw",
            || Box::new(Adam::new().betas(0.8, 0.9).eps(1e-3).decoupled_weight_decay(0.1)),
            |x, g, rate| {
                x[0] -= rate * 0.1 * x[0];
                x[1] = 0.8 * x[1] + 0.2 * g;
                x[2] = 0.9 * x[2] + 0.1 * g * g;
                let (mean, square) = (x[1] / (1.0 - 0.8f64.powf(x[3])), x[2] / (1.0 - 0.9f64.powf(x[3])));
                x[0] -= rate * mean / (square.sqrt() + 1e-3);
            },
        ),
    ];
    for subject in devices::all() {
        for (name, rule, formula) in &rules {
            let starts = [wave(&[2, 3], 0.3, &subject.device), wave(&[5], 1.7, &subject.device)];
            let parameters: Vec<Parameter> = starts.iter().map(|start| Parameter::new(start).unwrap()).collect();
            let named = parameters.iter().enumerate().map(|(number, own)| (number.to_string(), own.clone())).collect();
            let mut optimizer = Optimizer::of(rule(), named).unwrap();
            let mut wanted: Vec<Vec<[f64; 4]>> = starts
                .iter()
                .map(|start| {
                    start.to_vec::<f32>().unwrap().into_iter().map(|x| [f64::from(x), 0.0, 0.0, 0.0]).collect()
                })
                .collect();
            for step in 1..=4 {
                let rate = 0.1 / f64::from(step);
                // The sum of cubes of the sine: gradients of both signs.
                for own in &parameters {
                    let sine = own.get().sin().unwrap();
                    sine.square().unwrap().mul(&sine).unwrap().sum_all().unwrap().backward().unwrap();
                }
                optimizer.step(rate).unwrap();
                for numbers in &mut wanted {
                    for x in numbers {
                        let gradient = 3.0 * x[0].sin().powi(2) * x[0].cos();
                        x[3] = f64::from(step);
                        formula(x, gradient, rate);
                    }
                }
                for (own, wanted) in parameters.iter().zip(&wanted) {
                    let wanted: Vec<f64> = wanted.iter().map(|x| x[0]).collect();
                    let what = format!("{name}, step {step}, on {}", subject.name);
                    near(&what, &own.get().to_vec::<f32>().unwrap(), &wanted, 2e-6);
                }
            }
            assert_eq!(optimizer.steps(), 4);
        }
    }
}

/// A step takes no more kernels for many parameters than for few.
#[test]
fn a_step_is_a_few_kernels() {
    if devices::gpu().is_none() {
        return;
    }
    // A separate device: no other test launches on it.
    let device = &Device::gpu(0).unwrap();
    let kernels = |layers: usize| {
        let layer = |net: Sequential, _| Ok::<_, kiln::Error>(net.with(Linear::new(4, 4, device)?));
        let net = (0..layers).try_fold(Sequential::new(), layer).unwrap();
        let mut optimizer = Optimizer::new(Adam::new(), &net).unwrap().clip_norm(1.0);
        let before = device.launches();
        for (_, own) in net.parameters() {
            // Gradients are already computed: only the step runs.
            own.get().set_grad(Some(own.get().detach())).unwrap();
        }
        let set = device.launches();
        optimizer.step(0.1).unwrap();
        assert_eq!(set, before);
        device.launches() - set
    };
    // One kernel packs gradients, one or two sum their squares, then one each for parameters, mean and square.
    let (few, many, most) = (kernels(1), kernels(7), kernels(40));
    assert!((5..=6).contains(&few), "{few}");
    assert_eq!((many, most), (few - 1, few - 1), "more than 7 gradients are brought together by copies");
}

/// Many parameters, some empty, with gradients in every layout.
#[test]
fn many_parameters_follow_their_own_gradients() {
    for subject in devices::all() {
        let device = &subject.device;
        let numbers = |count: usize, first: usize| (0..count).map(|i| (first + i) as f32 / 8.0).collect::<Vec<f32>>();
        let shapes = (0..40).map(|number| (number % 3, 1 + number % 5));
        let own: Vec<Parameter> = shapes
            .map(|(rows, columns)| {
                let start = Tensor::from_slice(&numbers(rows * columns, columns), (rows, columns), device).unwrap();
                Parameter::new(&start).unwrap()
            })
            .collect();
        for own in &own {
            let &[rows, columns] = &own.get().shape()[..] else { panic!("{}", own.get().shape()) };
            let slope = Tensor::from_slice(&numbers(rows * columns, 100 * columns), (columns, rows), device).unwrap();
            own.get().set_grad(Some(slope.t().unwrap())).unwrap();
        }
        let named = own.iter().enumerate().map(|(number, own)| (number.to_string(), own.clone())).collect();
        Optimizer::of(Sgd::new(), named).unwrap().step(0.5).unwrap();
        for own in &own {
            let &[rows, columns] = &own.get().shape()[..] else { panic!("{}", own.get().shape()) };
            let wanted = (0..rows * columns).map(|place| {
                let (row, column) = (place / columns, place % columns);
                (columns + place) as f64 / 8.0 - 0.5 * (100 * columns + column * rows + row) as f64 / 8.0
            });
            let found = own.get().to_vec::<f32>().unwrap();
            near(subject.name, &found, &wanted.collect::<Vec<_>>(), 1e-6);
        }
    }
}

#[test]
fn gradients_are_clipped_together() {
    for subject in devices::all().iter().filter(|subject| !subject.lacks_f16) {
        for (most, factor) in [(1.0, 1.0 / 5.0), (10.0, 1.0)] {
            let own: Vec<Parameter> = (0..2)
                .map(|_| Parameter::new(&Tensor::zeros(1, DType::F32, &subject.device).unwrap()).unwrap())
                .collect();
            let named = own.iter().enumerate().map(|(number, own)| (number.to_string(), own.clone())).collect();
            let mut optimizer = Optimizer::of(Sgd::new(), named).unwrap().clip_norm(most);
            for (own, slope) in own.iter().zip([3.0, -4.0]) {
                own.get().mul_scalar(slope).unwrap().sum_all().unwrap().backward().unwrap();
            }
            optimizer.step(1.0).unwrap();
            for (own, wanted) in own.iter().zip([-3.0, 4.0]) {
                near(subject.name, &own.get().to_vec::<f32>().unwrap(), &[wanted * factor], 1e-5);
            }
        }
    }
}

/// A step with a gradient that overflows `f16` is skipped; the scale is halved, and grows again later.
#[test]
fn overflow_skips_a_step() {
    let device = devices::cpu();
    let own = Parameter::new(&Tensor::ones(2, DType::F32, device).unwrap()).unwrap();
    let mut optimizer = Optimizer::of(Sgd::new(), vec![("w".to_string(), own.clone())]).unwrap();
    let mut scale = LossScale::new().initial(65536.0).growth_interval(2);
    let mut step = |scale: &mut LossScale| {
        // The gradient of the cast is the scale in f16, which is beyond its largest number at first.
        let loss = own.get().to_dtype(DType::F16).unwrap().mul_scalar(2.0).unwrap().to_dtype(DType::F32).unwrap();
        scale.scaled(&loss.sum_all().unwrap()).unwrap().backward().unwrap();
        let done = scale.step(&mut optimizer, 0.25).unwrap();
        (done, scale.scale(), own.get().to_vec::<f32>().unwrap()[0], own.grad().is_none())
    };
    assert_eq!(step(&mut scale), (false, 32768.0, 1.0, true));
    assert_eq!(step(&mut scale), (true, 32768.0, 0.5, true));
    assert_eq!(step(&mut scale), (true, 65536.0, 0.0, true));
    assert_eq!(step(&mut scale), (false, 32768.0, 0.0, true));
}

#[test]
fn schedules() {
    let warm = Schedule::exponential(1.0, 0.5).warm_up(4);
    let rates: Vec<f64> = (0..7).map(|step| warm.learning_rate(step)).collect();
    assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.25]);
    let cosine = Schedule::cosine(1.0, 0.2, 10);
    assert_eq!((cosine.learning_rate(0), cosine.learning_rate(10), cosine.learning_rate(99)), (1.0, 0.2, 0.2));
    assert!((cosine.learning_rate(5) - 0.6).abs() < 1e-12);
    assert_eq!(Schedule::step(1.0, 3, 0.1).learning_rate(2), 1.0);
    assert!((Schedule::step(1.0, 3, 0.1).learning_rate(7) - 0.01).abs() < 1e-12);
    assert_eq!(Schedule::constant(0.3).learning_rate(1_000_000), 0.3);
}

/// The gradients of all parameters of a layer against finite differences, for a weighted sum of the output.
pub(crate) fn check_parameters(name: &str, layer: &dyn Module, input: &Tensor) {
    let value = || -> f64 {
        let output = layer.forward(input, &Mode::inference()).unwrap().contiguous().unwrap().to_vec::<f32>().unwrap();
        output.iter().enumerate().map(|(number, x)| f64::from(*x) * (number as f64 * 1.3).cos()).sum()
    };
    let output = layer.forward(input, &Mode::inference()).unwrap();
    let weights: Vec<f32> = (0..output.elem_count()).map(|number| (number as f64 * 1.3).cos() as f32).collect();
    let weights = Tensor::from_slice(&weights, output.shape(), output.device()).unwrap();
    let parameters = layer.parameters();
    parameters.iter().filter(|(_, own)| own.is_trainable()).for_each(|(_, own)| own.zero_grad().unwrap());
    output.mul(&weights).unwrap().sum_all().unwrap().backward().unwrap();
    for (own_name, own) in parameters.iter().filter(|(_, own)| own.is_trainable()) {
        let gradient = own.grad().unwrap().contiguous().unwrap().to_vec::<f32>().unwrap();
        let start = own.get().detach();
        let elements = start.to_vec::<f32>().unwrap();
        let step = 1.0 / 64.0;
        for (at, gradient) in gradient.iter().enumerate() {
            let moved = |by: f32| {
                let mut elements = elements.clone();
                elements[at] += by;
                own.set(&Tensor::from_slice(&elements, start.shape(), start.device()).unwrap()).unwrap();
                value()
            };
            let slope = (moved(step) - moved(-step)) / f64::from(2.0 * step);
            let off = (slope - f64::from(*gradient)).abs();
            assert!(off <= 2e-3 * (1.0 + slope.abs()), "{name}, {own_name}, element {at}: {gradient} {slope}");
        }
        own.set(&start).unwrap();
    }
}

/// Outputs of layers against loops, and their gradients against finite differences.
#[test]
fn layers() {
    let device = devices::cpu();
    let x = wave(&[2, 3, 4], 0.1, device);
    let mode = Mode::inference();
    let linear = Linear::new(4, 5, device).unwrap();
    let (weight, bias) =
        (linear.weight.get().to_vec::<f32>().unwrap(), linear.bias.as_ref().unwrap().get().to_vec::<f32>().unwrap());
    let rows = x.to_vec::<f32>().unwrap();
    let output = |row: usize, to: usize| -> f64 {
        let terms = (0..4).map(|k| f64::from(rows[row * 4 + k]) * f64::from(weight[to * 4 + k]));
        terms.sum::<f64>() + f64::from(bias[to])
    };
    let wanted: Vec<f64> =
        (0..6).flat_map(|row| (0..5).map(move |to| (row, to))).map(|(row, to)| output(row, to)).collect();
    let found = linear.forward(&x, &mode).unwrap();
    assert_eq!(found.shape()[..], [2, 3, 5]);
    near("linear", &found.to_vec::<f32>().unwrap(), &wanted, 1e-5);
    assert!(weight.iter().chain(&bias).all(|x| x.abs() <= 0.5), "the root of 4 inverted");

    let words = Tensor::from_slice(&[2u32, 0, 2], 3, device).unwrap();
    let table = Embedding::new(3, 4, device).unwrap();
    let rows = table.weight.get().to_vec::<f32>().unwrap();
    let wanted: Vec<f32> = [2, 0, 2].into_iter().flat_map(|row| rows[row * 4..row * 4 + 4].to_vec()).collect();
    assert_eq!(table.forward(&words, &mode).unwrap().to_vec::<f32>().unwrap(), wanted);

    let layers: [(&str, Box<dyn Module>); 6] = [
        ("linear", Box::new(linear)),
        ("linear without bias", Box::new(Linear::new(4, 2, device).unwrap().without_bias())),
        ("layer_norm", Box::new(LayerNorm::new(4, device).unwrap())),
        ("rms_norm", Box::new(RmsNorm::new(4, device).unwrap())),
        ("attention", Box::new(MultiHeadAttention::new(4, 2, device).unwrap().causal())),
        ("net", Box::new(Sequential::new().with(Linear::new(4, 3, device).unwrap()).with(Activation::Gelu))),
    ];
    for (name, layer) in &layers {
        let function = |inputs: &[Tensor]| layer.forward(&inputs[0], &Mode::inference());
        let report = check_gradients(function, &[&x], GradientCheck::new()).unwrap();
        assert!(report.passed(), "{name}:\n{report}");
        check_parameters(name, &**layer, &x);
    }
    assert_eq!(MultiHeadAttention::new(4, 3, device).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn batch_norm_gathers_statistics() {
    let device = devices::cpu();
    let norm = BatchNorm::new(2, device).unwrap();
    let x = Tensor::from_slice(&[1.0f32, 10.0, 3.0, 14.0, 5.0, 12.0], (3, 2), device).unwrap();
    let y = norm.forward(&x, &Mode::training(0)).unwrap().to_vec::<f32>().unwrap();
    // Means 3 and 12, biased variances 8/3; the unbiased variance is 4.
    let size = (8.0f64 / 3.0 + 1e-5).sqrt();
    near("training", &y, &[-2.0, -2.0, 0.0, 2.0, 2.0, 0.0].map(|x: f64| x / size), 1e-5);
    near("mean", &norm.running_mean.get().to_vec::<f32>().unwrap(), &[0.3, 1.2], 1e-6);
    near("variance", &norm.running_var.get().to_vec::<f32>().unwrap(), &[1.3, 1.3], 1e-6);
    let before = norm.running_mean.get().to_vec::<f32>().unwrap();
    let y = norm.forward(&x, &Mode::inference()).unwrap().to_vec::<f32>().unwrap();
    near("use", &y[..1], &[0.7 / (1.3f64 + 1e-5).sqrt()], 1e-5);
    assert_eq!(norm.running_mean.get().to_vec::<f32>().unwrap(), before, "use changes nothing");
    let report = check_gradients(|p| norm.forward(&p[0], &Mode::training(0)), &[&x], GradientCheck::new()).unwrap();
    assert!(report.passed(), "{report}");
    let names: Vec<String> = norm.parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight", "bias", "running_mean", "running_var"]);
    let empty = Tensor::zeros((0, 2), DType::F32, device).unwrap();
    assert_eq!(norm.forward(&empty, &Mode::training(0)).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let narrow = Tensor::ones((3, 1), DType::F32, device).unwrap();
    assert_eq!(norm.forward(&narrow, &Mode::training(0)).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let large = x.mul_scalar(1000.0).unwrap().to_dtype(DType::F16).unwrap();
    let y = norm.forward(&large, &Mode::training(0)).unwrap();
    assert!(y.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap()[0] < -1.0, "the variance is beyond f16");
}

/// A checkpointed function draws the same random numbers, and updates running statistics once.
#[test]
fn layers_in_a_checkpoint() {
    // A separate device: no other test draws random numbers there.
    let device = &Device::cpu_with(devices::cpu_options().threads(2)).unwrap();
    let make = || {
        device.set_seed(3);
        let first = Sequential::new().with(Linear::new(6, 8, device).unwrap()).with(BatchNorm::new(8, device).unwrap());
        first.with(Activation::Relu).with(Dropout::new(0.5)).with(Linear::new(8, 4, device).unwrap())
    };
    let run = |is_checkpoint: bool| {
        let (net, mode) = (Arc::new(make()), Mode::training(5));
        let x = wave(&[8, 6], 0.5, device).requires_grad().unwrap();
        let output = if is_checkpoint {
            let net = Arc::clone(&net);
            checkpoint(move |x| net.forward(&x[0], &mode.clone()), &[&x]).unwrap()
        } else {
            net.forward(&x, &mode).unwrap()
        };
        output.square().unwrap().sum_all().unwrap().backward().unwrap();
        let mut all = vec![x.grad().unwrap().to_vec::<f32>().unwrap(), output.to_vec::<f32>().unwrap()];
        for (_, own) in net.parameters() {
            all.push(own.grad().unwrap_or_else(|| own.get()).contiguous().unwrap().to_vec().unwrap());
        }
        all
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn losses() {
    for subject in devices::all().iter().filter(|subject| !subject.lacks_f16) {
        let device = &subject.device;
        let logits = Tensor::from_slice(&[2.0f32, -1.0, 0.5, 0.0, 3.0, -2.0], (2, 3), device).unwrap();
        let target = Tensor::from_slice(&[0u32, 2], 2, device).unwrap();
        let row = |row: [f64; 3], class: usize| row.map(f64::exp).iter().sum::<f64>().ln() - row[class];
        let wanted = (row([2.0, -1.0, 0.5], 0) + row([0.0, 3.0, -2.0], 2)) / 2.0;
        let found = nn::cross_entropy(&logits, &target).unwrap().to_vec::<f32>().unwrap();
        near("cross_entropy", &found, &[wanted], 1e-5);
        let x = Tensor::from_slice(&[0.0f32, 50.0, -50.0, 1.5], 4, device).unwrap();
        let y = Tensor::from_slice(&[1.0f32, 0.0, 0.25, 0.75], 4, device).unwrap();
        let one = |x: f64, y: f64| x.max(0.0) - x * y + (-x.abs()).exp().ln_1p();
        let wanted = (one(0.0, 1.0) + one(50.0, 0.0) + one(-50.0, 0.25) + one(1.5, 0.75)) / 4.0;
        near("bce", &nn::bce_with_logits(&x, &y).unwrap().to_vec::<f32>().unwrap(), &[wanted], 1e-4);
        // The derivative is sigmoid minus target, also at a score of 0.
        let leaf = x.requires_grad().unwrap();
        nn::bce_with_logits(&leaf, &y).unwrap().backward().unwrap();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let wanted = [sigmoid(0.0) - 1.0, 1.0, -0.25, sigmoid(1.5) - 0.75].map(|slope| slope / 4.0);
        near("slope of bce", &leaf.grad().unwrap().to_vec::<f32>().unwrap(), &wanted, 1e-6);
    }
    let device = devices::cpu();
    let (x, y) = (wave(&[2, 3], 0.2, device), wave(&[2, 3], 1.2, device));
    let target = Tensor::from_slice(&[0u32, 2], 2, device).unwrap();
    type Loss = Box<dyn Fn(&[Tensor]) -> kiln::Result<Tensor>>;
    let checks: [(&str, Loss); 3] = [
        ("mse", Box::new(|p| nn::mse(&p[0], &p[1]))),
        ("bce", Box::new(|p| nn::bce_with_logits(&p[0], &p[1].sigmoid()?))),
        ("cross_entropy", Box::new(move |p| nn::cross_entropy(&p[0].mul(&p[1])?, &target))),
    ];
    for (name, loss) in checks {
        let report = check_gradients(loss, &[&x, &y], GradientCheck::new()).unwrap();
        assert!(report.passed(), "{name}:\n{report}");
    }
    let error = nn::mse(&x, &wave(&[3, 2], 0.0, device)).unwrap_err();
    assert!(error.kind() == ErrorKind::ShapeMismatch && error.to_string().contains("(3, 2)"), "{error}");
}

fn net(device: &Device) -> Sequential {
    let first = Sequential::new().with(Linear::new(6, 16, device).unwrap()).with(BatchNorm::new(16, device).unwrap());
    first.with(Activation::Relu).with(Dropout::new(0.2)).with(Linear::new(16, 3, device).unwrap())
}

/// Some steps of training from a step on; returns the losses.
fn train(net: &Sequential, optimizer: &mut Optimizer<Adam>, steps: std::ops::Range<u64>, device: &Device) -> Vec<f32> {
    let schedule = Schedule::cosine(0.02, 0.001, 12).warm_up(2);
    let (x, target) =
        (wave(&[8, 6], 0.5, device), Tensor::from_slice(&[0u32, 1, 2, 0, 1, 2, 0, 1], 8, device).unwrap());
    let step = |step: u64| {
        let loss = nn::cross_entropy(&net.forward(&x, &Mode::training(step)).unwrap(), &target).unwrap();
        loss.backward().unwrap();
        optimizer.step(schedule.learning_rate(step)).unwrap();
        loss.to_scalar::<f32>().unwrap()
    };
    steps.map(step).collect()
}

/// The same seed gives a bit-identical run; a run that is saved and resumed equals one that is not.
#[test]
fn runs_are_the_same_each_time_and_when_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (weights, state) = (folder.path().join("weights.safetensors"), folder.path().join("state.safetensors"));
    let device = || Device::cpu_with(devices::cpu_options().threads(2)).unwrap();
    let whole = |device: &Device| {
        let net = net(device);
        let mut optimizer = Optimizer::new(Adam::new().decoupled_weight_decay(0.01), &net).unwrap();
        let losses = train(&net, &mut optimizer, 0..12, device);
        let parameters: Vec<Vec<f32>> = net.parameters().iter().map(|(_, own)| own.get().to_vec().unwrap()).collect();
        (losses, parameters)
    };
    let (one, other) = (whole(&device()), whole(&device()));
    assert_eq!(one, other);
    assert!(one.0[11] < one.0[0], "{:?}", one.0);

    let first = device();
    let half = net(&first);
    let mut optimizer = Optimizer::new(Adam::new().decoupled_weight_decay(0.01), &half).unwrap();
    let mut losses = train(&half, &mut optimizer, 0..5, &first);
    nn::save(&half, &weights).unwrap();
    optimizer.save(&state).unwrap();
    // Simulates another process: starts with other parameters.
    let second = device();
    let resumed = net(&second);
    let moved = resumed.parameters()[0].1.clone();
    moved.set(&moved.get().mul_scalar(2.0).unwrap()).unwrap();
    let mut optimizer = Optimizer::new(Adam::new().decoupled_weight_decay(0.01), &resumed).unwrap();
    nn::load(&resumed, &weights).unwrap();
    optimizer.load(&state).unwrap();
    assert_eq!(optimizer.steps(), 5);
    losses.extend(train(&resumed, &mut optimizer, 5..12, &second));
    let parameters: Vec<Vec<f32>> = resumed.parameters().iter().map(|(_, own)| own.get().to_vec().unwrap()).collect();
    assert_eq!((losses, parameters), one);
}

/// Weights in `f32`, everything else in `f16`.
#[test]
fn mixed_precision_learns() {
    for subject in devices::all().iter().filter(|subject| !subject.lacks_f16) {
        let device = &subject.device;
        let net = Sequential::new().with(Linear::new(2, 16, device).unwrap()).with(Activation::Relu);
        let net = net.with(Linear::new(16, 2, device).unwrap());
        // Not the device's random numbers, which other tests draw from at the same time.
        for (number, (_, own)) in net.parameters().into_iter().enumerate() {
            own.set(&wave(own.get().shape(), number as f64, device)).unwrap();
        }
        let mut optimizer = Optimizer::new(Adam::new(), &net).unwrap();
        let mut scale = LossScale::new().initial(1024.0);
        let x = Tensor::from_slice(&[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], (4, 2), device).unwrap();
        let (x, target) = (x.to_dtype(DType::F16).unwrap(), Tensor::from_slice(&[0u32, 1, 1, 0], 4, device).unwrap());
        let mut last = f32::INFINITY;
        let steps = if subject.takes_wgsl { 60 } else { 200 };
        let mut first = None;
        for step in 0..steps {
            let output = net.forward(&x, &Mode::training(step)).unwrap();
            assert_eq!(output.dtype(), DType::F16);
            let loss = nn::cross_entropy(&output, &target).unwrap();
            scale.scaled(&loss).unwrap().backward().unwrap();
            assert!(scale.step(&mut optimizer, 0.05).unwrap());
            last = loss.to_scalar().unwrap();
            first.get_or_insert(last);
        }
        assert!(last < 0.1 * first.unwrap(), "{last} after {first:?} on {}", subject.name);
        assert!(net.parameters().iter().all(|(_, own)| own.get().dtype() == DType::F32));
    }
}
