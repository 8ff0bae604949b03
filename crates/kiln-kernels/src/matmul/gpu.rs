//! The WGSL of the matrix product: the text beside this file, and where the matrices of a batch begin.

use kiln_ir::wgsl::{self, WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt::Write as _;

/// Rows and columns of the results of a workgroup, as in the text.
const TILE: usize = 64;

pub(super) fn render(call: &WgslCall<'_>) -> Result<WgslKernel> {
    let [a, b] = call.operands else {
        let message = format!("matmul expected 2 operands, found {}", call.operands.len());
        return Err(Error::new(ErrorKind::Internal, message));
    };
    let shape = a.layout.shape();
    let batch = shape.rank() - 2;
    let (m, k, n) = (shape[batch], shape[batch + 1], b.layout.shape()[batch + 1]);
    let batches: usize = shape[..batch].iter().product();
    let mut builder = call.builder();
    for (name, length) in [("m", m), ("n", n), ("k", k), ("batches", batches)] {
        builder.param(name, length as u32);
    }
    let mut text = String::new();
    for (name, layout) in [("a", &a.layout), ("b", &b.layout)] {
        builder.strides(name, layout);
        builder.param(&format!("{name}_row"), layout.strides()[batch] as u32);
        builder.param(&format!("{name}_column"), layout.strides()[batch + 1] as u32);
        text += &batch_function(name, batch);
    }
    let tiles = batches * m.div_ceil(TILE) * n.div_ceil(TILE);
    let tiles = u32::try_from(tiles).map_err(|_| {
        Error::new(ErrorKind::TooLarge, format!("matmul expected at most {} tiles, found {tiles}", u32::MAX))
    })?;
    Ok(builder.finish(&(text + include_str!("gpu.wgsl")), wgsl::grid(tiles)))
}

/// Where the matrix of an operand begins, by its number along the batch axes.
fn batch_function(name: &str, axes: usize) -> String {
    let mut text =
        format!("fn batch_{name}(number: u32) -> u32 {{\n    var rest = number;\n    var place = p_{name}_offset();\n");
    for axis in (0..axes).rev() {
        let _ = writeln!(text, "    place += rest % p_{name}_length{axis}() * p_{name}_stride{axis}();");
        let _ = writeln!(text, "    rest /= p_{name}_length{axis}();");
    }
    text + "    return place;\n}\n"
}
