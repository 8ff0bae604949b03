//! Sorting on a GPU: a bitonic sort in workgroup memory, and merges of longer runs.

use super::{Argsort, Merge};
use crate::offsets::{element_kernel, number_type};
use kiln_ir::wgsl::{WgslBuilder, WgslCall, WgslKernel, grid};
use kiln_ir::{Class, DType, Error, ErrorKind, KernelOp, Result};

/// Renders `key(i)`: a word that sorts like the element at index `i` of the buffer.
fn key(dtype: DType, descending: bool) -> String {
    let bits = match dtype.class() {
        Class::Float => {
            "let bits = bitcast<u32>(load_0(i));
    let size = bits & 0x7fffffffu;
    let key = select(select(bits | 0x80000000u, ~bits, bits > 0x80000000u), 0xffffffffu, size > 0x7f800000u);"
        }
        Class::Int => "let key = bitcast<u32>(load_0(i)) ^ 0x80000000u;",
        Class::Uint | Class::Wide => "let key = load_0(i);",
    };
    let turned = if descending { "~key" } else { "key" };
    format!("fn key(i: u32) -> u32 {{\n    {bits}\n    return {turned};\n}}\n")
}

fn params(builder: &mut WgslBuilder<'_>, call: &WgslCall<'_>, run: usize) -> (usize, usize) {
    let layout = &call.operands[0].layout;
    let length = layout.shape().last().copied().unwrap_or(0);
    builder.param("offset", layout.offset() as u32);
    builder.param("length", length as u32);
    builder.param("run", run as u32);
    (length, layout.shape().elem_count() / length.max(1))
}

pub(super) fn argsort(op: &Argsort, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let mut builder = call.builder();
    let x = &call.operands[0];
    let length = x.layout.shape().last().copied().unwrap_or(0);
    let run = op.run.unwrap_or(length).min(length);
    if run > Argsort::GPU_RUN {
        let most = Argsort::GPU_RUN;
        let message = format!("{} on a GPU expected runs of at most {most} elements, found {run}", op.name());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let (length, rows) = params(&mut builder, call, run);
    let runs = length.div_ceil(run.max(1));
    builder.param("rows", rows as u32);
    builder.param("runs", runs as u32);
    builder.param("count", op.count.unwrap_or(length) as u32);
    // Few sizes, so that few kernels are compiled.
    let size = [64, 256, Argsort::GPU_RUN].into_iter().find(|&size| run <= size).unwrap_or(Argsort::GPU_RUN);
    let text = format!(
        "const SIZE = {size}u;\nconst INVOCATIONS = {}u;\n{}{}",
        (size / 2).min(256),
        key(x.dtype, op.descending),
        include_str!("gpu.wgsl")
    );
    let groups = if op.count == Some(0) { 0 } else { rows * runs };
    Ok(builder.finish(&text, grid(groups as u32)))
}

pub(super) fn merge(op: &Merge, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let mut builder = call.builder();
    let index = &call.operands[1];
    params(&mut builder, call, op.run);
    builder.param("index_offset", index.layout.offset() as u32);
    let number = number_type(DType::U32);
    // Merge path: bisection finds how many of the elements before this one come from the first run. On equal keys the first run wins.
    let text = format!(
        "{}fn key_at(row: u32, place: u32) -> u32 {{
    return key(p_offset() + row + load_1(p_index_offset() + row + place));
}}
fn element(i: u32) -> {number} {{
    let row = i / p_length() * p_length();
    let start = (i - row) / p_run() / 2u * 2u * p_run();
    let middle = min(start + p_run(), p_length());
    let firsts = middle - start;
    let seconds = min(middle + p_run(), p_length()) - middle;
    let before = i - row - start;
    var low = before - min(before, seconds);
    var high = min(before, firsts);
    while (low < high) {{
        let half = (low + high) / 2u;
        if (key_at(row, start + half) <= key_at(row, middle + before - 1u - half)) {{
            low = half + 1u;
        }} else {{
            high = half;
        }}
    }}
    let second = middle + before - low;
    var place = start + low;
    if (low == firsts) {{
        place = second;
    }} else if (before - low < seconds) {{
        if (key_at(row, second) < key_at(row, place)) {{
            place = second;
        }}
    }}
    return load_1(p_index_offset() + row + place);
}}
",
        key(call.operands[0].dtype, op.descending)
    );
    Ok(element_kernel(builder, index.layout.shape().elem_count(), &text))
}
