//! WGSL shared by kernels: element offsets, and a kernel with one invocation per output element.

use crate::strided::StridedIter;
use kiln_ir::wgsl::{WgslBuilder, WgslKernel, grid};
use kiln_ir::{Class, DType};
use std::fmt::Write as _;

/// Renders functions `NAME0(item)`, `NAME1(item)` and so on, which return the offset of an item in each tensor of an iterator. Only the number of
/// axes is part of the text; lengths and strides are parameters.
pub(crate) fn offsets<const N: usize>(builder: &mut WgslBuilder<'_>, name: &str, iter: &StridedIter<N>) -> String {
    let (axes, start) = iter.parts();
    // The outermost coordinate is what is left after the divisions, so the length of that axis is not needed.
    for (number, axis) in axes.iter().enumerate().skip(1) {
        builder.param(&format!("{name}_length{number}"), axis.length as u32);
    }
    let mut text = String::new();
    for (tensor, start) in start.into_iter().enumerate() {
        // Offsets are computed modulo 2^32, so negative strides need no special case.
        builder.param(&format!("{name}{tensor}_start"), start as u32);
        for (number, axis) in axes.iter().enumerate() {
            builder.param(&format!("{name}{tensor}_stride{number}"), axis.strides[tensor] as u32);
        }
        let _ = write!(text, "fn {name}{tensor}(item: u32) -> u32 {{\n    var offset = p_{name}{tensor}_start();\n");
        let mut rest = "item".to_string();
        for axis in (0..axes.len()).rev() {
            let coordinate = if axis == 0 { rest.clone() } else { format!("({rest} % p_{name}_length{axis}())") };
            let _ = writeln!(text, "    offset += {coordinate} * p_{name}{tensor}_stride{axis}();");
            if axis > 0 {
                let _ = writeln!(text, "    let rest{axis} = {rest} / p_{name}_length{axis}();");
                rest = format!("rest{axis}");
            }
        }
        text += "    return offset;\n}\n";
    }
    text
}

/// Returns the WGSL type that elements of a dtype are computed in.
pub(crate) fn number_type(dtype: DType) -> &'static str {
    match dtype.class() {
        Class::Float => "f32",
        Class::Int => "i32",
        Class::Uint => "u32",
        Class::Wide => "vec2<u32>",
    }
}

/// Invocations per workgroup in [`element_kernel`].
const INVOCATIONS: u32 = 64;

/// Creates a kernel with one invocation per output element, which the function `element(i)` in the text computes.
pub(crate) fn element_kernel(mut builder: WgslBuilder<'_>, elements: usize, text: &str) -> WgslKernel {
    builder.param("elements", elements as u32);
    let main = format!(
        "{text}@compute @workgroup_size({INVOCATIONS})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {{
    let i = (group.y * groups.x + group.x) * {INVOCATIONS}u + lane;
    if (i < p_elements()) {{
        finish(i, element(i));
    }}
}}
"
    );
    builder.finish(&main, grid((elements as u32).div_ceil(INVOCATIONS)))
}

/// WGSL checks shared by the tests of all kernels.
#[cfg(test)]
pub(crate) mod checks {
    use kiln_ir::graph::TensorType;
    use kiln_ir::kernel::{Body, Instruction, Operand, Program};
    use kiln_ir::wgsl::{WgslCall, WgslFeatures, WgslKernel};
    use kiln_ir::{DType, KernelOp, Layout};
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    /// Renders the kernel of an op alone, as a plan does: dtypes narrower than a word are stored as the dtype they are computed in.
    pub(crate) fn rendered(op: &dyn KernelOp, operands: &[(DType, Layout)], features: WgslFeatures) -> WgslKernel {
        let ty = |(dtype, layout): &(DType, Layout)| TensorType { shape: layout.shape().clone(), dtype: *dtype };
        let types: Vec<TensorType> = operands.iter().map(ty).collect();
        let TensorType { shape, dtype } = op.infer(&types).unwrap();
        let class = dtype.class();
        let is_whole = dtype == dtype.computed() || (dtype == DType::F16 && features.f16);
        let output = TensorType { shape: shape.clone(), dtype: if is_whole { dtype } else { dtype.computed() } };
        let program = Program { instructions: vec![Instruction::Core { class }] };
        let body = Body { space: shape, operands: Vec::new(), program };
        let operands: Vec<Operand> =
            operands.iter().map(|(dtype, layout)| Operand { dtype: *dtype, layout: layout.clone() }).collect();
        op.wgsl(&WgslCall { features, operands: &operands, body: &body, output: &output }).unwrap()
    }

    /// Asserts that naga accepts the kernel, on adapters with and without f16 and subgroups.
    pub(crate) fn assert_valid(op: &dyn KernelOp, operands: &[(DType, Layout)]) {
        for f16 in [false, true] {
            let features = WgslFeatures { f16, subgroup_size: f16.then_some(32) };
            let source = rendered(op, operands, features).source;
            let module = naga::front::wgsl::parse_str(&source)
                .unwrap_or_else(|error| panic!("{op:?} {operands:?}: {}", error.emit_to_string(&source)));
            let all = Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP;
            let capabilities = if f16 { all } else { Capabilities::empty() };
            let checked = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
            assert!(checked.is_ok(), "{op:?} {operands:?}: {checked:?}\n{source}");
        }
    }
}
