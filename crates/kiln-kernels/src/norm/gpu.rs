//! Norms on a GPU.

use crate::offsets::offsets;
use crate::row_team::row_kernel;
use crate::rows::rows_of;
use crate::strided::StridedIter;
use kiln_ir::Result;
use kiln_ir::wgsl::{WgslCall, WgslKernel};

pub(super) fn render(name: &str, call: &WgslCall<'_>, eps: f32, centered: bool) -> Result<WgslKernel> {
    let (rows, length) = rows_of(&call.operands[0].layout);
    let mut builder = call.builder();
    // Parameters are words, so the float is passed as its bits. It is not part of the text, so one kernel serves every epsilon.
    builder.param("eps", eps.to_bits());
    let mut text = offsets(&mut builder, "at", &rows);
    for (vector, name) in call.operands[1..].iter().zip(["weight", "bias"]) {
        text += &offsets(&mut builder, name, &StridedIter::over(&vector.layout));
    }
    let result = match call.operands.len() {
        1 => "x",
        2 => "x * load_1(weight0(j))",
        _ => "x * load_1(weight0(j)) + load_2(bias0(j))",
    };
    text += &format!("fn scaled(x: f32, j: u32) -> f32 {{\n    return {result};\n}}\n");
    text += &format!("const CENTERED = {centered};\n");
    text += include_str!("gpu.wgsl");
    row_kernel(name, builder, (rows.items() as u32, length), &text)
}
