//! Arrays of the references as tensors, and back.

use kiln::op::Tolerance;
use kiln::{DType, Device, Result, Tensor};
use kiln::{bf16, f16};
use kiln_testkit::tolerance::compare;
use kiln_testkit::{Array, Placed, View};

/// The numbers as a tensor of a dtype.
pub(crate) fn tensor(array: &Array, dtype: DType, device: &Device) -> Tensor {
    let (numbers, shape) = (array.numbers().iter().copied(), array.shape());
    let made = match dtype {
        DType::F16 => Tensor::from_slice(&numbers.map(f16::from_f64).collect::<Vec<_>>(), shape, device),
        DType::BF16 => Tensor::from_slice(&numbers.map(bf16::from_f64).collect::<Vec<_>>(), shape, device),
        DType::F32 => Tensor::from_slice(&numbers.map(|number| number as f32).collect::<Vec<_>>(), shape, device),
        DType::I32 => Tensor::from_slice(&numbers.map(|number| number as i32).collect::<Vec<_>>(), shape, device),
        DType::U32 => Tensor::from_slice(&numbers.map(|number| number as u32).collect::<Vec<_>>(), shape, device),
        DType::U8 => Tensor::from_slice(&numbers.map(|number| number as u8).collect::<Vec<_>>(), shape, device),
    };
    made.unwrap()
}

/// The elements of a tensor as numbers.
pub(crate) fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(match tensor.dtype() {
        DType::F16 => tensor.to_vec::<f16>()?.into_iter().map(f16::to_f64).collect(),
        DType::BF16 => tensor.to_vec::<bf16>()?.into_iter().map(bf16::to_f64).collect(),
        DType::F32 => tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect(),
        DType::I32 => tensor.to_vec::<i32>()?.into_iter().map(f64::from).collect(),
        DType::U32 => tensor.to_vec::<u32>()?.into_iter().map(f64::from).collect(),
        DType::U8 => tensor.to_vec::<u8>()?.into_iter().map(f64::from).collect(),
    })
}

/// One step of a view, through the public methods.
pub(crate) fn apply_view(tensor: &Tensor, view: &View) -> Result<Tensor> {
    match view {
        &View::Transpose(one, other) => tensor.transpose(one, other),
        View::Permute(axes) => tensor.permute(axes),
        &View::Slice { axis, start, end, step: 1 } => tensor.slice(axis, start..end),
        &View::Slice { axis, start, end, step } => tensor.slice_step(axis, start..end, step as isize),
        &View::Flip(axis) => tensor.flip(axis),
        View::BroadcastTo(shape) => tensor.broadcast_to(&shape[..]),
        View::Reshape(shape) => tensor.reshape(&shape[..]),
        &View::Squeeze(axis) => tensor.squeeze(axis),
        &View::Unsqueeze(axis) => tensor.unsqueeze(axis),
    }
}

/// A base and the steps from there.
pub(crate) fn placed(layout: &Placed, dtype: DType, device: &Device) -> Tensor {
    let base = tensor(&layout.base, dtype, device);
    layout.views.iter().fold(base, |tensor, view| apply_view(&tensor, view).unwrap())
}

/// Panics where a tensor is not what was expected, within a tolerance.
#[track_caller]
pub(crate) fn check(what: &str, found: &Tensor, dtype: DType, wanted: &Array, tolerance: Tolerance) {
    assert_eq!((found.dtype(), &found.shape()[..]), (dtype, wanted.shape()), "{what}");
    let numbers = numbers(found).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    if let Err(message) = compare(dtype, &numbers, wanted.numbers(), tolerance) {
        panic!("{what}: {message}");
    }
}

/// So many units in the last place, and an absolute amount on top.
pub(crate) fn within(ulps: f64, absolute: f64) -> Tolerance {
    Tolerance { ulps, absolute }
}
