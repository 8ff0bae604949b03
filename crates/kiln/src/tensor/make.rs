//! Constructors of tensors.

use super::autograd::Record;
use super::check::{self, Name, Within, invalid, mismatch};
use super::node::Storage;
use super::{Tensor, run};
use crate::{DType, Device, Error, ErrorKind, Result, Shape};
use kiln_device::Buffer;
use kiln_ir::graph::{Op, TensorType};
use kiln_ir::{Class, Element, Layout, with_element};

impl Tensor {
    /// Creates a tensor from a slice of elements in row-major order.
    ///
    /// The Rust type determines the dtype: write `1.0f32` for `F32`, because a float without a suffix is an `f64`,
    /// which few ops support.
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
    /// Returns `ShapeMismatch` if the number of elements does not match the shape, `OutOfMemory`, `TooLarge`, and
    /// device errors.
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

    /// Creates a tensor from a vector of elements in row-major order. Same as [`from_slice`](Self::from_slice).
    ///
    /// See [`from_slice`](Self::from_slice) for an example.
    ///
    /// # Errors
    /// Same as [`from_slice`](Self::from_slice).
    #[expect(clippy::needless_pass_by_value, reason = "callers pass a vector that they no longer need")]
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        Self::from_slice(&elements, shape, device)
    }

    /// Creates a tensor from row-major elements at the start of a buffer, for example one that a
    /// [kernel](crate::kernel::Kernel) writes.
    ///
    /// The tensor shares the memory: do not write to the buffer while the tensor, or an uncomputed tensor that
    /// depends on it, is alive. The elements are copied, in submission order, if kernels cannot use the buffer
    /// directly: if its offset is not a multiple of the binding alignment
    /// ([`DeviceLimits::binding_alignment_bytes`](crate::device::DeviceLimits), on a GPU) or of the element size, or
    /// if on a GPU it ends before the next multiple of 16 bytes (allocate a multiple of 16 bytes to avoid that). The
    /// device makes the copy; if the bytes are not whole words, which a GPU cannot copy, the host does, and waits for
    /// them. Bytes of `Bool` must be 0 or 1.
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
    /// Returns `InvalidArgument` if the buffer belongs to another device, is staging memory, or is smaller than the
    /// elements, `OutOfMemory` if a copy cannot be allocated, and device errors.
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
            return refuse("memory that kernels can access".into(), buffer.usage().to_string());
        }
        if buffer.bytes() < bytes {
            return refuse(format!("{bytes} bytes for {dtype} {shape}"), format!("{} bytes", buffer.bytes()));
        }
        let target = device.target();
        let alignment = (target.input_alignment_bytes as u64).max(dtype.bytes() as u64);
        // Kernels read whole vectors of `access_bytes`, also past the last element, so a shorter buffer is copied.
        let is_usable = buffer.offset().is_multiple_of(alignment)
            && buffer.bytes() >= bytes.next_multiple_of(target.access_bytes)
            && bytes > 0;
        let layout = Layout::contiguous(shape.clone()).into();
        if is_usable {
            run::check_size(device, &ty)?;
            // Work that the caller submitted may still write the buffer; the tensor is not ready before that.
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

    /// Creates a tensor with every element set to one value. It allocates no memory until it is needed.
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
    /// Returns `InvalidArgument` if an integer dtype cannot hold the number, and `TooLarge` if the shape is too
    /// large.
    pub fn full(shape: impl Into<Shape>, value: impl Into<f64>, dtype: DType, device: &Device) -> Result<Self> {
        let shape = shape.into().checked().map_err(|error| error.context("full"))?;
        Self::splat("full", shape, value.into(), dtype, device)
    }

    /// Creates a tensor of zeros.
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
    /// Returns `TooLarge` if the shape is too large.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::full(shape, 0.0, dtype, device).within("zeros")
    }

    /// Creates a tensor of ones.
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
    /// Returns `TooLarge` if the shape is too large.
    pub fn ones(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::full(shape, 1.0, dtype, device).within("ones")
    }

    /// Returns zeros with the shape, dtype and device of this tensor.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new([3.0f32, 4.0], &device)?;
    /// assert_eq!(x.zeros_like()?.to_vec::<f32>()?, [0.0; 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Never fails today; returns a `Result` for symmetry with the other constructors.
    pub fn zeros_like(&self) -> Result<Self> {
        self.like(0.0)
    }

    /// Returns ones with the shape, dtype and device of this tensor.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new([3.0f32, 4.0], &device)?;
    /// assert_eq!(x.ones_like()?.to_vec::<f32>()?, [1.0; 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Never fails today; returns a `Result` for symmetry with the other constructors.
    pub fn ones_like(&self) -> Result<Self> {
        self.like(1.0)
    }

    /// Returns a tensor with every element set to one value, with the shape, dtype and device of this tensor.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new([3.0f32, 4.0], &device)?;
    /// assert_eq!(x.full_like(0.5)?.to_vec::<f32>()?, [0.5; 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if an integer dtype cannot hold the number.
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
    /// Returns `InvalidArgument` for integer dtypes and numbers that are not finite, and `TooLarge` if the shape is
    /// too large.
    pub fn linspace(start: f64, end: f64, count: usize, dtype: DType, device: &Device) -> Result<Self> {
        if !(start.is_finite() && end.is_finite() && (dtype.is_float() || dtype == DType::F64)) {
            return Err(invalid(format!(
                "linspace expected finite numbers of a float dtype, found {start}, {end}, {dtype}"
            )));
        }
        let shape = Shape::from(count).checked().map_err(|error| error.context("linspace"))?;
        // At least 1, so that one element, or none, does not divide by zero.
        let last = count.saturating_sub(1).max(1) as f64;
        if dtype == DType::F64 {
            // Divided before the subtraction: `end - start` can overflow.
            let step = end / last - start / last;
            let from_end = |index: usize| if count > 1 { end - (last - index as f64) * step } else { start };
            let number = |index: usize| if index < count / 2 { start + index as f64 * step } else { from_end(index) };
            return Self::from_numbers("linspace", shape, number, device);
        }
        let places = Self::iota(&shape, device).to_dtype(DType::F32)?;
        // Interpolates from the nearer end, so that both ends are exact.
        let from_start = places.mul_scalar((end - start) / last)?.add_scalar(start)?;
        let from_end = places.sub_scalar(last)?.mul_scalar((end - start) / last)?.add_scalar(end)?;
        places.lt(last / 2.0)?.where_(&from_start, &from_end)?.to_dtype(dtype)
    }

    /// Creates the numbers from `start` up to `end`, exclusive, in steps of `step`, along one axis.
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
    /// Returns `InvalidArgument` if the step is 0, a number is not finite, or the dtype cannot hold one of the
    /// numbers, and `TooLarge` if there are too many of them.
    pub fn arange(start: f64, end: f64, step: f64, dtype: DType, device: &Device) -> Result<Self> {
        let count = ((end - start) / step).ceil();
        if !(start.is_finite() && end.is_finite() && step.is_finite()) || step == 0.0 {
            let message =
                format!("arange expected finite numbers and a step other than 0, found {start}, {end}, {step}");
            return Err(invalid(message));
        }
        let shape = Shape::from(count.max(0.0) as usize).checked().map_err(|error| error.context("arange"))?;
        // Check the ends against the requested dtype, before the computation in a wider one.
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
        // A negative step of an unsigned range is added modulo 2³², which gives the right elements.
        let wrapped = |value: f64| if dtype.class() == Class::Uint { (value as i64 as u32).into() } else { value };
        index.mul_scalar(wrapped(step))?.add_scalar(start)?.to_dtype(dtype)
    }

    /// Creates the identity matrix with `length` rows.
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
    /// Returns `TooLarge` if the shape is too large.
    pub fn eye(length: usize, dtype: DType, device: &Device) -> Result<Self> {
        let (row, column) = Self::row_and_column(length, length, device).within("eye")?;
        row.eq(&column)?.to_dtype(dtype)
    }

    /// Creates a matrix with ones on and below a diagonal, and zeros above it. Diagonal 0 is the main diagonal, 1 the
    /// one above it.
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
    /// Returns `TooLarge` if the shape is too large.
    pub fn tri(rows: usize, columns: usize, diagonal: i32, dtype: DType, device: &Device) -> Result<Self> {
        let (row, column) = Self::row_and_column(rows, columns, device).within("tri")?;
        let (row, column) = (row.to_dtype(DType::I32)?, column.to_dtype(DType::I32)?);
        // Diagonals beyond the corners are equivalent; clamping keeps the sum below from overflowing.
        let diagonal = i64::from(diagonal).clamp(-(rows as i64), columns as i64);
        column.le(&row.add_scalar(diagonal as f64)?)?.to_dtype(dtype)
    }

    /// Returns the lower triangle of the last two axes: elements above a diagonal are set to 0.
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
    /// Returns `InvalidArgument` if there are fewer than two axes.
    pub fn tril(&self, diagonal: i32) -> Result<Self> {
        let (below, zero) = (self.triangle("tril", diagonal)?, self.like(0.0)?);
        below.where_(self, &zero)
    }

    /// Returns the upper triangle of the last two axes: elements below a diagonal are set to 0.
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
    /// Returns `InvalidArgument` if there are fewer than two axes.
    pub fn triu(&self, diagonal: i32) -> Result<Self> {
        let (below, zero) = (self.triangle("triu", diagonal.saturating_sub(1))?, self.like(0.0)?);
        below.where_(&zero, self)
    }

    /// Copies the tensor to another device, through the host.
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
    /// Same as [`eval`](Self::eval), and `OutOfMemory` on the other device.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device().is_same(device) {
            return Ok(self.clone());
        }
        // Through the host, which waits for the elements: a buffer belongs to one device.
        let copy = with_element!(self.dtype(), T => Self::from_slice(&self.to_vec::<T>()?, self.shape(), device))?;
        Ok(if self.is_tracked() { copy.with_record(Record::of_copy(self)) } else { copy })
    }

    fn triangle(&self, op: &str, diagonal: i32) -> Result<Self> {
        let &[.., rows, columns] = &self.shape()[..] else {
            return Err(invalid(format!("{op} expected at least two axes, found {}", Name(self))));
        };
        Self::tri(rows, columns, diagonal, DType::U8, self.device())
    }

    /// Returns the row and column index of each element of a matrix.
    pub(super) fn row_and_column(rows: usize, columns: usize, device: &Device) -> Result<(Self, Self)> {
        let index = Self::iota(&Shape::from((rows, columns)).checked()?, device);
        let row = index.div_scalar(columns as f64)?;
        let column = index.sub(&row.mul_scalar(columns as f64)?)?;
        Ok((row, column))
    }

    /// Creates a tensor with a host function of the index, for dtypes that a device may not compute with.
    fn from_numbers<T: Element>(op: &str, shape: Shape, number: impl Fn(usize) -> T, device: &Device) -> Result<Self> {
        run::check_size(device, &TensorType { shape: shape.clone(), dtype: T::DTYPE })?;
        let (mut numbers, count) = (Vec::new(), shape.elem_count());
        numbers.try_reserve_exact(count).map_err(|error| {
            Error::new(ErrorKind::OutOfMemory, format!("{op} expected memory for {shape}, found none: {error}"))
        })?;
        numbers.extend((0..count).map(number));
        Self::from_slice(&numbers, shape, device)
    }

    /// Returns the row-major index of each element.
    pub(super) fn iota(shape: &Shape, device: &Device) -> Self {
        Self::source(Op::Iota, 0, TensorType { shape: shape.clone(), dtype: DType::U32 }, device)
    }

    /// Creates a tensor with every element set to one value.
    pub(super) fn splat(op: &str, shape: Shape, value: f64, dtype: DType, device: &Device) -> Result<Self> {
        match dtype {
            // The parameter of `Op::Scalar` has 32 bits, so a 64-bit constant is one stored element with strides of
            // 0.
            DType::F64 => Self::from_slice(&[value], (), device)?.broadcast_unchecked(&shape),
            DType::I64 => Self::from_slice(&[integer(op, value)?], (), device)?.broadcast_unchecked(&shape),
            _ => Ok(Self::source(Op::Scalar, bits(op, value, dtype)?, TensorType { shape, dtype }, device)),
        }
    }

    /// Creates a tensor with every element set to one value, with the shape, dtype and device of this tensor.
    pub(super) fn like(&self, value: f64) -> Result<Self> {
        Self::splat("full", self.shape().clone(), value, self.dtype(), self.device())
    }
}

/// Converts a number to `i64`, exactly.
fn integer(op: &str, value: f64) -> Result<i64> {
    bits(op, value, DType::I64)?;
    Ok(value as i64)
}

/// Returns the bits of a number in the class of a dtype.
fn bits(op: &str, value: f64, dtype: DType) -> Result<u32> {
    let holds = match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => true,
        DType::Bool => value == 0.0 || value == 1.0,
        // `i64::MAX as f64` rounds up to 2^63, which does not fit, hence `<`.
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
        // 64-bit constants are stored as tensors, not as op parameters.
        Class::Wide => 0,
        Class::Float => (value as f32).to_bits(),
        Class::Int => (value as i32).cast_unsigned(),
        Class::Uint => value as u32,
    })
}
