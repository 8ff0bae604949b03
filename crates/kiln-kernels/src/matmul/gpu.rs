//! The WGSL of the matrix product: the text beside this file, and where the matrices of a batch begin.

use kiln_ir::wgsl::{self, WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt::Write as _;

/// Rows and columns of the results of a workgroup, as in the text.
const TILE: usize = 64;

/// Steps along the inner length that are in workgroup memory at once, as in the text.
const STEPS: usize = 16;

/// Invocations of a workgroup.
const INVOCATIONS: usize = 64;

/// Results of an invocation along each axis.
const RESULTS: usize = 8;

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
    let sums = (0..RESULTS).flat_map(|row| (0..RESULTS / 4).map(move |four| (row, four)));
    let parts = [
        ("    // SUMS\n", sums.map(|(row, four)| format!("    var sum{row}_{four} = vec4<f32>();\n")).collect()),
        ("        // LOADS\n", (0..TILE * STEPS / 4 / INVOCATIONS).map(load).collect::<String>()),
        ("        // STEPS\n", (0..STEPS).map(step).collect()),
        ("    // RESULTS\n", results(n.is_multiple_of(4))),
    ];
    text += &parts.iter().fold(include_str!("gpu.wgsl").to_string(), |text, (mark, part)| text.replace(mark, part));
    Ok(builder.finish(&text, wgsl::grid(tiles)))
}

/// An invocation's load number `load` of four elements of both tiles. Neighbours read along the steps of the left operand and along the columns
/// of the right one, as these most often lie.
fn load(load: usize) -> String {
    let four = |operand: &str, line: &str, most: &str| {
        let lanes = (0..4).map(|lane| {
            let loaded = format!("load_{operand}(at + {lane}u * next)");
            format!("select(0.0, {loaded}, inside && {line} + {lane}u < p_{most}())")
        });
        lanes.collect::<Vec<_>>().join(", ")
    };
    format!(
        "        {{
            let place = lane + {}u;
            let row = first_row + 4u * (place / STEPS);
            let step = first + place % STEPS;
            let next = p_a_row();
            let at = start_a + row * next + step * p_a_column();
            let inside = step < p_k();
            tile_a[place % STEPS * PITCH + place / STEPS] = vec4<f32>({});
        }}
        {{
            let place = lane + {}u;
            let column = first_column + 4u * (place % (TILE / 4u));
            let step = first + place / (TILE / 4u);
            let next = p_b_column();
            let at = start_b + step * p_b_row() + column * next;
            let inside = step < p_k();
            tile_b[place / (TILE / 4u) * PITCH + place % (TILE / 4u)] = vec4<f32>({});
        }}
",
        load * INVOCATIONS,
        four("0", "row", "m"),
        load * INVOCATIONS,
        four("1", "column", "n"),
    )
}

/// The products of one step along the inner length.
fn step(step: usize) -> String {
    let fours = |name: &str, axis: &str| -> String {
        let four = |four: usize| {
            format!("            let {name}{four} = tile_{name}[{step}u * PITCH + local.{axis} + {}u];\n", four * 8)
        };
        (0..RESULTS / 4).map(four).collect()
    };
    let mut text = format!("        {{\n{}{}", fours("a", "y"), fours("b", "x"));
    for row in 0..RESULTS {
        for four in 0..RESULTS / 4 {
            let _ = writeln!(text, "            sum{row}_{four} += a{}[{}] * b{four};", row / 4, row % 4);
        }
    }
    text + "        }\n"
}

/// The statements that end with the results: by fours where rows are whole groups of them.
fn results(are_whole: bool) -> String {
    let mut text = String::new();
    for row in 0..RESULTS {
        for four in 0..RESULTS / 4 {
            let _ = writeln!(
                text,
                "    {{
        let row = first_row + 4u * (local.y + {}u) + {}u;
        let column = first_column + 4u * (local.x + {}u);
        let number = (batch * p_m() + row) * p_n() + column;
        if batch < p_batches() && row < p_m() {{",
                row / 4 * 8,
                row % 4,
                four * 8
            );
            let sum = format!("sum{row}_{four}");
            if are_whole {
                let _ = writeln!(text, "            if column < p_n() {{ finish4(number / 4u, {sum}); }}");
            } else {
                for lane in 0..4 {
                    let _ = writeln!(
                        text,
                        "            if column + {lane}u < p_n() {{ finish(number + {lane}u, {sum}[{lane}]); }}"
                    );
                }
            }
            text += "        }\n    }\n";
        }
    }
    text
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
