//! Softmax on a GPU.

use super::Softmax;
use crate::places::{check_row, places, row_invocations};
use crate::rows::rows_of;
use kiln_ir::wgsl::{WgslCall, WgslKernel, grid};
use kiln_ir::{Class, Error, ErrorKind, KernelOp, Result, op};

pub(super) fn wgsl(op: &Softmax, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let (rows, length) = rows_of(&call.operands[0].layout);
    check_row(op.name(), length)?;
    let count = rows.items() as u32;
    let mut builder = call.builder();
    builder.param("rows", count);
    builder.param("length", length as u32);
    let mut text = places(&mut builder, "at", &rows);
    for (function, name) in [(&op::EXP, "op_exp"), (&op::LOG, "op_log")] {
        let missing = || Error::new(ErrorKind::Internal, format!("`{}` expected to take floats", function.name));
        text += &function.wgsl(Class::Float, name, false).ok_or_else(missing)?;
    }
    text += &format!("const INVOCATIONS = {}u;\nconst LOG = {};\n", row_invocations(length), op.log);
    text += include_str!("gpu.wgsl");
    Ok(builder.finish(&text, grid(if length == 0 { 0 } else { count })))
}
