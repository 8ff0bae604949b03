//! Test cases computed by NumPy: see `crates/kiln/tests/fixtures/make.py`.

use crate::view::View;
use crate::{Array, decode};
use kiln_ir::{DType, Error, ErrorKind, Result};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// A test case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its number and a description.
    pub name: String,
    /// The op to run: the name of a tensor method, or `view`.
    pub op: String,
    /// Arguments that are not tensors.
    pub args: Value,
    /// The input tensors.
    pub inputs: Vec<Input>,
    /// The expected outputs.
    pub outputs: Vec<Output>,
    /// The tolerance of the results.
    pub tolerance: Tolerance,
}

/// An input tensor.
#[derive(Clone, Debug)]
pub struct Input {
    /// The dtype.
    pub dtype: DType,
    /// The array in memory.
    pub base: Array,
    /// The views from there to the op's argument.
    pub views: Vec<View>,
}

/// An expected output: numbers in `f64`, rounded to the dtype.
#[derive(Clone, Debug)]
pub struct Output {
    /// The dtype.
    pub dtype: DType,
    /// The numbers.
    pub array: Array,
}

/// The tolerance of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// The same number; NaN for NaN.
    Exact,
    /// Within the bound that the op's table entry has for the dtype.
    Op,
    /// Within a few roundings of `f32` of numbers of this magnitude, and one of the output's dtype.
    Sum {
        /// The magnitude.
        scale: f64,
    },
}

#[derive(Deserialize)]
struct CaseText {
    name: String,
    op: String,
    args: Value,
    inputs: Vec<TensorText>,
    outputs: Vec<TensorText>,
    tolerance: String,
    scale: f64,
}

#[derive(Deserialize)]
struct TensorText {
    dtype: String,
    shape: Vec<usize>,
    at: usize,
    views: Vec<Value>,
}

/// Reads the cases of a file.
///
/// # Errors
/// Returns `Corrupt` if the file was not written by `make.py`.
pub fn read(file: &[u8]) -> Result<Vec<Case>> {
    let arrays = SafeTensors::deserialize(file).map_err(|error| corrupt(error.to_string()))?;
    let mut pools: HashMap<DType, Vec<u8>> = HashMap::new();
    let mut text = Vec::new();
    for (name, array) in arrays.tensors() {
        match DType::by_name(&name) {
            Some(dtype) => drop(pools.insert(dtype, array.data().to_vec())),
            None if name == "cases" => text = array.data().to_vec(),
            None => return Err(corrupt(format!("expected the name of a dtype, found `{name}`"))),
        }
    }
    let cases: Vec<CaseText> = serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
    cases.into_iter().map(|case| build(case, &pools)).collect()
}

fn build(case: CaseText, pools: &HashMap<DType, Vec<u8>>) -> Result<Case> {
    let tolerance = match &case.tolerance[..] {
        "exact" => Tolerance::Exact,
        "op" => Tolerance::Op,
        "sum" => Tolerance::Sum { scale: case.scale },
        other => return Err(corrupt(format!("{}: expected a tolerance, found `{other}`", case.name))),
    };
    let read = |text: &TensorText| tensor(text, pools).map_err(|error| error.context(case.name.clone()));
    let inputs = case.inputs.iter().map(read).collect::<Result<_>>()?;
    let outputs = case.outputs.iter().map(read);
    let outputs = outputs.map(|output| output.map(|Input { dtype, base, .. }| Output { dtype, array: base }));
    let outputs = outputs.collect::<Result<_>>()?;
    Ok(Case { inputs, outputs, tolerance, name: case.name, op: case.op, args: case.args })
}

fn tensor(text: &TensorText, pools: &HashMap<DType, Vec<u8>>) -> Result<Input> {
    let dtype = DType::by_name(&text.dtype).ok_or_else(|| corrupt(format!("found the dtype `{}`", text.dtype)))?;
    let size = text.shape.iter().try_fold(dtype.bytes(), |bytes, &length| bytes.checked_mul(length));
    let start = text.at.checked_mul(dtype.bytes());
    let range = start.zip(size).and_then(|(start, size)| Some(start..start.checked_add(size)?));
    let pool = pools.get(&dtype).map_or(&[][..], Vec::as_slice);
    let bytes = range.and_then(|range| pool.get(range)).ok_or_else(|| {
        corrupt(format!("expected {:?} from element {} of {} bytes of {dtype}", text.shape, text.at, pool.len()))
    })?;
    let view = |step: &Value| View::from_json(step).ok_or_else(|| corrupt(format!("expected a view, found {step}")));
    let views = text.views.iter().map(view).collect::<Result<_>>()?;
    Ok(Input { dtype, base: Array::new(&text.shape, decode(bytes, dtype)), views })
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}
