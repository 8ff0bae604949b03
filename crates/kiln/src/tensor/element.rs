//! Elementwise ops: a method for every entry of the op table, and shared type rules.

use super::Tensor;
use super::check::{self, invalid, names, unsupported};
use crate::{DType, Result, Shape};
use kiln_ir::graph::{Op, TensorType};
use kiln_ir::op::{self, ElementOp, Signature};
use kiln_kernels::wide::WideElement;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

/// A tensor or a number as an operand of an op.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// let x = kiln::Tensor::from_slice(&[1.0f32, 5.0], 2, &device)?;
/// assert_eq!(x.add(&x)?.minimum(8)?.to_vec::<f32>()?, [2.0, 8.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number, which takes the dtype of the tensor operand.
    Scalar(f64),
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl<N: Into<f64>> From<N> for Operand<'_> {
    fn from(number: N) -> Self {
        Self::Scalar(number.into())
    }
}

impl Tensor {
    /// Applies an elementwise op, built-in or user-defined, to tensors that broadcast to one shape.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    /// use kiln::ir::op;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 4.0], 2, &device)?;
    /// assert_eq!(Tensor::apply(&op::SQRT, &[&x])?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the shapes do not broadcast, `InvalidArgument` if dtypes or devices differ or the
    /// number of tensors does not match the op, and `Unsupported` if the op does not exist for the dtype.
    pub fn apply(op: &'static ElementOp, inputs: &[&Self]) -> Result<Self> {
        let name = op.name;
        if inputs.len() != op.arity() {
            let (wanted, found) = (op.arity(), inputs.len());
            return Err(invalid(format!("{name} expected {wanted} tensors, found {found}: {}", names(inputs))));
        }
        let first = &inputs[0].0.kind;
        let dtype = first.ty.dtype;
        let is_same = matches!(op.signature, Signature::Same { .. }) && !dtype.is_wide() && op.takes_dtype(dtype);
        // Fast path of most calls: same type and device, so nothing is checked, broadcast or allocated for the type.
        if is_same && inputs[1..].iter().all(|input| input.0.kind.is_like(first)) {
            return Self::planned_like(Op::Element(op), inputs);
        }
        check::same_device(name, inputs)?;
        let dtype = result_dtype(op, inputs)?;
        // The last input: the first input of a select is its condition, which is never wide.
        let plan = |inputs: &[&Self], shape: Shape| match inputs.last() {
            Some(last) if last.dtype().is_wide() => Self::kernel(Arc::new(WideElement { op }), inputs),
            _ => Self::planned(Op::Element(op), inputs, TensorType { shape, dtype }),
        };
        if inputs.windows(2).all(|pair| pair[0].shape() == pair[1].shape()) {
            return plan(inputs, inputs[0].shape().clone());
        }
        let shape = check::broadcast(name, inputs)?;
        let mut broadcast: SmallVec<[Self; 3]> = SmallVec::new();
        for input in inputs {
            broadcast.push(input.broadcast_unchecked(&shape)?);
        }
        let broadcast: SmallVec<[&Self; 3]> = broadcast.iter().collect();
        plan(&broadcast, shape)
    }

    /// Applies an op to this tensor and to tensors or numbers; numbers take its shape and dtype.
    fn apply_to(&self, op: &'static ElementOp, others: &[Operand<'_>]) -> Result<Self> {
        match *others {
            [] => return Self::apply(op, &[self]),
            [Operand::Tensor(other)] => return Self::apply(op, &[self, other]),
            [Operand::Tensor(one), Operand::Tensor(other)] => return Self::apply(op, &[self, one, other]),
            _ => {}
        }
        let chosen = others.iter().find_map(|other| match other {
            Operand::Tensor(tensor) => Some(tensor.dtype()),
            Operand::Scalar(_) => None,
        });
        // For a select, `self` is the condition, whose dtype does not determine that of the choices.
        let dtype = if op.signature == Signature::Select { chosen.unwrap_or(DType::F32) } else { self.dtype() };
        check::computes(op.name, dtype, &[self])?;
        let mut tensors: SmallVec<[Cow<'_, Self>; 2]> = SmallVec::new();
        for other in others {
            tensors.push(match *other {
                Operand::Tensor(tensor) => Cow::Borrowed(tensor),
                Operand::Scalar(value) => {
                    Cow::Owned(Self::splat(op.name, self.shape().clone(), value, dtype, self.device())?)
                }
            });
        }
        let mut inputs: SmallVec<[&Self; 3]> = SmallVec::new();
        inputs.push(self);
        tensors.iter().for_each(|tensor| inputs.push(tensor));
        Self::apply(op, &inputs)
    }
}

/// Returns the dtype of the result, or an error if the op does not take these inputs.
fn result_dtype(op: &'static ElementOp, inputs: &[&Tensor]) -> Result<DType> {
    let name = op.name;
    let wrong = |wants: &str| {
        let found = names(inputs);
        unsupported(format!("{name} expected {wants}, found {found}; convert with to_dtype"))
    };
    let (same, result) = match op.signature {
        Signature::Same { .. } => (inputs, None),
        Signature::Compare => (inputs, Some(DType::U8)),
        Signature::Select if matches!(inputs[0].dtype(), DType::U8 | DType::Bool) => (&inputs[1..], None),
        Signature::Select => return Err(wrong("a condition of u8 or bool")),
        Signature::Bits { .. } => (inputs, Some(DType::U32)),
        Signature::BitsToFloat { .. } => (inputs, Some(DType::F32)),
    };
    let is_bits = matches!(op.signature, Signature::Bits { .. } | Signature::BitsToFloat { .. });
    if is_bits && inputs.iter().any(|input| input.dtype() != DType::U32) {
        return Err(wrong("tensors of u32"));
    }
    check::same_dtype(name, same)?;
    let dtype = same[0].dtype();
    if !op.takes_dtype(dtype) {
        let all = DType::ALL
            .iter()
            .filter(|&&dtype| op.takes_dtype(dtype) && check::has_arithmetic(dtype, inputs[0].device()));
        let all: Vec<&str> = all.map(|dtype| dtype.name()).collect();
        return Err(wrong(&format!("a dtype of {}", all.join(", "))));
    }
    check::computes(name, dtype, inputs)?;
    Ok(result.unwrap_or(dtype))
}

/// Defines a method for each entry of the op table, documented from the entry. Its example checks it against the
/// entry's reference.
macro_rules! methods {
    ($($doc:literal $kind:ident $constant:ident $name:ident($x:ident $(, $arg:ident)*) [$($alias:literal)*];)*) => {
        impl Tensor {
            $(methods!(@ $kind [$($alias)*] $doc $constant $name $($arg)*);)*
        }
    };
    (@ bits $($rest:tt)*) => { methods!(@@ "&[4u32, 6]" "u32" "6.0" $($rest)*); };
    (@ bits_to_float $($rest:tt)*) => { methods!(@@ "&[4u32, 6]" "f32" "6.0" $($rest)*); };
    (@ float $($rest:tt)*) => { methods!(@@ "&[0.25f32, 0.5]" "f32" "0.5" $($rest)*); };
    (@ number $($rest:tt)*) => { methods!(@@ "&[0.25f32, 0.5]" "f32" "0.5" $($rest)*); };
    (@ compare $($rest:tt)*) => { methods!(@@ "&[0.25f32, 0.5]" "u8" "0.5" $($rest)*); };
    (@ integer $($rest:tt)*) => { methods!(@@ "&[4u32, 6]" "u32" "6.0" $($rest)*); };
    (@ select $($rest:tt)*) => { methods!(@@ "&[0u8, 1]" "f32" "1.0" $($rest)*); };
    (@@ $input:literal $element:literal $value:literal $aliases:tt $doc:literal $constant:ident $name:ident) => {
        methods!(@@@ $input $element ($value) () $aliases $doc $constant $name);
    };
    (@@ $input:literal $element:literal $value:literal $aliases:tt $doc:literal $constant:ident $name:ident $a:ident) => {
        methods!(@@@ $input $element ($value ", 2.0") ("2") $aliases $doc $constant $name $a);
    };
    (@@ $input:literal $element:literal $value:literal $aliases:tt $doc:literal $constant:ident $name:ident $a:ident $b:ident) => {
        methods!(@@@ $input $element ($value ", 1.0, 3.0") ("1, 3") $aliases $doc $constant $name $a $b);
    };
    (@@@ $input:literal $element:literal ($($values:literal)+) ($($call:literal)?) [$($alias:literal)*] $doc:literal $constant:ident $name:ident $($arg:ident)*) => {
        #[doc = concat!("Computes `", stringify!($name), "` elementwise. ", $doc)]
        ///
        #[doc = concat!("Corner cases and accuracy: [`op::", stringify!($constant), "`](kiln_ir::op::", stringify!($constant), ").")]
        ///
        /// ```
        /// # fn main() -> kiln::Result<()> {
        /// # let device = kiln::Device::cpu()?;
        #[doc = concat!("let x = kiln::Tensor::from_slice(", $input, ", 2, &device)?;")]
        #[doc = concat!("let y = x.", stringify!($name), "(", $($call,)? ")?.to_vec::<", $element, ">()?;")]
        #[doc = concat!("let expected = kiln::ir::op::", stringify!($constant), ".reference()(&[", $($values,)+ "]);")]
        /// assert!((f64::from(y[1]) - expected).abs() < 1e-5);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// Same as [`apply`](Self::apply).
        $(#[doc(alias = $alias)])*
        #[allow(clippy::extra_unused_lifetimes, reason = "unary ops have no operand with this lifetime")]
        pub fn $name<'a>(&self, $($arg: impl Into<Operand<'a>>),*) -> Result<Self> {
            self.apply_to(&op::$constant, &[$($arg.into()),*])
        }
    };
}

kiln_ir::for_each_element_op!(methods);
