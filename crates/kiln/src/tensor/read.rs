//! Reads elements to the host.

use super::Tensor;
use super::autograd::is_tracking;
use super::check::{Name, invalid, unsupported};
use crate::{DType, Error, ErrorKind, Result};
use kiln_device::Buffer;
use kiln_ir::Element;
use kiln_ir::graph::Op;
use kiln_kernels::wide::WideConvert;
use std::sync::Arc;

impl Tensor {
    /// Returns all elements in row-major order. Evaluates the tensor and waits for it.
    ///
    /// Conversions must be lossless: `f16` and `bf16` to `f32`, all floats and integers of at most 32 bits to `f64`,
    /// integers to wider ones, `bool` to integer dtypes other than `i8`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::ones((2, 2), kiln::DType::F16, &device)?;
    /// assert_eq!(x.sum(1)?.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Unsupported` if the elements have another dtype and the conversion could lose precision or range, and
    /// the errors of [`eval`](Self::eval).
    #[doc(alias = "to_vec1")]
    #[doc(alias = "tolist")]
    #[doc(alias = "numpy")]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            let widened = self.widened(T::DTYPE)?;
            // Evaluate in the tensor's own dtype first, so that the values read are the stored ones, rounded to it.
            self.eval()?;
            return widened.to_vec();
        }
        if self.elem_count() == 0 {
            self.eval()?;
            return Ok(Vec::new());
        }
        Ok(T::from_stored(self.contiguous()?.elements_in_memory(1)?.typed::<T::Stored>()?.read()?))
    }

    /// Returns the rows of a rank-2 tensor.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?;
    /// assert_eq!(x.to_vec2::<f32>()?, [[1.0, 2.0], [3.0, 4.0]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the tensor has another rank. Otherwise same as [`to_vec`](Self::to_vec).
    pub fn to_vec2<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let (_, columns) = self.dims2()?;
        let elements = self.to_vec()?;
        Ok((0..self.dims()[0]).map(|row| elements[row * columns..][..columns].to_vec()).collect())
    }

    /// Returns the elements of a rank-3 tensor as nested vectors.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new([[[1], [2]]], &device)?;
    /// assert_eq!(x.to_vec3::<i32>()?, [[[1], [2]]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`to_vec2`](Self::to_vec2).
    pub fn to_vec3<T: Element>(&self) -> Result<Vec<Vec<Vec<T>>>> {
        let (count, ..) = self.dims3()?;
        self.eval()?;
        // The selections are views of stored elements: without the `eval` above, each would evaluate the pending
        // graph.
        (0..count).map(|matrix| self.select(0, matrix)?.to_vec2()).collect()
    }

    /// Returns the buffer that holds the elements in row-major order, for [kernels](crate::kernel::Kernel) and
    /// copies. Submits pending ops without waiting for them.
    ///
    /// The buffer is the tensor's own memory: do not write to it. It ends at a multiple of four bytes, so that
    /// kernels can bind it; for smaller elements the last word may contain padding bytes. Nothing is copied unless
    /// the tensor is a non-contiguous view, or starts at an offset that the device cannot bind; a kernel then copies
    /// the elements into a new buffer.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 4.0], 2, &device)?.sqrt()?;
    /// assert_eq!(x.buffer()?.typed::<f32>()?.read()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`eval`](Self::eval).
    pub fn buffer(&self) -> Result<Buffer> {
        let tensor = self.contiguous()?;
        let buffer = tensor.elements_in_memory(4)?;
        if buffer.offset().is_multiple_of(self.device().info().limits.binding_alignment_bytes) || buffer.bytes() == 0 {
            return Ok(buffer);
        }
        // A slice at an offset that a kernel cannot bind is copied to a buffer of its own.
        Self::planned_like(Op::Cast, &[&tensor])?.elements_in_memory(4)
    }

    /// Evaluates a contiguous tensor and returns its memory, extended to this multiple of bytes if the allocation is
    /// large enough.
    fn elements_in_memory(&self, multiple: u64) -> Result<Buffer> {
        self.eval()?;
        let Some(storage) = self.0.storage() else {
            return Err(Error::new(ErrorKind::Internal, "expected elements after eval, found none"));
        };
        let size = self.dtype().bytes() as u64;
        let start = storage.layout.offset() as u64 * size;
        // `multiple` is 4 where a kernel binds the result: bindings are whole words. Kiln's own allocations are
        // padded; memory from `from_buffer` may end earlier, hence the `min`.
        let end = start + (self.elem_count() as u64 * size).next_multiple_of(multiple);
        storage.buffer.slice(start..end.min(storage.buffer.bytes()))
    }

    /// Returns the only element.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?;
    /// assert_eq!(x.sum_all()?.to_scalar::<f32>()?, 3.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` unless there is exactly one element. Otherwise same as [`to_vec`](Self::to_vec).
    #[doc(alias = "item")]
    #[doc(alias = "to_vec0")]
    pub fn to_scalar<T: Element>(&self) -> Result<T> {
        match self.elem_count() {
            1 => Ok(self.to_vec()?[0]),
            _ => Err(invalid(format!("to_scalar expected one element, found {}", Name(self)))),
        }
    }

    /// Returns a contiguous tensor with the same elements. Copies nothing if it already is contiguous.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2, 3, 4], (2, 2), &device)?.t()?.contiguous()?;
    /// assert_eq!(x.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as any op that triggers evaluation of a full batch.
    pub fn contiguous(&self) -> Result<Self> {
        // Read the state once: another thread may evaluate the tensor concurrently.
        let is_contiguous = match self.0.planned() {
            // Results of ops are contiguous; a view has the layout of its source.
            Some(planned) => !matches!(planned.op, Op::View(_)),
            None => self.0.storage().is_some_and(|storage| storage.layout.is_contiguous()),
        };
        if is_contiguous { Ok(self.clone()) } else { Self::planned_like(Op::Cast, &[self]) }
    }

    /// Converts the elements to another dtype. Float to float rounds to nearest; float to integer truncates and
    /// saturates, NaN becomes 0; integer to integer wraps; for `bool`, every number but 0 is true.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.9f32, -300.0, f32::NAN], 3, &device)?;
    /// assert_eq!(x.to_dtype(kiln::DType::I32)?.to_vec::<i32>()?, [1, -300, 0]);
    /// assert_eq!(x.to_dtype(kiln::DType::U8)?.to_vec::<u8>()?, [1, 0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as any op that triggers evaluation of a full batch.
    #[doc(alias = "to")]
    #[doc(alias = "cast")]
    #[doc(alias = "astype")]
    #[doc(alias = "half")]
    #[doc(alias = "float")]
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        if dtype.is_wide() || self.dtype().is_wide() {
            if self.is_tracked() && is_tracking() && dtype == DType::F64 {
                let found = Name(self);
                return Err(unsupported(format!(
                    "to_dtype(f64) expected an untracked tensor, because f64 has no gradients, found {found}; detach it first"
                )));
            }
            return Self::kernel(Arc::new(WideConvert { to: dtype, is_index: false }), &[self]);
        }
        let ty = kiln_ir::graph::TensorType { shape: self.shape().clone(), dtype };
        Self::planned(Op::Cast, &[self], ty)
    }

    fn widened(&self, to: DType) -> Result<Self> {
        use DType::{BF16, Bool, F16, F32, F64, I8, I32, I64, U8, U32};
        match (self.dtype(), to) {
            (F16 | BF16, F32 | F64)
            | (F32 | I8 | I32 | U8 | U32, F64)
            | (I8, I32 | I64)
            | (I32 | U32, I64)
            | (U8, I32 | U32 | I64)
            | (Bool, U8 | I32 | U32 | I64) => self.detach().to_dtype(to),
            _ => {
                let name = Name(self);
                Err(unsupported(format!(
                    "to_vec expected elements that fit {to}, found {name}; convert them with to_dtype"
                )))
            }
        }
    }
}
