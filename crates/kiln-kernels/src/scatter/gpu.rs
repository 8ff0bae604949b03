//! Scatter on a GPU. An invocation for each element of the result goes through the indices that may select it, in order. That is slower than a
//! write per index, but the result does not depend on the order of the invocations.

use super::Scatter;
use crate::offsets::{element_kernel, number_type, offsets};
use crate::strided::StridedIter;
use kiln_ir::wgsl::{self, WgslCall, WgslKernel};
use kiln_ir::{DType, Error, ErrorKind, KernelOp, Result};
use std::fmt::Write as _;

/// Maximum unroll factor of the loop over the indices.
const MAX_COPIES: u32 = 64;

pub(super) fn wgsl(op: &Scatter, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let [x, index, source] = call.operands else { unreachable!("shape inference checked the number of operands") };
    let shape = x.layout.shape();
    let mut builder = call.builder();
    let mut text = offsets(&mut builder, "at", &StridedIter::over(&x.layout));
    builder.param("index_start", index.layout.offset() as u32);
    builder.param("source_start", source.layout.offset() as u32);
    let number = number_type(x.dtype);
    let _ = write!(
        text,
        "fn element(i: u32) -> {number} {{
    var value = load_0(at0(i));
    var index = p_index_start();
    var source = p_source_start();
    var inside = true;
    var rest = i;
"
    );
    for axis in (0..shape.rank()).rev() {
        builder.param(&format!("x_length{axis}"), shape[axis] as u32);
        builder.param(&format!("index_length{axis}"), index.layout.shape()[axis] as u32);
        builder.param(&format!("index_stride{axis}"), index.layout.strides()[axis] as u32);
        builder.param(&format!("source_stride{axis}"), source.layout.strides()[axis] as u32);
        let _ = write!(text, "    let c{axis} = rest % p_x_length{axis}();\n    rest /= p_x_length{axis}();\n");
        if axis != op.axis {
            let _ = write!(
                text,
                "    inside = inside && c{axis} < p_index_length{axis}();
    index += c{axis} * p_index_stride{axis}();
    source += c{axis} * p_source_stride{axis}();
"
            );
        }
    }
    let (axis, term) = (op.axis, if op.add { "value + load_2(source)" } else { "load_2(source)" });
    // Sums of bytes are computed in words and truncated at the end, which wraps the same way.
    let result = match x.dtype {
        DType::U8 if op.add => "value & 0xffu",
        DType::I8 if op.add => "(value << 24u) >> 24u",
        _ => "value",
    };
    let length = index.layout.shape()[axis];
    let copies = wgsl::unroll_factor(length);
    if copies > MAX_COPIES {
        let most = MAX_COPIES as usize * wgsl::LOOP_STEPS;
        let message = format!("{} on a GPU expected at most {most} indices along an axis, found {length}", op.name());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // An index out of range equals no coordinate, so its write is skipped.
    let step = |copy: u32| {
        format!(
            "            if (first + {copy}u < p_index_length{axis}()) {{
                if (u32(load_1(index)) == c{axis}) {{
                    value = {term};
                }}
                index += p_index_stride{axis}();
                source += p_source_stride{axis}();
            }}
"
        )
    };
    let steps: String = (0..copies).map(step).collect();
    let _ = write!(
        text,
        "    if (inside) {{
        for (var first = 0u; first < p_index_length{axis}(); first += {copies}u) {{
{steps}        }}
    }}
    return {result};
}}
"
    );
    Ok(element_kernel(builder, shape.elem_count(), &text))
}
