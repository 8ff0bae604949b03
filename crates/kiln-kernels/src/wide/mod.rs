//! 64-bit elements: conversions on every device, arithmetic and reductions on the CPU.
//!
//! WGSL has neither `i64` nor `f64`, and fused programs compute in 32 bits. So an op on `I64` or `F64` is a separate kernel, and nothing fuses
//! with it.
//!
//! ```
//! use kiln_ir::graph::{Reduce, TensorType};
//! use kiln_ir::{DType, KernelOp, Shape, op};
//! use kiln_kernels::wide::{WideConvert, WideElement, WideReduce};
//!
//! let of = |dtype: DType| TensorType { shape: Shape::from((2, 3)), dtype };
//! assert_eq!(WideConvert { to: DType::F64, is_index: false }.infer(&[of(DType::I32)])?, of(DType::F64));
//! assert_eq!(WideElement { op: &op::ADD }.infer(&[of(DType::I64), of(DType::I64)])?, of(DType::I64));
//! assert_eq!(WideReduce { op: Reduce::Sum }.infer(&[of(DType::F64)])?.shape, Shape::from(2));
//! # Ok::<(), kiln_ir::Error>(())
//! ```

mod convert;
mod element;
mod gpu;
mod reduce;
#[cfg(test)]
mod tests;

pub use convert::WideConvert;
pub use element::WideElement;
pub use reduce::WideReduce;

use kiln_ir::graph::TensorType;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{DType, Error, ErrorKind, KernelOp, Result};

/// Elements that are gathered, computed and stored at a time: three operands of them stay in an L1 cache.
const CHUNK: usize = 1024;

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns the error of an op that has no WGSL.
fn no_wgsl<O: KernelOp>(op: &O, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let found: Vec<&str> = call.operands.iter().map(|operand| operand.dtype.name()).collect();
    let (name, found) = (op.name(), found.join(", "));
    Err(unsupported(format!("{name} in WGSL expected dtypes of at most 32 bits, found {found}; convert with to_dtype")))
}

/// Returns the 64-bit dtype that an op computes in.
fn wide(op: &str, ty: &TensorType) -> Result<DType> {
    match ty.dtype {
        DType::I64 | DType::F64 => Ok(ty.dtype),
        _ => Err(unsupported(format!("{op} expected i64 or f64, found {} {}", ty.dtype, ty.shape))),
    }
}
