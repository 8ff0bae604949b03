//! Named fused forms, and chains that fuse automatically: one kernel each, with correct elements.

use crate::data::{self, within};
use crate::devices;
use kiln::nn::Activation;
use kiln::{DType, Result, Tensor};
use kiln_testkit::{Array, Rng};

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn relu(x: f64) -> f64 {
    x.max(0.0)
}

/// The inputs of the forms: two matrices, a common factor, a row and a residual.
struct Given<T> {
    a: T,
    b: T,
    weight: T,
    bias: T,
    residual: T,
}

struct Form {
    name: &'static str,
    run: fn(&Given<Tensor>) -> Result<Tensor>,
    reference: fn(&Given<Array>) -> Array,
}

const FORMS: [Form; 9] = [
    Form {
        name: "fused_add_relu",
        run: |x| x.a.fused_add_relu(&x.b),
        reference: |x| x.a.zip(&x.b, |a, b| relu(a + b)),
    },
    Form {
        name: "fused_mul_relu",
        run: |x| x.a.fused_mul_relu(&x.b),
        reference: |x| x.a.zip(&x.b, |a, b| relu(a * b)),
    },
    Form {
        name: "fused_affine",
        run: |x| x.a.fused_affine(&x.b, 0.5),
        reference: |x| x.a.zip(&x.b, |a, b| a * b + 0.5),
    },
    Form {
        name: "matmul_with_activation none",
        run: |x| x.a.matmul_with_activation(&x.weight, Activation::None),
        reference: |x| x.a.matmul(&x.weight),
    },
    Form {
        name: "matmul_with_activation relu",
        run: |x| x.a.matmul_with_activation(&x.weight, Activation::Relu),
        reference: |x| x.a.matmul(&x.weight).map(relu),
    },
    Form {
        name: "matmul_with_activation gelu",
        run: |x| x.a.matmul_with_activation(&x.weight, Activation::Gelu),
        reference: |x| x.a.matmul(&x.weight).map(gelu),
    },
    Form {
        name: "fused_linear_residual_relu",
        run: |x| x.a.fused_linear_residual_relu(&x.weight, &x.bias, &x.residual),
        reference: |x| x.a.matmul(&x.weight).zip(&x.bias, |y, b| y + b).zip(&x.residual, |y, r| relu(y + r)),
    },
    Form {
        name: "fused_gelu_linear",
        run: |x| x.a.fused_gelu_linear(&x.weight, &x.bias),
        reference: |x| x.a.matmul(&x.weight).zip(&x.bias, |y, b| gelu(y + b)),
    },
    Form {
        name: "a chain followed by a reduction",
        run: |x| x.a.mul(&x.b)?.add_scalar(1.0)?.relu()?.sum(1),
        reference: |x| {
            let sums = x.a.zip(&x.b, |a, b| relu(a * b + 1.0)).reduce(&[1], |row| row.iter().sum());
            Array::new(&sums.shape()[..1], sums.numbers().to_vec())
        },
    },
];

#[test]
fn every_form_is_one_kernel_and_right() {
    let mut rng = Rng::new(21);
    let mut draw = |shape: &[usize]| Array::from_fn(shape, |_| (rng.uniform(-1.0, 1.0) * 64.0).round() / 64.0);
    let given = Given {
        a: draw(&[6, 20]),
        b: draw(&[6, 20]),
        weight: draw(&[20, 9]),
        bias: draw(&[9]),
        residual: draw(&[6, 9]),
    };
    for subject in devices::all() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let tensor = |array: &Array| data::tensor(array, dtype, &subject.device);
            let tensors = Given {
                a: tensor(&given.a),
                b: tensor(&given.b),
                weight: tensor(&given.weight),
                bias: tensor(&given.bias),
                residual: tensor(&given.residual),
            };
            for form in &FORMS {
                let what = format!("{} of {dtype} on {}", form.name, subject.name);
                let result = (form.run)(&tensors).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                let explanation = result.explain().unwrap();
                // A kernel with a core op stores single elements, so on a GPU 16-bit packing is a separate kernel.
                let most = if subject.takes_wgsl && dtype != DType::F32 { 2 } else { 1 };
                assert!(explanation.kernels() <= most, "{what}: {explanation}");
                data::check(&what, &result, dtype, &(form.reference)(&given), within(1.0, 1e-5));
            }
        }
    }
}
