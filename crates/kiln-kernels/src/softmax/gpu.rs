//! Softmax on a GPU.

use super::Softmax;
use crate::offsets::offsets;
use crate::row_team::row_kernel;
use crate::rows::rows_of;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{Class, Error, ErrorKind, KernelOp, Result, op};

pub(super) fn wgsl(op: &Softmax, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let (rows, length) = rows_of(&call.operands[0].layout);
    let mut builder = call.builder();
    let mut text = offsets(&mut builder, "at", &rows);
    for (function, name) in [(&op::EXP, "op_exp"), (&op::LOG, "op_log")] {
        let missing = || Error::new(ErrorKind::Internal, format!("`{}` expected to support floats", function.name));
        text += &function.wgsl(Class::Float, name, false).ok_or_else(missing)?;
    }
    text += &format!("const LOG = {};\n", op.log);
    text += include_str!("gpu.wgsl");
    row_kernel(op.name(), builder, (rows.items() as u32, length), &text)
}
