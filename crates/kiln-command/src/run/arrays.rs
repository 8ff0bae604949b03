//! Moves arrays between files and the device.

use super::dims::Dims;
use super::element::Element;
use super::plan::{BufferArgs, Plan};
use super::report::OutputReport;
use crate::Fallible;
use crate::new_file::NewFile;
use crate::npy::{Array, Kind, data_bytes, tuple};
use kiln::Device;
use kiln::buffer::Buffer;
use kiln::kernel::{Binding, Scalar};
use std::path::Path;

/// A kernel binding with its buffer.
#[derive(Debug)]
pub(super) struct Bound<'a> {
    pub(super) args: BufferArgs<'a>,
    pub(super) buffer: Buffer,
    element: Element,
    /// Contents in file form: element type, shape and size.
    scalar: Scalar,
    shape: Vec<u64>,
    bytes: u64,
    /// Created before the kernel runs, so that an unwritable path is reported first.
    file: Option<NewFile>,
}

impl Bound<'_> {
    /// Returns the number of kernel elements in the array.
    fn elem_count(&self) -> u64 {
        self.shape[..self.shape.len().saturating_sub(self.element.axes.len())].iter().product()
    }
}

/// Creates each buffer of the plan: with its array, with zeros, or with generated numbers.
pub(super) fn upload<'a>(device: &Device, plan: &Plan<'a>) -> Fallible<Vec<Bound<'a>>> {
    // Structs have no shape in a file, so their zeros have none either.
    let is_given =
        |args: &&BufferArgs<'a>| args.input.is_some() || (plan.fill.is_none() && args.binding.scalar.is_some());
    let given = plan.buffers.iter().filter(is_given).map(|args| upload_one(device, plan, args));
    let mut bound: Vec<Bound<'a>> = given.collect::<Fallible<_>>()?;
    // Other buffers usually have as many elements as the longest given one.
    let longest = bound.iter().map(Bound::elem_count).max().unwrap_or(0);
    for args in plan.buffers.iter().filter(|args| !is_given(args)) {
        let count = plan.fill.unwrap_or(0).max(longest);
        let filled = filled(device, args, Element::of(args.binding), count);
        bound.push(filled.map_err(|error| format!("binding {}: {error}", args.binding))?);
    }
    Ok(bound)
}

fn upload_one<'a>(device: &Device, plan: &Plan<'a>, args: &BufferArgs<'a>) -> Fallible<Bound<'a>> {
    let binding = args.binding;
    let in_context = |error: String| format!("binding {binding}: {error}");
    let element = Element::of(binding);
    let (scalar, shape, data) = match args.input {
        Some(path) => {
            let (scalar, array) = read(path).map_err(in_context)?;
            let shape = shape_of_input(args, &element, scalar, &array, path).map_err(in_context)?;
            (scalar, shape, Some(array.data))
        }
        None => {
            let scalar = binding.scalar.ok_or_else(|| in_context("expected `--in`".to_string()))?;
            (scalar, shape_of_zeros(plan, args, &element), None)
        }
    };
    let bytes = data_bytes(kind(scalar), &shape).and_then(|bytes| Some((bytes, element.memory_bytes(bytes)?)));
    let (bytes, memory_bytes) = bytes
        .ok_or_else(|| in_context(format!("expected a shape of less than 2^64 bytes, found {}", tuple(&shape))))?;
    // Created before the kernel runs, so that an unwritable path is reported first.
    let file = args.output.map(NewFile::create).transpose()?;
    let buffer = device.buffer(memory_bytes)?;
    match data {
        Some(data) => buffer.write(&element.to_memory(data, scalar))?,
        None => buffer.zero()?,
    }
    Ok(Bound { args: *args, buffer, element, scalar, shape, bytes, file })
}

/// Creates a buffer of increasing numbers or zeros, of the length of `--shape` or for `count` elements.
fn filled<'a>(device: &Device, args: &BufferArgs<'a>, element: Element, count: u64) -> Fallible<Bound<'a>> {
    let binding = args.binding;
    let count = args.shape.map_or(Some(count), Dims::elem_count);
    let bytes = count.and_then(|count| bytes_of(binding, count));
    let bytes = bytes.ok_or("expected a shape of less than 2^64 bytes, found more")?;
    let buffer = device.buffer(bytes)?;
    let scalar = binding.scalar.unwrap_or(Scalar::U32);
    match binding.scalar {
        // Atomics start at zero, and so do structs, whose layout is arbitrary.
        Some(scalar) if !binding.type_name.contains("atomic") => buffer.write(&numbers(scalar, bytes))?,
        _ => buffer.zero()?,
    }
    Ok(Bound { args: *args, buffer, element, scalar, shape: Vec::new(), bytes, file: None })
}

/// Returns the size of a buffer with this many elements, or with this many in its trailing array; `None` on 64-bit overflow.
fn bytes_of(binding: &Binding, count: u64) -> Option<u64> {
    let bytes = match (binding.stride_bytes, binding.tail) {
        // `min_bytes` includes one element.
        (Some(stride), _) => count.saturating_sub(1).checked_mul(stride)?.checked_add(binding.min_bytes)?,
        (None, Some(tail)) => count.checked_mul(tail.stride_bytes)?.checked_add(tail.offset)?.max(binding.min_bytes),
        (None, None) => binding.min_bytes,
    };
    bytes.checked_next_multiple_of(4)
}

/// Returns increasing numbers: 0, 1, 2 for integers, which may be indices; 1, 2, 3 for floats, which may be divisors.
fn numbers(scalar: Scalar, bytes: u64) -> Vec<u8> {
    let number = |number: u64| match scalar {
        // `f16` holds whole numbers exactly up to 2048 only; the sequence repeats before that.
        Scalar::F16 => half::f16::from_f32((number % 1024 + 1) as f32).to_le_bytes().to_vec(),
        Scalar::F32 => ((number + 1) as f32).to_le_bytes().to_vec(),
        Scalar::I32 | Scalar::U32 => (number as u32).to_le_bytes().to_vec(),
    };
    (0..bytes / scalar.bytes()).flat_map(number).collect()
}

fn read(path: &Path) -> Result<(Scalar, Array), String> {
    let array = Array::read(path)?;
    match SCALARS.into_iter().find(|scalar| kind(*scalar) == array.kind) {
        Some(scalar) => Ok((scalar, array)),
        None => {
            let (known, found) = (SCALARS.map(|scalar| scalar.to_string()).join(", "), array.kind);
            let fix = "convert them, for example with `a.astype('<f4')`";
            Err(format!("{}: expected elements of {known}, found {found}; {fix}", path.display()))
        }
    }
}

/// Scalar types that a buffer can hold.
const SCALARS: [Scalar; 4] = [Scalar::F16, Scalar::F32, Scalar::I32, Scalar::U32];

fn kind(scalar: Scalar) -> Kind {
    Kind::by_name(&scalar.to_string()).expect("every scalar type is an array element type")
}

/// Returns the shape of an input array, from its file or from `--shape`.
fn shape_of_input(
    args: &BufferArgs<'_>,
    element: &Element,
    scalar: Scalar,
    array: &Array,
    path: &Path,
) -> Result<Vec<u64>, String> {
    let (binding, file, found) = (args.binding, path.display(), tuple(&array.shape));
    match (binding.scalar, binding.stride_bytes) {
        (Some(wanted), _) if wanted != scalar => {
            return Err(format!("expected elements of {wanted}, found {scalar} in {file}"));
        }
        (None, Some(stride)) if !(array.data.len() as u64).is_multiple_of(stride) => {
            let bytes = array.data.len();
            return Err(format!("expected a multiple of {stride} bytes, found {bytes} in shape {found} of {file}"));
        }
        _ => {}
    }
    let Some(shape) = args.shape else {
        if !array.shape.ends_with(&element.axes) {
            let wanted = tuple(&element.axes);
            return Err(format!(
                "expected a shape that ends with {wanted}, the shape of an element, found {found} in {file}"
            ));
        }
        return Ok(array.shape.clone());
    };
    if binding.tail.is_some() {
        let (wanted, bytes) = (shape.elem_count().and_then(|count| bytes_of(binding, count)), array.data.len() as u64);
        if wanted != Some(bytes) {
            let wanted = wanted.map_or_else(|| "more than 2^64".to_string(), |wanted| wanted.to_string());
            return Err(format!("`--shape` expected the {bytes} bytes of {file}, found {wanted}"));
        }
        // Structs after other members: there is no shape in numbers.
        return Ok(array.shape.clone());
    }
    let axes = match (binding.scalar, binding.stride_bytes.map(|stride| stride / scalar.bytes())) {
        // A struct element, as raw scalars.
        (None, Some(scalars)) if scalars > 1 => vec![scalars],
        _ => element.axes.clone(),
    };
    let shape = [shape.0.clone(), axes].concat();
    if data_bytes(array.kind, &shape) != Some(array.data.len() as u64) {
        let wanted = tuple(&shape);
        return Err(format!("`--shape` expected the {found} elements of {file}, found {wanted}"));
    }
    Ok(shape)
}

/// Returns the shape of a zeroed array: from `--shape`, from the kernel, or one element per item of the problem.
fn shape_of_zeros(plan: &Plan<'_>, args: &BufferArgs<'_>, element: &Element) -> Vec<u64> {
    let elements = match (args.shape, &element.count, plan.size) {
        (Some(shape), ..) => shape.0.clone(),
        (None, Some(count), _) => count.clone(),
        (None, None, size) => size.map_or_else(Vec::new, Dims::reversed),
    };
    [&elements[..], &element.axes].concat()
}

/// Writes the outputs: all of them to temporary files first, then moves all of them into place.
pub(super) fn download(bound: Vec<Bound<'_>>) -> Fallible<Vec<OutputReport>> {
    let (mut files, mut reports) = (Vec::new(), Vec::new());
    for Bound { args, buffer, element, scalar, shape, bytes, file } in bound {
        let (Some(path), Some(mut file)) = (args.output, file) else { continue };
        let array = Array { kind: kind(scalar), shape, data: element.to_file(buffer.read()?, scalar, bytes) };
        array.write(&mut file).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        files.push(file);
        reports.push(OutputReport {
            name: args.binding.name.clone(),
            dtype: scalar.to_string(),
            shape: array.shape,
            file: path.display().to_string(),
        });
    }
    files.into_iter().try_for_each(NewFile::commit)?;
    Ok(reports)
}
