//! The WGSL of the matrix product: fills in the template `gpu.wgsl`, and computes where the matrices of a batch begin.

use super::Matmul;
use crate::tiles::{Load, STEPS, Tile, last_element, products, store, sums};
use kiln_ir::wgsl::{self, WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt::Write as _;

/// The rows of the left operand and the columns of the right one that a workgroup multiplies.
const A: Tile = Tile { name: "tile_a", fours: 2, axis: 'y' };
const B: Tile = Tile { name: "tile_b", fours: 2, axis: 'x' };

/// Maximum number of times the tiles are filled.
const MOST_BLOCKS: usize = 4 * wgsl::LOOP_STEPS - 64;

pub(super) fn render(_: &Matmul, call: &WgslCall<'_>) -> Result<WgslKernel> {
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
        builder.param(&format!("{name}_last"), last_element(layout));
        builder.param(&format!("{name}_row"), layout.strides()[batch] as u32);
        builder.param(&format!("{name}_column"), layout.strides()[batch + 1] as u32);
        text += &batch_function(name, batch);
    }
    let tiles = batches * m.div_ceil(A.lines()) * n.div_ceil(B.lines());
    let tiles = u32::try_from(tiles).map_err(|_| {
        Error::new(ErrorKind::TooLarge, format!("matmul expected at most {} tiles, found {tiles}", u32::MAX))
    })?;
    // The loop over blocks of steps is the only one that is not unrolled, so it may use the whole limit of a driver, less a margin.
    if k.div_ceil(STEPS) > MOST_BLOCKS {
        let most = MOST_BLOCKS * STEPS;
        let message = format!("matmul on a GPU expected an inner length of at most {most}, found {k}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // Inner loops are unrolled: a software driver counts their iterations too, and allows few (`wgsl::LOOP_STEPS`).
    let parts = [
        ("// TILES\n", [A, B].map(|tile| tile.declaration(STEPS)).concat()),
        ("    // SUMS\n", sums(A, B).map(|(row, four)| format!("    var sum{row}_{four} = vec4<f32>();\n")).collect()),
        ("        // LOADS\n", loads()),
        ("        // STEPS\n", (0..STEPS).map(|step| products("sum", [&format!("{step}u"); 2], A, B)).collect()),
        ("    // RESULTS\n", results(n.is_multiple_of(4))),
    ];
    text += &parts.iter().fold(include_str!("gpu.wgsl").to_string(), |text, (mark, part)| text.replace(mark, part));
    Ok(builder.finish(&text, wgsl::grid(tiles)))
}

/// Renders the tile loads. Neighbouring invocations read along the steps of the left operand and the columns of the right one, which are most
/// often contiguous.
fn loads() -> String {
    let a = Load {
        tile: A,
        operand: 0,
        name: "a",
        lines: ["first_row", "p_a_row()"],
        steps: ["first", "p_a_column()", "p_k()"],
        along_steps: true,
    };
    let b = Load {
        tile: B,
        operand: 1,
        name: "b",
        lines: ["first_column", "p_b_column()"],
        steps: ["first", "p_b_row()", "p_k()"],
        along_steps: false,
    };
    a.unrolled() + &b.unrolled()
}

fn results(are_whole: bool) -> String {
    // Excess workgroups at the end of the grid have a batch beyond the last. They load clamped addresses and store nothing.
    let result = |(row, four)| {
        format!(
            "    {{
        let row = first_row + 4u * {} + {}u;
        let column = first_column + 4u * {};
        let number = (batch * p_m() + row) * p_n() + column;
        if batch < p_batches() && row < p_m() {{
{}        }}
    }}
",
            A.own_group(row / 4),
            row % 4,
            B.own_group(four),
            store(&format!("sum{row}_{four}"), "column", "p_n()", are_whole),
        )
    };
    sums(A, B).map(result).collect()
}

/// Renders a function that returns the offset of an operand's matrix, given its index along the batch axes.
fn batch_function(name: &str, axes: usize) -> String {
    let mut text = format!(
        "fn batch_{name}(number: u32) -> u32 {{\n    var rest = number;\n    var offset = p_{name}_offset();\n"
    );
    // Divides off one coordinate per axis, the last one first, because the index is row-major.
    for axis in (0..axes).rev() {
        let _ = writeln!(text, "    offset += rest % p_{name}_length{axis}() * p_{name}_stride{axis}();");
        let _ = writeln!(text, "    rest /= p_{name}_length{axis}();");
    }
    text + "    return offset;\n}\n"
}
