//! The WGSL of the matrix product: the text beside this file, and where the matrices of a batch begin.

use kiln_ir::wgsl::{self, WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt::Write as _;

/// Rows and columns of the results of a workgroup, as in the text.
const TILE: usize = 64;

/// Steps along the inner length that are in workgroup memory at once, as in the text.
const STEPS: usize = 16;

/// Invocations of a workgroup.
const INVOCATIONS: usize = 256;

/// How often the tiles are filled at most.
const MOST_BLOCKS: usize = 4 * wgsl::LOOP_STEPS - INVOCATIONS;

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
    if k.div_ceil(STEPS) > MOST_BLOCKS {
        let most = MOST_BLOCKS * STEPS;
        let message = format!("matmul on a GPU expected an inner length of at most {most}, found {k}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // Inner loops are written out: a software driver counts their steps too, and allows few (`wgsl::LOOP_STEPS`).
    let loads: String = (0..TILE * STEPS / INVOCATIONS).map(load).collect();
    let steps: String = (0..STEPS).map(step).collect();
    text += &include_str!("gpu.wgsl").replace("        // LOADS\n", &loads).replace("        // STEPS\n", &steps);
    Ok(builder.finish(&text, wgsl::grid(tiles)))
}

/// An invocation's load number `load` of an element of both tiles. Neighbours read along the steps of the left operand and along the columns of
/// the right one, as these most often lie.
fn load(load: usize) -> String {
    format!(
        "        {{
            let at = lane + {}u;
            let row = first_row + at / STEPS;
            let step_a = first + at % STEPS;
            let a = load_0(start_a + row * p_a_row() + step_a * p_a_column());
            tile_a[at % STEPS * TILE + at / STEPS] = select(0.0, a, row < p_m() && step_a < p_k());
            let column = first_column + at % TILE;
            let step_b = first + at / TILE;
            let b = load_1(start_b + step_b * p_b_row() + column * p_b_column());
            tile_b[at] = select(0.0, b, column < p_n() && step_b < p_k());
        }}
",
        load * INVOCATIONS
    )
}

/// The products of one step along the inner length.
fn step(step: usize) -> String {
    let first = step * TILE;
    format!(
        "        {{
            let at_a = {first}u + 4u * local.y;
            let at_b = {first}u + 4u * local.x;
            let b = vec4<f32>(tile_b[at_b], tile_b[at_b + 1u], tile_b[at_b + 2u], tile_b[at_b + 3u]);
            sums[0] += tile_a[at_a] * b;
            sums[1] += tile_a[at_a + 1u] * b;
            sums[2] += tile_a[at_a + 2u] * b;
            sums[3] += tile_a[at_a + 3u] * b;
        }}
"
    )
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
