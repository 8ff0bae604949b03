//! Nested array literals.

use super::Tensor;
use super::check::mismatch;
use crate::{Device, Result};
use half::{bf16, f16};
use kiln_ir::Element;

/// Nested arrays, slices and vectors of elements: `[[1.0f32, 2.0], [3.0, 4.0]]`. A single element is a rank-0 tensor.
///
/// See [`Tensor::new`] for an example.
pub trait Literal {
    /// The type of the elements.
    type Element: Element;

    /// Returns the lengths of the axes, taken from the first item at each level.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::arguments::Literal;
    ///
    /// assert_eq!([[1i32, 2, 3], [4, 5, 6]].shape(), [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    fn shape(&self) -> Vec<usize>;

    /// Appends the elements in row-major order.
    ///
    /// See [`Tensor::new`] for an example.
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the lengths of the lists do not match `shape`.
    fn append_to(&self, elements: &mut Vec<Self::Element>, shape: &[usize]) -> Result<()>;
}

macro_rules! elements {
    ($($element:ty)*) => {$(
        impl Literal for $element {
            type Element = Self;

            fn shape(&self) -> Vec<usize> {
                Vec::new()
            }

            fn append_to(&self, elements: &mut Vec<Self>, _shape: &[usize]) -> Result<()> {
                elements.push(*self);
                Ok(())
            }
        }
    )*};
}

elements!(f16 bf16 f32 f64 i8 i32 i64 u8 u32 bool);

impl<L: Literal> Literal for [L] {
    type Element = L::Element;

    fn shape(&self) -> Vec<usize> {
        // Only the first item of each level is looked at; `append_to` compares the lengths of the others with it.
        let items = self.first().map(Literal::shape).unwrap_or_default();
        [self.len()].into_iter().chain(items).collect()
    }

    fn append_to(&self, elements: &mut Vec<L::Element>, shape: &[usize]) -> Result<()> {
        let items = shape.get(1..).unwrap_or_default();
        if shape.first() != Some(&self.len()) {
            let (expected, found) = (shape.first().copied().unwrap_or_default(), self.len());
            return Err(mismatch(format!("new expected lists of the same length, found {expected} and {found}")));
        }
        self.iter().try_for_each(|item| item.append_to(elements, items))
    }
}

/// Implements [`Literal`] for a type that wraps another.
macro_rules! same_as {
    ($([$($generic:tt)*] $ty:ty, $inner:ty;)*) => {$(
        impl<$($generic)*> Literal for $ty {
            type Element = <$inner as Literal>::Element;

            fn shape(&self) -> Vec<usize> {
                <$inner>::shape(self)
            }

            fn append_to(&self, elements: &mut Vec<Self::Element>, shape: &[usize]) -> Result<()> {
                <$inner>::append_to(self, elements, shape)
            }
        }
    )*};
}

same_as! {
    [L: Literal, const N: usize] [L; N], [L];
    [L: Literal] Vec<L>, [L];
    [L: Literal + ?Sized] &L, L;
}

impl Tensor {
    /// Creates a tensor from a nested literal, or from one number.
    ///
    /// The Rust type determines the dtype: write `1.0f32` for `F32`, because a float without a suffix is an `f64`,
    /// which few ops support.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::new(&[[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &device)?;
    /// assert_eq!(x.dims(), [3, 2]);
    /// assert_eq!(Tensor::new(7u32, &device)?.to_scalar::<u32>()?, 7);
    /// assert_eq!(Tensor::new(vec![vec![1u8, 2]], &device)?.dims(), [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if lists at the same level differ in length. Otherwise same as
    /// [`from_slice`](Self::from_slice).
    #[doc(alias = "tensor")]
    #[doc(alias = "from_array")]
    pub fn new(literal: impl Literal, device: &Device) -> Result<Self> {
        let shape = literal.shape();
        let mut elements = Vec::new();
        literal.append_to(&mut elements, &shape)?;
        Self::from_slice(&elements, shape, device)
    }
}
