//! Layers against PyTorch: `fixtures/layers.py` wrote parameters, inputs, outputs and gradients, with the names of PyTorch.

use crate::devices::{self, Subject};
use crate::poison::fill_free_memory;
use kiln::autograd::{GradientCheck, check_gradients};
use kiln::nn::{Activation, AttentionOptions};
use kiln::nn::{
    BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, GroupNorm, Gru, InstanceNorm, LayerNorm, Linear, Lstm,
    LstmState, Mode, Module, MultiHeadAttention, RecurrentOptions, TensorOptions, Weights,
};
use kiln::{DType, ErrorKind, Result, Tensor};
use std::sync::Arc;

const FIXTURE: &[u8] = include_bytes!("../fixtures/layers.safetensors");

/// Computes outputs from inputs.
type Call = Arc<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A layer, and how it is called.
type Layer = (Arc<dyn Module>, Call);

struct Case {
    name: &'static str,
    make: fn(TensorOptions) -> Result<Layer>,
}

fn plain(module: impl Module + 'static) -> Layer {
    let module = Arc::new(module);
    let own = Arc::clone(&module);
    (module, Arc::new(move |x| Ok(vec![own.forward(&x[0], &Mode::inference())?])))
}

fn lstm(layer: Lstm) -> Layer {
    let own = layer.clone();
    let call = move |x: &[Tensor]| {
        let state = x.get(2).map(|c| LstmState { h: x[1].clone(), c: c.clone() });
        let (outputs, state) = own.run(&x[0], state.as_ref(), &Mode::inference())?;
        Ok(vec![outputs, state.h, state.c])
    };
    (Arc::new(layer), Arc::new(call))
}

fn gru(layer: Gru) -> Layer {
    let own = layer.clone();
    let call = move |x: &[Tensor]| {
        let (outputs, state) = own.run(&x[0], x.get(1), &Mode::inference())?;
        Ok(vec![outputs, state])
    };
    (Arc::new(layer), Arc::new(call))
}

fn deep() -> RecurrentOptions {
    RecurrentOptions::new().layers(2).bidirectional()
}

fn cross(layer: MultiHeadAttention, mask: Option<Vec<u8>>) -> Layer {
    let own = layer.clone();
    let call = move |x: &[Tensor]| {
        // 0 where PyTorch's `key_padding_mask` is true.
        let mask = mask.as_ref().map(|mask| Tensor::from_slice(mask, [2, 1, 1, 4], x[0].device())).transpose()?;
        let options = mask.as_ref().map_or(AttentionOptions::new(), |mask| AttentionOptions::new().mask(mask));
        Ok(vec![own.attend(&x[0], &x[1], &x[2], options)?])
    };
    (Arc::new(layer), Arc::new(call))
}

const CASES: &[Case] = &[
    Case { name: "gelu", make: |_| Ok(plain(Activation::Gelu)) },
    Case { name: "gelu_erf", make: |_| Ok(plain(Activation::GeluErf)) },
    Case { name: "linear", make: |to| Ok(plain(Linear::new(4, 5, to)?)) },
    Case { name: "conv1d", make: |to| Ok(plain(Conv1d::new(3, 2, 3, to)?.stride(2).padding(1))) },
    Case {
        name: "conv2d",
        make: |to| Ok(plain(Conv2d::new(2, 3, [3, 2], to)?.stride([2, 1]).padding([1, 0]).dilation([1, 2]))),
    },
    Case {
        name: "conv_transpose1d",
        make: |to| Ok(plain(ConvTranspose1d::new(3, 2, 4, to)?.stride(3).padding(1).output_padding(2))),
    },
    Case {
        name: "conv_transpose2d",
        make: |to| {
            let layer = ConvTranspose2d::new(2, 3, [3, 2], to)?.stride([2, 3]).padding([1, 0]);
            Ok(plain(layer.output_padding([1, 2]).dilation([1, 2])))
        },
    },
    Case {
        name: "conv_transpose2d_plain",
        make: |to| Ok(plain(ConvTranspose2d::new(1, 1, [2, 2], to)?.without_bias())),
    },
    Case { name: "layer_norm", make: |to| Ok(plain(LayerNorm::new(5, to)?)) },
    Case { name: "batch_norm", make: |to| Ok(plain(BatchNorm::new(3, to)?)) },
    Case { name: "group_norm", make: |to| Ok(plain(GroupNorm::new(3, 6, to)?)) },
    Case { name: "group_norm_one", make: |to| Ok(plain(GroupNorm::new(1, 4, to)?.eps(1e-3))) },
    Case { name: "group_norm_plain", make: |to| Ok(plain(GroupNorm::new(2, 4, to)?.without_affine())) },
    Case { name: "instance_norm", make: |to| Ok(plain(InstanceNorm::new(3).affine(to)?)) },
    Case { name: "instance_norm_plain", make: |_| Ok(plain(InstanceNorm::new(3))) },
    Case { name: "attention", make: |to| Ok(plain(MultiHeadAttention::new(6, 2, to)?)) },
    Case {
        name: "attention_masked",
        make: |to| Ok(cross(MultiHeadAttention::new(6, 3, to)?, Some(vec![1, 1, 0, 1, 1, 0, 0, 1]))),
    },
    Case {
        name: "attention_widths",
        make: |to| Ok(cross(MultiHeadAttention::with_widths(4, 3, 5, 2, to)?.without_bias(), None)),
    },
    Case { name: "lstm", make: |to| Ok(lstm(Lstm::new(3, 4, to)?)) },
    Case {
        name: "lstm_plain",
        make: |to| Ok(lstm(Lstm::with_options(2, 1, RecurrentOptions::new().without_bias(), to)?)),
    },
    Case { name: "lstm_deep", make: |to| Ok(lstm(Lstm::with_options(3, 2, deep(), to)?)) },
    Case { name: "gru", make: |to| Ok(gru(Gru::new(3, 4, to)?)) },
    Case {
        name: "gru_plain",
        make: |to| Ok(gru(Gru::with_options(2, 1, RecurrentOptions::new().without_bias(), to)?)),
    },
    Case { name: "gru_deep", make: |to| Ok(gru(Gru::with_options(3, 2, deep(), to)?)) },
];

/// The tensors `what.0`, `what.1`, … of a case.
fn numbered(weights: &Weights, what: &str) -> Vec<Tensor> {
    let name = |number: usize| format!("{what}.{number}");
    (0..).map(name).take_while(|name| weights.contains(name)).map(|name| weights.tensor(&name).unwrap()).collect()
}

#[track_caller]
fn near(what: &str, found: &Tensor, wanted: &Tensor, error: f32) {
    assert_eq!(found.shape(), wanted.shape(), "{what}");
    let numbers = |tensor: &Tensor| tensor.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
    for (place, (found, wanted)) in numbers(found).into_iter().zip(numbers(wanted)).enumerate() {
        // NaN is never within tolerance.
        let is_near = (found - wanted).abs() <= error * (1.0 + wanted.abs());
        assert!(is_near, "{what} at {place}: {found}, PyTorch has {wanted}");
    }
}

fn check_case(case: &Case, subject: &Subject) {
    let what = format!("{} on {}", case.name, subject.name);
    let weights = Weights::from_bytes(FIXTURE.to_vec(), &subject.device).unwrap().prefix(case.name);
    let (module, call) = (case.make)(TensorOptions::from(&subject.device)).unwrap();
    weights.prefix("state").load_into(&*module).unwrap();
    let state = format!("{}.state.", case.name);
    let unused: Vec<String> = weights.unused().into_iter().filter(|name| name.starts_with(&state)).collect();
    assert!(unused.iter().all(|name| name.ends_with("num_batches_tracked")), "{unused:?}");

    let leaf = |tensor: Tensor| tensor.requires_grad().unwrap();
    let inputs: Vec<Tensor> = numbered(&weights, "input").into_iter().map(leaf).collect();
    fill_free_memory(&subject.device);
    let outputs = call(&inputs).unwrap();
    let (wanted, probes) = (numbered(&weights, "output"), numbered(&weights, "probe"));
    assert_eq!(outputs.len(), wanted.len(), "{what}");
    let mut loss = Tensor::zeros((), DType::F32, &subject.device).unwrap();
    for (number, output) in outputs.iter().enumerate() {
        near(&format!("output {number} of {what}"), output, &wanted[number], 2e-5);
        loss = loss.add(&output.mul(&probes[number]).unwrap().sum_all().unwrap()).unwrap();
    }
    loss.backward().unwrap();
    for (number, slope) in numbered(&weights, "slope").iter().enumerate() {
        near(&format!("slope {number} of {what}"), &inputs[number].grad().unwrap(), slope, 1e-4);
    }
    for (name, parameter) in module.parameters().iter().filter(|(_, parameter)| parameter.is_trainable()) {
        let wanted = weights.tensor(&format!("grad.{name}")).unwrap();
        near(&format!("{name} of {what}"), &parameter.grad().unwrap(), &wanted, 1e-4);
    }
    if subject.takes_wgsl && subject.name != "gpu" {
        return; // the views are the same, and every kernel is compiled again
    }
    // The same numbers in another memory order, and as a part of a larger tensor.
    let placed: Vec<Tensor> = numbered(&weights, "input").iter().map(odd_layout).collect();
    for (number, output) in call(&placed).unwrap().iter().enumerate() {
        near(&format!("output {number} of {what}, other layouts"), output, &wanted[number], 2e-5);
    }
}

/// A tensor of the same elements that is a part of a larger one, with its axes in the other order.
fn odd_layout(tensor: &Tensor) -> Tensor {
    let turned = tensor.transpose(0, -1).unwrap().contiguous().unwrap();
    let around = turned.mul_scalar(f64::NAN).unwrap();
    let length = turned.shape()[0];
    let wide = Tensor::cat(&[&around, &turned, &around], 0).unwrap();
    wide.eval().unwrap();
    wide.slice(0, length..2 * length).unwrap().transpose(0, -1).unwrap()
}

#[test]
fn layers_and_their_gradients_are_those_of_pytorch() {
    for subject in devices::all() {
        for case in CASES {
            check_case(case, subject);
        }
    }
}

/// The file has no case that is not tested.
#[test]
fn every_case_of_the_file_is_tested() {
    let weights = Weights::from_bytes(FIXTURE.to_vec(), devices::cpu()).unwrap();
    for name in weights.names() {
        let case = name.split('.').next().unwrap();
        assert!(CASES.iter().any(|own| own.name == case), "{name}");
    }
}

/// Layers and inputs of a narrow dtype, and narrow inputs to layers of f32.
#[test]
fn layers_of_narrow_dtypes() {
    for subject in devices::all().iter().filter(|subject| !subject.takes_wgsl || subject.name == "gpu") {
        for (dtype, error) in [(DType::F16, 0.02), (DType::BF16, 0.15)] {
            for (case, own) in CASES.iter().flat_map(|case| [(case, dtype), (case, DType::F32)]) {
                if subject.takes_wgsl && (own, dtype) != (DType::F16, DType::F16) {
                    continue; // as many kernels again
                }
                let weights = Weights::from_bytes(FIXTURE.to_vec(), &subject.device).unwrap().prefix(case.name);
                let (module, call) = (case.make)((own, &subject.device).into()).unwrap();
                weights.prefix("state").load_into(&*module).unwrap();
                assert!(module.parameters().iter().all(|(_, parameter)| parameter.get().dtype() == own));
                let inputs = numbered(&weights.to_dtype(dtype), "input");
                for (output, wanted) in call(&inputs).unwrap().iter().zip(numbered(&weights, "output")) {
                    assert_eq!(output.dtype(), dtype, "{}", case.name);
                    let what = format!("{} of {own} for {dtype} on {}", case.name, subject.name);
                    near(&what, output, &wanted, error);
                }
            }
        }
    }
}

/// Against differences of `f32`, through inputs of every layer.
#[test]
fn gradients_are_those_of_differences() {
    let device = devices::cpu();
    for case in CASES {
        let weights = Weights::from_bytes(FIXTURE.to_vec(), device).unwrap().prefix(case.name);
        let (module, call) = (case.make)(TensorOptions::from(device)).unwrap();
        weights.prefix("state").load_into(&*module).unwrap();
        let inputs = numbered(&weights, "input");
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let report = check_gradients(|x| Ok(call(x)?.remove(0)), &inputs, GradientCheck::new()).unwrap();
        assert!(report.passed(), "{}:\n{report}", case.name);
    }
}

/// Dropout between layers applies only in training; a state continues a sequence.
#[test]
fn recurrent_layers_go_on_from_their_state() {
    let device = devices::cpu();
    let x = Tensor::randn((2, 6, 3), DType::F32, device).unwrap();
    let mode = Mode::inference();
    let lstm = Lstm::with_options(3, 4, RecurrentOptions::new().layers(2).dropout(0.5), device).unwrap();
    let (whole, end) = lstm.run(&x, None, &mode).unwrap();
    let (first, state) = lstm.run(&x.slice(1, ..2).unwrap(), None, &mode).unwrap();
    let (second, last) = lstm.run(&x.slice(1, 2..).unwrap(), Some(&state), &mode).unwrap();
    near("outputs", &Tensor::cat(&[first, second], 1).unwrap(), &whole, 1e-6);
    near("cells", &last.c, &end.c, 1e-6);
    let pass = |mode: &Mode| lstm.forward(&x, mode).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(pass(&Mode::training(3)), pass(&Mode::training(3)));
    assert_ne!(pass(&Mode::training(3)), pass(&mode));

    let gru = Gru::new(3, 4, device).unwrap();
    let (whole, end) = gru.run(&x, None, &mode).unwrap();
    let (_, state) = gru.run(&x.slice(1, ..5).unwrap(), None, &mode).unwrap();
    let (last, state) = gru.run(&x.slice(1, 5..).unwrap(), Some(&state), &mode).unwrap();
    near("last output", &last, &whole.slice(1, 5..).unwrap(), 1e-6);
    near("state", &state, &end, 1e-6);
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let device = devices::cpu();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, device).unwrap();
    let mode = Mode::inference();
    let kinds: [(Result<Tensor>, ErrorKind, &str); 12] = [
        (
            ConvTranspose2d::new(2, 3, [2, 2], device).unwrap().forward(&zeros(&[1, 3, 4, 4]), &mode),
            ErrorKind::ShapeMismatch,
            "conv_transpose2d expected (batch, 2, height, width), found f32 (1, 3, 4, 4) on cpu",
        ),
        (
            ConvTranspose1d::new(2, 3, 2, device).unwrap().output_padding(1).forward(&zeros(&[1, 2, 4]), &mode),
            ErrorKind::InvalidArgument,
            "conv_transpose1d expected an output_padding below the stride",
        ),
        (
            ConvTranspose1d::new(2, 3, 2, device).unwrap().padding(9).forward(&zeros(&[1, 2, 4]), &mode),
            ErrorKind::ShapeMismatch,
            "an input whose output has at least one element",
        ),
        (
            ConvTranspose1d::new(2, 3, 2, device).unwrap().stride(0).forward(&zeros(&[1, 2, 4]), &mode),
            ErrorKind::InvalidArgument,
            "strides and dilations of at least 1",
        ),
        (
            GroupNorm::new(2, 4, device).unwrap().forward(&zeros(&[1, 3]), &mode),
            ErrorKind::ShapeMismatch,
            "group_norm expected (batch, 4, …), found f32 (1, 3) on cpu",
        ),
        (
            InstanceNorm::new(4).forward(&zeros(&[4]), &mode),
            ErrorKind::ShapeMismatch,
            "instance_norm expected (batch, 4",
        ),
        (
            Lstm::new(3, 2, device).unwrap().forward(&zeros(&[1, 0, 3]), &mode),
            ErrorKind::ShapeMismatch,
            "lstm expected (batch, length of at least 1, 3), found f32 (1, 0, 3) on cpu",
        ),
        (
            Gru::new(3, 2, device).unwrap().run(&zeros(&[2, 1, 3]), Some(&zeros(&[1, 1, 2])), &mode).map(|all| all.0),
            ErrorKind::ShapeMismatch,
            "gru expected a state (1, 2, 2), found f32 (1, 1, 2) on cpu",
        ),
        (
            MultiHeadAttention::new(4, 2, device).unwrap().forward(&zeros(&[2, 4]), &mode),
            ErrorKind::ShapeMismatch,
            "attention expected an input (batch, length, 4), found f32 (2, 4) on cpu",
        ),
        (
            MultiHeadAttention::new(4, 2, device).unwrap().attend(
                &zeros(&[1, 2, 4]),
                &zeros(&[1, 3, 4]),
                &zeros(&[1, 2, 4]),
                AttentionOptions::new(),
            ),
            ErrorKind::ShapeMismatch,
            "attention expected (batch, heads, m, d)",
        ),
        (
            GroupNorm::new(3, 4, device).map(|_| zeros(&[1])),
            ErrorKind::InvalidArgument,
            "channels divisible by 3 groups, found 4",
        ),
        (Lstm::new(0, 4, device).map(|_| zeros(&[1])), ErrorKind::InvalidArgument, "at least one layer"),
    ];
    for (result, kind, part) in kinds {
        let error = result.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{error}");
    }
    // Empty batches.
    let shape = |module: &dyn Module, input: &[usize]| module.forward(&zeros(input), &mode).unwrap().shape().to_vec();
    assert_eq!(shape(&GroupNorm::new(2, 4, device).unwrap(), &[0, 4, 3]), [0, 4, 3]);
    assert_eq!(shape(&InstanceNorm::new(4), &[2, 4, 0]), [2, 4, 0]);
    assert_eq!(shape(&ConvTranspose1d::new(2, 3, 2, device).unwrap(), &[0, 2, 4]), [0, 3, 5]);
    assert_eq!(shape(&Lstm::new(3, 2, device).unwrap(), &[0, 2, 3]), [0, 2, 2]);
    assert_eq!(shape(&MultiHeadAttention::new(4, 2, device).unwrap(), &[0, 3, 4]), [0, 3, 4]);
}
