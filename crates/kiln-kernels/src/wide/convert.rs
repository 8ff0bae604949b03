//! Conversions to and from 64-bit dtypes.

use super::{gpu, unsupported};
use crate::indices::{inputs, text};
use crate::kernel_code;
use crate::memory::{Target, elements};
use crate::strided::{StridedIter, parallel_for};
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::graph::TensorType;
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Element, KernelOp, Layout, Result, round_to_odd, with_element};
use smallvec::{SmallVec, smallvec};

/// Converts elements to another dtype if one of the two has 64 bits, like [`Op::Cast`](kiln_ir::graph::Op::Cast) for the others.
///
/// Floats round to nearest. Floats become integers by truncation and saturation, NaN as 0. Integers wrap. Every number but 0 is
/// true.
///
/// See the [module documentation](crate::wide) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideConvert {
    /// The dtype of the result.
    pub to: DType,
    /// Whether the elements are indices, from `I64` to `U32`: values out of range become `u32::MAX`, which is out of range for every axis.
    pub is_index: bool,
}

impl KernelOp for WideConvert {
    fn name(&self) -> &str {
        "cast"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.to as u64, u64::from(self.is_index)]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x] = inputs(self.name(), types)?;
        let refuse = |wants: &str| {
            Err(unsupported(format!("{} expected {wants}, found {} to {}", self.name(), text(x), self.to)))
        };
        if !x.dtype.is_wide() && !self.to.is_wide() {
            return refuse("a conversion to or from i64 or f64");
        }
        if self.is_index && (x.dtype, self.to) != (DType::I64, DType::U32) {
            return refuse("a conversion of indices from i64 to u32");
        }
        Ok(TensorType { shape: x.shape.clone(), dtype: self.to })
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn takes_wide(&self) -> bool {
        true
    }

    kernel_code!(run, gpu::convert);
}

fn run(op: &WideConvert, call: &HostCall<'_>) -> Result<()> {
    match (call.operands[0].dtype, op.to) {
        (DType::I64, DType::U32) if op.is_index => convert(call, |x: i64| u32::try_from(x).unwrap_or(u32::MAX)),
        (DType::I64, to) => with_element!(to, To => convert(call, <To as Convert>::of_i64)),
        (DType::F64, to) => with_element!(to, To => convert(call, <To as Convert>::of_f64)),
        (from, DType::I64) => with_element!(from, From => convert(call, <From as Convert>::to_i64)),
        (from, _) => with_element!(from, From => convert(call, <From as Convert>::to_f64)),
    }
}

fn convert<T: Pod + Sync, U: Pod + Send + Sync>(call: &HostCall<'_>, value: impl Fn(T) -> U + Sync) -> Result<()> {
    let x = &call.operands[0];
    let (from, to, iter) = (elements::<T>(x), Target::<U>::of(call.output), StridedIter::over(x.layout));
    let [stride] = iter.inner();
    parallel_for(call.workers, iter.items(), 1, |range| {
        iter.runs(range, |first, [mut offset], length| {
            // SAFETY: the ranges of the tasks are disjoint.
            for to in unsafe { to.slice(first, length) } {
                *to = value(from[offset as usize]);
                offset += stride;
            }
        });
    })
}

/// Conversions between 64-bit elements and a storage type.
trait Convert: Element {
    fn of_i64(x: i64) -> Self::Stored;
    fn of_f64(x: f64) -> Self::Stored;
    fn to_i64(stored: Self::Stored) -> i64;
    fn to_f64(stored: Self::Stored) -> f64;
}

macro_rules! conversions {
    ($($ty:ty: $of_i64:expr, $of_f64:expr, $to_i64:expr, $to_f64:expr;)*) => {
        $(impl Convert for $ty {
            #[inline(always)]
            fn of_i64(x: i64) -> Self::Stored {
                $of_i64(x)
            }
            #[inline(always)]
            fn of_f64(x: f64) -> Self::Stored {
                $of_f64(x)
            }
            #[inline(always)]
            fn to_i64(stored: Self::Stored) -> i64 {
                $to_i64(stored)
            }
            #[inline(always)]
            fn to_f64(stored: Self::Stored) -> f64 {
                $to_f64(stored)
            }
        })*
    };
}

/// Numbers that `as` converts.
macro_rules! plain {
    ($($ty:ty)*) => {
        conversions! { $($ty: |x| x as $ty, |x| x as $ty, |x| x as i64, |x| x as f64;)* }
    };
}

plain!(f32 f64 i8 i32 i64 u8 u32);

conversions! {
    // Through `f32`, rounded to odd: rounding to nearest twice would be wrong where the first rounding produces a tie of the second.
    f16: |x| f16::from_f32(round_to_odd::f32_of(round_to_odd::f64_of(x))), |x| f16::from_f32(round_to_odd::f32_of(x)),
        |x: f16| x.to_f32() as i64, |x: f16| f64::from(x.to_f32());
    bf16: |x| bf16::from_f32(round_to_odd::f32_of(round_to_odd::f64_of(x))), |x| bf16::from_f32(round_to_odd::f32_of(x)),
        |x: bf16| x.to_f32() as i64, |x: bf16| f64::from(x.to_f32());
    bool: |x| u8::from(x != 0), |x| u8::from(x != 0.0), |x: u8| i64::from(x != 0), |x: u8| f64::from(u8::from(x != 0));
}
