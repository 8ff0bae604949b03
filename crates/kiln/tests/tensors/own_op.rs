//! A user-defined elementwise op: one entry suffices.

use crate::{data, devices};
use kiln::ir::op::{ElementOp, Float, FloatOp};
use kiln::{DType, Tensor};
use kiln_testkit::{Array, layouts};

/// `x * x * x`.
struct Cube;

impl FloatOp<1> for Cube {
    fn eval<T: Float>([x]: [T; 1]) -> T {
        x * x * x
    }
}

static CUBE: ElementOp =
    ElementOp::float::<Cube, 1>("cube", "The third power.", [(-3.0, 3.0)], |args| args[0].powi(3)).ulps(2.0);

#[test]
fn an_op_of_a_test_runs_on_every_device_dtype_and_layout() {
    let wanted = Array::from_fn(&[3, 5], |index| index[0] as f64 - 0.5 * index[1] as f64);
    let cubes = wanted.map(|x| x * x * x);
    for subject in devices::all() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for layout in layouts(&wanted) {
                let x = data::placed(&layout, dtype, &subject.device);
                let what = format!("{} {dtype} on {}", layout.name, subject.name);
                data::check(&what, &Tensor::apply(&CUBE, &[&x]).unwrap(), dtype, &cubes, CUBE.error_bound(dtype));
            }
        }
    }
}

/// It fuses like any other op: one kernel with the adjacent ops, named after them.
#[test]
fn an_op_of_a_test_fuses_with_the_others() {
    let numbers = Array::from_fn(&[4, 6], |index| (index[0] * 6 + index[1]) as f64 / 8.0 - 1.5);
    let wanted = numbers.map(|x| (x + 1.0).powi(3).max(0.0)).reduce(&[1], |row| row.iter().sum());
    for subject in devices::all() {
        let x = data::tensor(&numbers, DType::F32, &subject.device);
        let cubes = Tensor::apply(&CUBE, &[&x.add_scalar(1.0).unwrap()]).unwrap();
        let sums = cubes.relu().unwrap().sum_keepdim([1]).unwrap();
        let explanation = sums.explain().unwrap();
        assert_eq!(explanation.kernels(), 1, "{explanation}");
        assert!(explanation.to_string().contains("cube"), "{explanation}");
        data::check(subject.name, &sums, DType::F32, &wanted, data::within(4.0, 0.0));
    }
}

#[test]
fn an_op_of_a_test_checks_its_arguments_like_every_other() {
    let device = devices::cpu();
    let x = Tensor::ones(3, DType::I32, device).unwrap();
    let error = Tensor::apply(&CUBE, &[&x]).unwrap_err().to_string();
    for part in ["cube", "i32", "(3,)", "f32", "to_dtype"] {
        assert!(error.contains(part), "`{part}` in {error}");
    }
    let error = Tensor::apply(&CUBE, &[&x, &x]).unwrap_err().to_string();
    assert!(error.contains("cube expected 1") && error.contains('2'), "{error}");
}
