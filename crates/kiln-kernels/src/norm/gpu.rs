//! Norms on a GPU.

use super::{LayerNorm, RmsNorm};
use crate::places::{check_row, places, row_invocations};
use crate::rows::rows_of;
use crate::walk::Walk;
use kiln_ir::wgsl::{WgslCall, WgslKernel, grid};
use kiln_ir::{KernelOp, Result};

pub(super) fn layer_norm(op: &LayerNorm, call: &WgslCall<'_>) -> Result<WgslKernel> {
    render(op.name(), call, op.eps, true)
}

pub(super) fn rms_norm(op: &RmsNorm, call: &WgslCall<'_>) -> Result<WgslKernel> {
    render(op.name(), call, op.eps, false)
}

fn render(name: &str, call: &WgslCall<'_>, eps: f32, centered: bool) -> Result<WgslKernel> {
    let (rows, length) = rows_of(&call.operands[0].layout);
    check_row(name, length)?;
    let count = rows.items() as u32;
    let mut builder = call.builder();
    builder.param("rows", count);
    builder.param("length", length as u32);
    builder.param("eps", eps.to_bits());
    let mut text = places(&mut builder, "at", &rows);
    for (vector, name) in call.operands[1..].iter().zip(["weight", "bias"]) {
        text += &places(&mut builder, name, &Walk::over(&vector.layout));
    }
    let result = match call.operands.len() {
        1 => "x",
        2 => "x * load_1(weight0(j))",
        _ => "x * load_1(weight0(j)) + load_2(bias0(j))",
    };
    text += &format!("fn scaled(x: f32, j: u32) -> f32 {{\n    return {result};\n}}\n");
    text += &format!("const INVOCATIONS = {}u;\nconst CENTERED = {centered};\n", row_invocations(length));
    text += include_str!("gpu.wgsl");
    Ok(builder.finish(&text, grid(if length == 0 { 0 } else { count })))
}
