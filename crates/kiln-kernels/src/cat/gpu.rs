//! Concatenation on a GPU: an invocation for each element of the result finds the input that it comes from.

use super::Cat;
use crate::offsets::{element_kernel, number_type, offsets};
use crate::strided::StridedIter;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt::Write as _;

pub(super) fn wgsl(op: &Cat, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let inputs = call.operands;
    if inputs.len() > Cat::MAX_GPU_INPUTS {
        let message = format!("cat on a GPU expected at most {} inputs, found {}", Cat::MAX_GPU_INPUTS, inputs.len());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut builder = call.builder();
    let length: usize = inputs.iter().map(|input| input.layout.shape()[op.axis]).sum();
    let shape = inputs[0].layout.shape().with(op.axis, length);
    builder.param("length", length as u32);
    builder.param("inner", shape[op.axis + 1..].iter().product::<usize>() as u32);
    let (mut functions, mut choices) = (String::new(), String::new());
    for (number, input) in inputs.iter().enumerate() {
        functions += &offsets(&mut builder, &format!("at{number}_"), &StridedIter::over(&input.layout));
        // The length of this input along the axis. Parameters, not literals, so that the source does not depend on the lengths.
        builder.param(&format!("own{number}"), input.layout.shape()[op.axis] as u32);
        let _ = write!(
            choices,
            "    if (along < p_own{number}()) {{
        return load_{number}(at{number}_0((outer * p_own{number}() + along) * p_inner() + inner));
    }}
    along -= p_own{number}();
"
        );
    }
    // The last `return` is never reached, but WGSL requires one on every path.
    let number = number_type(inputs[0].dtype);
    let text = format!(
        "{functions}fn element(i: u32) -> {number} {{
    let inner = i % p_inner();
    let rest = i / p_inner();
    let outer = rest / p_length();
    var along = rest % p_length();
{choices}    return {number}(0);
}}
"
    );
    Ok(element_kernel(builder, shape.elem_count(), &text))
}
