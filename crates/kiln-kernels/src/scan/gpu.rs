//! Scans on a GPU.

use super::{Lines, Scan, ScanOp};
use crate::offsets::number_type;
use kiln_ir::wgsl::{LOOP_STEPS, WgslCall, WgslKernel, grid};
use kiln_ir::{Error, ErrorKind, KernelOp, Result};

/// Invocations per workgroup if a workgroup scans one line.
const TOGETHER: u32 = 256;
/// Invocations per workgroup if each invocation scans one line.
const ALONE: u32 = 64;
/// Lines of at most this many elements get an invocation each, even if they are not adjacent in memory.
const SHORT: usize = 32;

pub(super) fn wgsl(op: &Scan, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let x = &call.operands[0];
    let lines = Lines::new(x.layout.shape(), op.axis);
    let count = lines.outer * lines.inner;
    // Products are sequential: a product of some elements may overflow where the whole product does not, as after a zero.
    let is_sum = op.op == ScanOp::Sum;
    let is_alone = !is_sum || lines.length <= SHORT || (lines.inner >= ALONE as usize && lines.length <= LOOP_STEPS);
    let most = if is_sum { LOOP_STEPS * TOGETHER as usize } else { LOOP_STEPS };
    if lines.length > most {
        let message =
            format!("{} on a GPU expected at most {most} elements along an axis, found {}", op.name(), lines.length);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut builder = call.builder();
    builder.param("length", lines.length as u32);
    builder.param("inner", lines.inner as u32);
    builder.param("lines", count as u32);
    builder.param("offset0", x.layout.offset() as u32);
    let number = number_type(x.dtype);
    let next = match op.op {
        ScanOp::Sum => "return running + load_0(p_offset0() + place);".to_string(),
        ScanOp::Product => "return running * load_0(p_offset0() + place);".to_string(),
        ScanOp::Linear => {
            builder.param("offset1", call.operands[1].layout.offset() as u32);
            // In reverse, the recurrence takes the factor of the element before. The first result has no product: an infinite factor times the
            // initial zero would be NaN.
            let step = if op.reverse { "p_inner()" } else { "0u" };
            format!(
                "let own = load_1(p_offset1() + place);
    if (number == 0u) {{
        return own;
    }}
    return load_0(p_offset0() + place + {step}) * running + own;"
            )
        }
    };
    let first = u32::from(op.op == ScanOp::Product);
    // An invocation scans a line sequentially; a workgroup scans tiles of 256 elements with the Hillis-Steele algorithm and carries the sum.
    let (invocations, main) =
        if is_alone { (ALONE, include_str!("invocation.wgsl").to_string()) } else { (TOGETHER, workgroup()) };
    let text = format!(
        "alias NUMBER = {number};
const FIRST = {number}({first});
const REVERSE = {};
const INVOCATIONS = {invocations}u;
// The result of an element after that of the one before it.
fn next(running: NUMBER, place: u32, number: u32) -> NUMBER {{
    {next}
}}
{}{main}",
        op.reverse,
        include_str!("gpu.wgsl")
    );
    // There may be lines of length 0. They have no results, so nothing is launched.
    let groups = if is_alone { (count as u32).div_ceil(ALONE) } else { count as u32 };
    Ok(builder.finish(&text, grid(if lines.length == 0 { 0 } else { groups })))
}

/// Returns the source of a workgroup that scans a line in tiles. `scan_tile` is a Hillis-Steele scan without a loop: a software driver counts the
/// iterations of inner loops too, and ends all loops after few (`LOOP_STEPS`).
fn workgroup() -> String {
    let step = |step: u32| {
        format!(
            "    if (lane >= {step}u) {{
        sum = sums[lane - {step}u] + sum;
    }}
    workgroupBarrier();
    sums[lane] = sum;
    workgroupBarrier();
"
        )
    };
    let steps: String = (0..TOGETHER.ilog2()).map(|bit| step(1 << bit)).collect();
    let scan_tile = format!(
        "// Returns the sum of the elements of a tile up to this one.
fn scan_tile(own: NUMBER, lane: u32) -> NUMBER {{
    var sum = own;
{steps}    return sum;
}}
"
    );
    scan_tile + include_str!("workgroup.wgsl")
}
