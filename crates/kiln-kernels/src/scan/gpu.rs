//! Scans on a GPU.

use super::{Lines, Scan, ScanOp};
use crate::places::number_type;
use kiln_ir::wgsl::{LOOP_STEPS, WgslCall, WgslKernel, grid};
use kiln_ir::{Error, ErrorKind, KernelOp, Result};

/// Invocations of a workgroup that scans a line together.
const TOGETHER: u32 = 256;
/// Invocations of a workgroup whose invocations have a line each.
const ALONE: u32 = 64;
/// Lines of at most so many elements have an invocation each, also where they are not side by side.
const SHORT: usize = 32;

pub(super) fn wgsl(op: &Scan, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let x = &call.operands[0];
    let lines = Lines::new(x.layout.shape(), op.axis);
    let count = lines.outer * lines.inner;
    let is_alone = lines.length <= SHORT || (lines.inner >= ALONE as usize && lines.length <= LOOP_STEPS);
    let most = LOOP_STEPS * TOGETHER as usize;
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
    // The linear recurrence in reverse takes the factor of the element before, the first one any.
    let map = match op.op {
        ScanOp::Sum => format!("vec2<{number}>({number}(1), load_0(p_offset0() + place))"),
        ScanOp::Product => format!("vec2<{number}>(load_0(p_offset0() + place), {number}(0))"),
        ScanOp::Linear => {
            builder.param("offset1", call.operands[1].layout.offset() as u32);
            let step = if op.reverse { "select(p_inner(), 0u, number == 0u)" } else { "0u" };
            format!("vec2<{number}>(load_0(p_offset0() + place + {step}), load_1(p_offset1() + place))")
        }
    };
    let first = u32::from(op.op == ScanOp::Product);
    let (invocations, main) =
        if is_alone { (ALONE, include_str!("invocation.wgsl")) } else { (TOGETHER, include_str!("workgroup.wgsl")) };
    let text = format!(
        "alias NUMBER = {number};
const FIRST = {number}({first});
const REVERSE = {};
const INVOCATIONS = {invocations}u;
fn map_of(place: u32, number: u32) -> vec2<NUMBER> {{
    return {map};
}}
{}{main}",
        op.reverse,
        include_str!("gpu.wgsl")
    );
    let groups = if is_alone { (count as u32).div_ceil(ALONE) } else { count as u32 };
    Ok(builder.finish(&text, grid(if lines.length == 0 { 0 } else { groups })))
}
