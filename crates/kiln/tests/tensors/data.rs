//! Conversion between reference arrays and tensors.

use kiln::ir::op::Tolerance;
use kiln::ir::with_element;
use kiln::{DType, Device, Result, Tensor};
use kiln_testkit::tolerance::compare;
use kiln_testkit::{Array, LayoutCase, View, decode, encode};

/// Creates a tensor of a dtype from numbers.
pub(crate) fn tensor(array: &Array, dtype: DType, device: &Device) -> Tensor {
    let bytes = encode(array.numbers(), dtype);
    let buffer = device.buffer_from(&bytes).unwrap();
    Tensor::from_buffer(buffer.as_bytes(), array.shape(), dtype, device).unwrap()
}

/// Returns the elements of a tensor as numbers.
pub(crate) fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    let dtype = tensor.dtype();
    let bytes = with_element!(dtype, T => bytemuck::cast_slice::<T, u8>(&tensor.to_vec::<T>()?).to_vec());
    Ok(decode(&bytes, dtype))
}

/// Applies one view through the public methods.
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

/// Creates the base tensor of a layout and applies its views.
pub(crate) fn placed(layout: &LayoutCase, dtype: DType, device: &Device) -> Tensor {
    let base = tensor(&layout.base, dtype, device);
    layout.views.iter().fold(base, |tensor, view| apply_view(&tensor, view).unwrap())
}

/// Panics if a tensor differs from the expected array by more than a tolerance.
#[track_caller]
pub(crate) fn check(what: &str, found: &Tensor, dtype: DType, wanted: &Array, tolerance: Tolerance) {
    assert_eq!((found.dtype(), &found.shape()[..]), (dtype, wanted.shape()), "{what}");
    let numbers = numbers(found).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    if let Err(message) = compare(dtype, &numbers, wanted.numbers(), tolerance) {
        panic!("{what}: {message}");
    }
}

/// A tolerance in ULP plus an absolute one.
pub(crate) fn within(ulps: f64, absolute: f64) -> Tolerance {
    Tolerance { ulps, absolute }
}
