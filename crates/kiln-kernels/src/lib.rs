//! Hand-written kernels, one folder each: shape inference, CPU code, WGSL, an independent reference and tests.
//!
//! This crate owns the ops that are more than an elementwise program or a reduction. It owns no devices and no memory: a kernel receives its
//! operands and its worker threads. Types to know: [`Matmul`](matmul::Matmul), [`Attention`](attention::Attention),
//! [`Softmax`](softmax::Softmax); each implements [`KernelOp`](kiln_ir::KernelOp).
//!
//! ```
//! # fn main() -> kiln_ir::Result<()> {
//! use kiln_ir::graph::TensorType;
//! use kiln_ir::{DType, KernelOp, Shape};
//! use kiln_kernels::matmul::Matmul;
//!
//! let matrix = |rows: usize, columns: usize| TensorType { shape: Shape::from((rows, columns)), dtype: DType::F16 };
//! assert_eq!(Matmul.infer(&[matrix(2, 3), matrix(3, 4)])?, matrix(2, 4));
//! # Ok(())
//! # }
//! ```
//!
//! Shared by kernels: `strided` and `offsets` (strided iteration, on the CPU and in WGSL), `rows` (row-wise CPU kernels), `row_team` (GPU invocations that
//! share a row), `tiles` (workgroup-memory tiles), `indices`, `memory`.

pub mod attention;
pub mod cat;
pub mod gather;
mod indices;
pub mod matmul;
mod memory;
pub mod norm;
mod offsets;
pub mod pool;
mod row_team;
mod rows;
pub mod scan;
pub mod scatter;
pub mod softmax;
pub mod sort;
mod strided;
#[cfg(test)]
mod testing;
mod tiles;
mod unsigned;
pub mod wide;
pub mod window;

/// The unit roundoff of `f32`: the largest relative error of one rounding, half an ULP.
const UNIT_ROUNDOFF: f64 = 1.0 / (1u64 << 24) as f64;

/// Implements the methods of [`KernelOp`](kiln_ir::KernelOp) that call the op's CPU function and its WGSL function.
macro_rules! kernel_code {
    ($run:path, $wgsl:path) => {
        fn has_host_code(&self) -> bool {
            true
        }

        fn run(&self, call: &kiln_ir::host::HostCall<'_>) -> Result<()> {
            $run(self, call)
        }

        fn wgsl(&self, call: &kiln_ir::wgsl::WgslCall<'_>) -> Result<kiln_ir::wgsl::WgslKernel> {
            $wgsl(self, call)
        }
    };
}
use kernel_code;
