//! Concatenation and stacking.

use super::Tensor;
use super::check::{self, Axis, Within, invalid, mismatch, names};
use super::node::Storage;
use super::run::allocate_elements;
use crate::Result;
use kiln_ir::graph::TensorType;
use kiln_ir::{Layout, Shape};
use kiln_kernels::cat::Cat;
use std::borrow::Borrow;
use std::sync::Arc;

impl Tensor {
    /// Concatenates tensors along an axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let (a, b) = (Tensor::from_slice(&[1, 2], (1, 2), &device)?, Tensor::from_slice(&[3, 4, 5, 6], (2, 2), &device)?);
    /// assert_eq!(Tensor::cat(&[a, b], 0)?.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the shapes differ along another axis, and `InvalidArgument` if there are no
    /// tensors, the axis does not exist, or dtypes or devices differ.
    #[doc(alias = "concat")]
    #[doc(alias = "concatenate")]
    pub fn cat<T: Borrow<Self>>(tensors: &[T], axis: impl Into<Axis>) -> Result<Self> {
        let tensors: Vec<&Self> = tensors.iter().map(Borrow::borrow).collect();
        let Some(&first) = tensors.first() else {
            return Err(invalid("cat expected at least one tensor, found none".to_string()));
        };
        check::same_device("cat", &tensors)?;
        check::same_dtype("cat", &tensors)?;
        let axis = check::axis("cat", axis, first)?;
        let types: Vec<_> = tensors.iter().map(|tensor| tensor.0.kind.ty.clone()).collect();
        // Check all tensors together first, so that an error lists all of them.
        kiln_ir::KernelOp::infer(&Cat { axis }, &types)?;
        Self::join(&tensors, axis)
    }

    fn join(tensors: &[&Self], axis: usize) -> Result<Self> {
        match tensors {
            [only] => Ok((*only).clone()),
            _ => {
                // GPU kernels have a limited number of bindings, so many tensors are concatenated in groups.
                let most = tensors[0].device().target().max_operands;
                if tensors.len() <= most {
                    return Self::kernel(Arc::new(Cat { axis }), tensors);
                }
                let parts = tensors.chunks(most).map(|part| Self::join(part, axis)).collect::<Result<Vec<_>>>()?;
                Self::join(&parts.iter().collect::<Vec<_>>(), axis)
            }
        }
    }

    /// Packs the elements of `f32` tensors into one flat tensor: with one kernel, or with copies if there are too
    /// many tensors for one, which evaluates them here.
    pub(crate) fn packed(tensors: &[Self]) -> Result<Self> {
        let flat = tensors.iter().map(|tensor| tensor.detach().flatten()).collect::<Result<Vec<_>>>()?;
        let device = flat[0].device();
        if flat.len() <= device.target().max_operands {
            return Self::cat(&flat, 0);
        }
        // More tensors than a kernel can bind: one command list with a copy per tensor, instead of the tree of
        // kernels of `join`, which copies each element once per level.
        let flat = flat.iter().map(Self::contiguous).collect::<Result<Vec<_>>>()?;
        Self::eval_all(&flat.iter().collect::<Vec<_>>())?;
        let elements: usize = flat.iter().map(Self::elem_count).sum();
        let ty = TensorType { shape: Shape::from(elements).checked()?, dtype: flat[0].dtype() };
        let buffer = allocate_elements(device, &ty)?;
        let mut commands = device.commands();
        let mut start = 0;
        for tensor in &flat {
            let storage = tensor.0.storage().expect("it was computed above");
            let ty = &tensor.0.kind.ty;
            let (bytes, from) = (ty.bytes(), (storage.layout.offset() * ty.dtype.bytes()) as u64);
            commands.copy(&storage.buffer.slice(from..from + bytes)?, &buffer.slice(start..start + bytes)?)?;
            start += bytes;
        }
        let submission = device.submit(commands)?;
        let layout = Arc::new(Layout::contiguous(ty.shape.clone()));
        Ok(Self::ready(ty, device, Storage { buffer, layout, submission }))
    }

    /// Stacks tensors of the same shape along a new axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let (a, b) = (Tensor::from_slice(&[1, 2], 2, &device)?, Tensor::from_slice(&[3, 4], 2, &device)?);
    /// assert_eq!(Tensor::stack(&[&a, &b], 1)?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`cat`](Self::cat).
    pub fn stack<T: Borrow<Self>>(tensors: &[T], axis: impl Into<Axis>) -> Result<Self> {
        let Some(first) = tensors.first().map(Borrow::borrow) else {
            return Err(invalid("stack expected at least one tensor, found none".to_string()));
        };
        let tensors: Vec<&Self> = tensors.iter().map(Borrow::borrow).collect();
        check::same_device("stack", &tensors)?;
        check::same_dtype("stack", &tensors)?;
        if tensors.iter().any(|tensor| tensor.shape() != first.shape()) {
            return Err(mismatch(format!("stack expected tensors of one shape, found {}", names(&tensors))));
        }
        let axis = check::axis_of("stack", axis, first.rank() + 1, first)?;
        let unsqueezed = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
        Self::cat(&unsqueezed, axis).within("stack")
    }
}
