//! Arrays between files and the device.

use super::dims::Dims;
use super::plan::{Place, Plan};
use super::report::OutputReport;
use crate::Fallible;
use crate::new_file::NewFile;
use crate::npy::{Array, data_bytes, tuple};
use kiln::{Buffer, Device, Scalar};
use std::io::Write;
use std::path::Path;

/// A buffer of the kernel with its memory.
#[derive(Debug)]
pub(super) struct Bound<'a> {
    pub(super) place: Place<'a>,
    pub(super) buffer: Buffer,
    /// What is in it, as a file would have it.
    pub(super) scalar: Scalar,
    pub(super) shape: Vec<u64>,
    /// Begun before the kernel runs: a place that cannot be written is no surprise at the end.
    file: Option<NewFile>,
}

/// Makes a buffer for each place: with its array, or with zeros.
pub(super) fn upload<'a>(device: &Device, plan: &Plan<'a>) -> Fallible<Vec<Bound<'a>>> {
    plan.buffers.iter().map(|place| upload_one(device, plan, place)).collect()
}

fn upload_one<'a>(device: &Device, plan: &Plan<'a>, place: &Place<'a>) -> Fallible<Bound<'a>> {
    let binding = place.binding;
    let in_context = |error: String| format!("binding {binding}: {error}");
    let (scalar, shape, data) = match place.input {
        Some(path) => {
            let array = read(path).map_err(in_context)?;
            let shape = shape_of_input(place, &array, path).map_err(in_context)?;
            (array.scalar, shape, Some(array.data))
        }
        None => {
            let scalar = binding.scalar.ok_or_else(|| in_context("expected `--in`".to_string()))?;
            (scalar, shape_of_zeros(plan, place, scalar), None)
        }
    };
    let bytes = data_bytes(scalar, &shape)
        .ok_or_else(|| in_context(format!("expected a shape of less than 2^64 bytes, found {}", tuple(&shape))))?;
    let unit = binding.stride_bytes.unwrap_or(4).max(4);
    if !bytes.is_multiple_of(unit) {
        let found = format!("{bytes} in shape {} of {scalar}", tuple(&shape));
        return Err(in_context(format!("expected a multiple of {unit} bytes, found {found}")).into());
    }
    let file = place.output.map(NewFile::create).transpose()?;
    let buffer = device.buffer(bytes)?;
    match data {
        Some(data) => buffer.write(&data)?,
        None => buffer.zero()?,
    }
    Ok(Bound { place: *place, buffer, scalar, shape, file })
}

fn read(path: &Path) -> Result<Array, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Array::parse(bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// The shape that an array from a file has, or gets from `--shape`.
fn shape_of_input(place: &Place<'_>, array: &Array, path: &Path) -> Result<Vec<u64>, String> {
    // Structs take any elements, as raw material.
    if let Some(wanted) = place.binding.scalar
        && wanted != array.scalar
    {
        return Err(format!("expected elements of {wanted}, found {} in {}", array.scalar, path.display()));
    }
    let Some(shape) = place.shape else { return Ok(array.shape.clone()) };
    let shape = [&shape.0[..], &element_axis(place, array.scalar)].concat();
    if data_bytes(array.scalar, &shape) != Some(array.data.len() as u64) {
        let (wanted, found) = (tuple(&shape), tuple(&array.shape));
        return Err(format!(
            "`--shape` expected as many elements as {} has, found {wanted} for {found}",
            path.display()
        ));
    }
    Ok(shape)
}

/// The shape of an array that begins as zeros: of `--shape`, of the kernel, or an element for each item of the problem.
fn shape_of_zeros(plan: &Plan<'_>, place: &Place<'_>, scalar: Scalar) -> Vec<u64> {
    let elements = match (place.shape, place.binding.stride_bytes, plan.size) {
        (Some(shape), ..) => shape.0.clone(),
        (None, None, _) => return vec![place.binding.min_bytes / scalar.bytes()],
        (None, Some(_), size) => size.map_or_else(Vec::new, Dims::reversed),
    };
    [&elements[..], &element_axis(place, scalar)].concat()
}

/// The axis that a vector as element adds: its length in memory, which is 4 for a `vec3`.
fn element_axis(place: &Place<'_>, scalar: Scalar) -> Vec<u64> {
    let scalars = place.binding.stride_bytes.map_or(1, |stride| stride / scalar.bytes());
    if scalars > 1 { vec![scalars] } else { Vec::new() }
}

/// Writes the outputs: first all of them beside their places, then all of them into their places.
pub(super) fn download(bound: Vec<Bound<'_>>) -> Fallible<Vec<OutputReport>> {
    let (mut files, mut reports) = (Vec::new(), Vec::new());
    for Bound { place, buffer, scalar, shape, file } in bound {
        let (Some(path), Some(mut file)) = (place.output, file) else { continue };
        let array = Array { scalar, shape, data: buffer.read()? };
        let written = file.write_all(&array.header()).and_then(|()| file.write_all(&array.data));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        files.push(file);
        reports.push(OutputReport {
            name: place.binding.name.clone(),
            dtype: scalar.to_string(),
            shape: array.shape,
            file: path.display().to_string(),
        });
    }
    files.into_iter().try_for_each(NewFile::commit)?;
    Ok(reports)
}
