//! Where tensors come from.

use super::autograd::Record;
use super::check::{self, Name, Within, invalid, mismatch};
use super::node::Storage;
use super::{Tensor, run};
use crate::{DType, Device, Error, ErrorKind, Result, Shape};
use kiln_device::Buffer;
use kiln_ir::graph::{Op, TensorType};
use kiln_ir::{Class, Element, Layout, with_element};

impl Tensor {
    /// A tensor of these elements, row by row.
    ///
    /// The Rust type is the dtype: write `1.0f32` for `F32`, because a float without a suffix is an `f64`, which few ops compute with.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], (2, 2), &device)?;
    /// assert_eq!(x.sum(0)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ShapeMismatch` where there are not as many elements as the shape has; `OutOfMemory` and `TooLarge`; the device's fault.
    pub fn from_slice<T: Element>(elements: &[T], shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        let shape = shape.into().checked().map_err(|error| error.context("from_slice"))?;
        if elements.len() != shape.elem_count() {
            let (wanted, found) = (shape.elem_count(), elements.len());
            return Err(mismatch(format!("from_slice expected {wanted} elements for {shape}, found {found}")));
        }
        let ty = TensorType { shape, dtype: T::DTYPE };
        let buffer = run::allocate_elements(device, &ty)?;
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        buffer.slice(..bytes.len() as u64)?.write(bytes)?;
        let layout = Layout::contiguous(ty.shape.clone());
        Ok(Self::ready(ty, device, Storage { buffer, layout: layout.into(), submission: 0 }))
    }

    /// Creates a tensor from a vector of its elements, row by row. As [`from_slice`](Self::from_slice).
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    #[expect(clippy::needless_pass_by_value, reason = "callers have a vector that they need no longer")]
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        Self::from_slice(&elements, shape, device)
    }

    /// Makes a tensor of the elements that lie row by row at the start of a buffer, such as one that a [kernel](crate::kernel::Kernel) writes.
    ///
    /// The tensor shares the memory: do not write to the buffer while the tensor, or one that is not computed yet, depends on it. The
    /// elements are copied, in order with everything submitted before, where kernels cannot use the buffer as it is: where it starts
    /// between the offsets that the device binds at ([`DeviceLimits::binding_alignment_bytes`](crate::device::DeviceLimits), on a GPU), or
    /// between two elements, and where a GPU finds no whole group of 16 bytes at its end (allocate a multiple of 16 bytes to avoid that).
    /// Bytes of `Bool` must be 0 or 1. The device copies; where a GPU cannot, because the bytes are not whole words, the host does, and waits for them.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::{DType, Tensor};
    ///
    /// let buffer = device.buffer_from(&[1.0f32, 2.0, 3.0, 4.0])?;
    /// let x = Tensor::from_buffer(buffer.as_bytes(), (2, 2), DType::F32, &device)?;
    /// assert_eq!(x.sum(1)?.to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where the buffer is of another device, is staging memory, or has fewer bytes than the elements; `OutOfMemory` for
    /// a copy; the device's fault.
    pub fn from_buffer(buffer: &Buffer, shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        let shape = shape.into().checked().map_err(|error| error.context("from_buffer"))?;
        let ty = TensorType { shape, dtype };
        let (bytes, TensorType { shape, .. }) = (ty.bytes(), &ty);
        let refuse =
            |wants: String, found: String| Err(invalid(format!("from_buffer expected {wants}, found {found}")));
        if !device.runtime().owns(buffer) {
            let (own, other) = (&device.info().id, &buffer.device_info().id);
            return refuse(format!("a buffer of `{own}`"), format!("one of another device `{other}`"));
        }
        if !buffer.usage().is_bindable() {
            return refuse("memory that kernels work on".into(), buffer.usage().to_string());
        }
        if buffer.bytes() < bytes {
            return refuse(format!("{bytes} bytes for {dtype} {shape}"), format!("{} bytes", buffer.bytes()));
        }
        let target = device.target();
        let alignment = (target.input_alignment_bytes as u64).max(dtype.bytes() as u64);
        let is_usable = buffer.offset().is_multiple_of(alignment)
            && buffer.bytes() >= bytes.next_multiple_of(target.access_bytes)
            && bytes > 0;
        let layout = Layout::contiguous(shape.clone()).into();
        if is_usable {
            run::check_size(device, &ty)?;
            let (buffer, submission) =
                (buffer.slice(..bytes.next_multiple_of(target.access_bytes))?, buffer.last_submission());
            return Ok(Self::ready(ty, device, Storage { buffer, layout, submission }));
        }
        let copy = run::allocate_elements(device, &ty)?;
        let (from, to) = (buffer.slice(..bytes)?, copy.slice(..bytes)?);
        let alignment = device.runtime().api().properties().copy_alignment;
        if from.offset().is_multiple_of(alignment) && bytes.is_multiple_of(alignment) {
            from.copy_to(&to)?;
        } else {
            to.write(&from.read()?)?;
        }
        let submission = copy.last_submission();
        Ok(Self::ready(ty, device, Storage { buffer: copy, layout, submission }))
    }

    /// A tensor with one number in every element. It takes no memory before it is needed.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::full((2, 2), 1.5, kiln::DType::F16, &device)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.5; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where an integer dtype cannot hold the number; `TooLarge`.
    pub fn full(shape: impl Into<Shape>, value: impl Into<f64>, dtype: DType, device: &Device) -> Result<Self> {
        let shape = shape.into().checked().map_err(|error| error.context("full"))?;
        Self::splat("full", shape, value.into(), dtype, device)
    }

    /// A tensor of zeros.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::zeros(3, kiln::DType::I32, &device)?.to_vec::<i32>()?, [0, 0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::full(shape, 0.0, dtype, device).within("zeros")
    }

    /// A tensor of ones.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::ones(3, kiln::DType::U8, &device)?.to_vec::<u8>()?, [1, 1, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn ones(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::full(shape, 1.0, dtype, device).within("ones")
    }

    /// Returns zeros with the shape, dtype and device of this tensor.
    ///
    /// # Errors
    /// None today; a `Result` for symmetry with the other constructors.
    pub fn zeros_like(&self) -> Result<Self> {
        self.like(0.0)
    }

    /// Returns ones with the shape, dtype and device of this tensor.
    ///
    /// # Errors
    /// None today; a `Result` for symmetry with the other constructors.
    pub fn ones_like(&self) -> Result<Self> {
        self.like(1.0)
    }

    /// Returns one number in every element, with the shape, dtype and device of this tensor.
    ///
    /// # Errors
    /// `InvalidArgument` where an integer dtype cannot hold the number.
    pub fn full_like(&self, value: impl Into<f64>) -> Result<Self> {
        self.like(value.into()).within("full_like")
    }

    /// Creates `count` evenly spaced numbers from `start` to `end`, both included.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::linspace(0.0, 1.0, 5, kiln::DType::F32, &device)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for integers and numbers that are not finite; `TooLarge`.
    pub fn linspace(start: f64, end: f64, count: usize, dtype: DType, device: &Device) -> Result<Self> {
        if !(start.is_finite() && end.is_finite() && (dtype.is_float() || dtype == DType::F64)) {
            return Err(invalid(format!(
                "linspace expected finite numbers of a float dtype, found {start}, {end}, {dtype}"
            )));
        }
        let shape = Shape::from(count).checked().map_err(|error| error.context("linspace"))?;
        let last = count.saturating_sub(1).max(1) as f64;
        if dtype == DType::F64 {
            let step = end / last - start / last;
            let from_end = |index: usize| if count > 1 { end - (last - index as f64) * step } else { start };
            let number = |index: usize| if index < count / 2 { start + index as f64 * step } else { from_end(index) };
            return Self::from_numbers("linspace", shape, number, device);
        }
        let places = Self::iota(&shape, device).to_dtype(DType::F32)?;
        // From both ends, so that both are exact.
        let from_start = places.mul_scalar((end - start) / last)?.add_scalar(start)?;
        let from_end = places.sub_scalar(last)?.mul_scalar((end - start) / last)?.add_scalar(end)?;
        places.lt(last / 2.0)?.where_(&from_start, &from_end)?.to_dtype(dtype)
    }

    /// Numbers from `start` up to `end`, `step` apart, along one axis. The last one is before `end`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::arange(1.0, 2.0, 0.25, kiln::DType::F32, &device)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.25, 1.5, 1.75]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where the step is 0 or a number is not finite, or where the dtype cannot hold one of them; `TooLarge`.
    pub fn arange(start: f64, end: f64, step: f64, dtype: DType, device: &Device) -> Result<Self> {
        let count = ((end - start) / step).ceil();
        if !(start.is_finite() && end.is_finite() && step.is_finite()) || step == 0.0 {
            let message =
                format!("arange expected finite numbers and a step other than 0, found {start}, {end}, {step}");
            return Err(invalid(message));
        }
        let shape = Shape::from(count.max(0.0) as usize).checked().map_err(|error| error.context("arange"))?;
        // The ends are checked for the dtype that was asked for.
        bits("arange", start, dtype)?;
        if count > 1.0 {
            bits("arange", step.abs(), dtype)?;
        }
        bits("arange", start + (count.max(1.0) - 1.0) * step, dtype)?;
        match dtype {
            DType::F64 => return Self::from_numbers("arange", shape, |index| start + index as f64 * step, device),
            DType::I64 => {
                let (start, step) = (start as i64, step as i64);
                return Self::from_numbers("arange", shape, |index| start + index as i64 * step, device);
            }
            _ => {}
        }
        let index = Self::iota(&shape, device).to_dtype(dtype.computed())?;
        let wrapped = |value: f64| if dtype.class() == Class::Uint { (value as i64 as u32).into() } else { value };
        index.mul_scalar(wrapped(step))?.add_scalar(start)?.to_dtype(dtype)
    }

    /// The identity matrix of `length` rows.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::eye(2, kiln::DType::F32, &device)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn eye(length: usize, dtype: DType, device: &Device) -> Result<Self> {
        let (row, column) = Self::row_and_column(length, length, device).within("eye")?;
        row.eq(&column)?.to_dtype(dtype)
    }

    /// A matrix with ones on and below a diagonal, zeros above it. Diagonal 0 is the main one, 1 the one above it.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::tri(2, 3, 0, kiln::DType::I32, &device)?;
    /// assert_eq!(x.to_vec::<i32>()?, [1, 0, 0, 1, 1, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn tri(rows: usize, columns: usize, diagonal: i32, dtype: DType, device: &Device) -> Result<Self> {
        let (row, column) = Self::row_and_column(rows, columns, device).within("tri")?;
        let (row, column) = (row.to_dtype(DType::I32)?, column.to_dtype(DType::I32)?);
        // Diagonals beyond the corners are all the same, and the sum below has to fit.
        let diagonal = i64::from(diagonal).clamp(-(rows as i64), columns as i64);
        column.le(&row.add_scalar(diagonal as f64)?)?.to_dtype(dtype)
    }

    /// What is on and below a diagonal of the last two axes; zeros above it.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::ones((2, 2), kiln::DType::F32, &device)?;
    /// assert_eq!(x.tril(0)?.to_vec::<f32>()?, [1.0, 0.0, 1.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where there are fewer than two axes.
    pub fn tril(&self, diagonal: i32) -> Result<Self> {
        let (below, zero) = (self.triangle("tril", diagonal)?, self.like(0.0)?);
        below.where_(self, &zero)
    }

    /// What is on and above a diagonal of the last two axes; zeros below it.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::ones((2, 2), kiln::DType::F32, &device)?;
    /// assert_eq!(x.triu(0)?.to_vec::<f32>()?, [1.0, 1.0, 0.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where there are fewer than two axes.
    pub fn triu(&self, diagonal: i32) -> Result<Self> {
        let (below, zero) = (self.triangle("triu", diagonal.saturating_sub(1))?, self.like(0.0)?);
        below.where_(&zero, self)
    }

    /// The tensor on another device: its elements are read and written there.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let other = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2], 2, &device)?.to_device(&other)?;
    /// assert!(x.device().is_same(&other));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`eval`](Self::eval), and `OutOfMemory` there.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device().is_same(device) {
            return Ok(self.clone());
        }
        let copy = with_element!(self.dtype(), T => Self::from_slice(&self.to_vec::<T>()?, self.shape(), device))?;
        Ok(if self.is_tracked() { copy.with_record(Record::of_copy(self)) } else { copy })
    }

    fn triangle(&self, op: &str, diagonal: i32) -> Result<Self> {
        let &[.., rows, columns] = &self.shape()[..] else {
            return Err(invalid(format!("{op} expected at least two axes, found {}", Name(self))));
        };
        Self::tri(rows, columns, diagonal, DType::U8, self.device())
    }

    /// The row and the column of each element of a matrix.
    pub(super) fn row_and_column(rows: usize, columns: usize, device: &Device) -> Result<(Self, Self)> {
        let index = Self::iota(&Shape::from((rows, columns)).checked()?, device);
        let row = index.div_scalar(columns as f64)?;
        let column = index.sub(&row.mul_scalar(columns as f64)?)?;
        Ok((row, column))
    }

    /// Elements that the host computes by their places, of a dtype that a device may have no arithmetic for.
    fn from_numbers<T: Element>(op: &str, shape: Shape, number: impl Fn(usize) -> T, device: &Device) -> Result<Self> {
        run::check_size(device, &TensorType { shape: shape.clone(), dtype: T::DTYPE })?;
        let (mut numbers, count) = (Vec::new(), shape.elem_count());
        numbers.try_reserve_exact(count).map_err(|error| {
            Error::new(ErrorKind::OutOfMemory, format!("{op} expected memory for {shape}, found none: {error}"))
        })?;
        numbers.extend((0..count).map(number));
        Self::from_slice(&numbers, shape, device)
    }

    /// The number of each element, row by row.
    pub(super) fn iota(shape: &Shape, device: &Device) -> Self {
        Self::source(Op::Iota, 0, TensorType { shape: shape.clone(), dtype: DType::U32 }, device)
    }

    /// One number in every element, under this shape.
    pub(super) fn splat(op: &str, shape: Shape, value: f64, dtype: DType, device: &Device) -> Result<Self> {
        match dtype {
            DType::F64 => Self::from_slice(&[value], (), device)?.spread(&shape),
            DType::I64 => Self::from_slice(&[integer(op, value)?], (), device)?.spread(&shape),
            _ => Ok(Self::source(Op::Scalar, bits(op, value, dtype)?, TensorType { shape, dtype }, device)),
        }
    }

    /// One number in every element, in everything else as this tensor.
    pub(super) fn like(&self, value: f64) -> Result<Self> {
        Self::splat("full", self.shape().clone(), value, self.dtype(), self.device())
    }
}

/// A number as an `i64`.
fn integer(op: &str, value: f64) -> Result<i64> {
    bits(op, value, DType::I64)?;
    Ok(value as i64)
}

/// A number as the bits of the class of a dtype.
fn bits(op: &str, value: f64, dtype: DType) -> Result<u32> {
    let holds = match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => true,
        DType::Bool => value == 0.0 || value == 1.0,
        DType::I64 => value >= i64::MIN as f64 && value < i64::MAX as f64 && value == value.trunc(),
        DType::I8 => f64::from(value as i8) == value,
        DType::I32 => f64::from(value as i32) == value,
        DType::U32 => f64::from(value as u32) == value,
        DType::U8 => f64::from(value as u8) == value,
    };
    if !holds {
        return Err(check::invalid(format!("{op} expected a number that {dtype} can hold, found {value}")));
    }
    Ok(match dtype.class() {
        // Tensors of 64 bits bring their numbers themselves.
        Class::Wide => 0,
        Class::Float => (value as f32).to_bits(),
        Class::Int => (value as i32).cast_unsigned(),
        Class::Uint => value as u32,
    })
}
