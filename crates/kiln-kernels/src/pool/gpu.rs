//! Pooling on a GPU: an invocation for each element of the result.

use super::{Pool, PoolGradient, PoolOp, Sizes};
use crate::offsets::{element_kernel, number_type};
use crate::window::gpu::{check_steps, window_params};
use kiln_ir::wgsl::{WgslBuilder, WgslCall, WgslKernel};
use kiln_ir::{Class, DType, Result};

fn params(builder: &mut WgslBuilder<'_>, sizes: &Sizes, offset: usize) {
    builder.param("offset", offset as u32);
    window_params(builder, &sizes.window, sizes.image, sizes.positions);
}

/// Renders `is_larger(x, best)`: whether an element replaces the maximum so far. NaN does, and nothing replaces it. It is detected by its bits,
/// because drivers may assume that there are no NaNs.
fn is_larger(dtype: DType) -> String {
    let number = number_type(dtype);
    let body = match dtype.class() {
        Class::Float => {
            "let x_is_nan = (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
    let best_is_nan = (bitcast<u32>(best) & 0x7fffffffu) > 0x7f800000u;
    return !best_is_nan && (x_is_nan || x > best);"
        }
        _ => "return x > best;",
    };
    format!("fn is_larger(x: {number}, best: {number}) -> bool {{\n    {body}\n}}\n")
}

/// Renders a loop over the window elements at `position`, with image coordinates `y` and `x`. Coordinates are unsigned: one before the image wraps
/// around and fails the same comparison as one after its end.
fn each_element(body: &str) -> String {
    format!(
        "    for (var row = 0u; row < p_size0(); row += 1u) {{
        let y = position / p_positions1() * p_stride0() + row * p_dilation0() - p_padding0();
        if (y >= p_image0()) {{
            continue;
        }}
        for (var column = 0u; column < p_size1(); column += 1u) {{
            let x = position % p_positions1() * p_stride1() + column * p_dilation1() - p_padding1();
            if (x >= p_image1()) {{
                continue;
            }}
            {body}
        }}
    }}
"
    )
}

pub(super) fn pool(op: &Pool, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let x = &call.operands[0];
    let shape = x.layout.shape();
    let sizes = Sizes::new(&op.window, shape[0] * shape[1], [shape[2], shape[3]])?;
    check_steps("pooling", &sizes.window, 1)?;
    let mut builder = call.builder();
    params(&mut builder, &sizes, x.layout.offset());
    let number = number_type(x.dtype);
    let load = "load_0(p_offset() + (plane * p_image0() + y) * p_image1() + x)";
    let (first, step, functions) = match op.op {
        PoolOp::Sum => ("0.0".to_string(), format!("result += {load};"), String::new()),
        PoolOp::Max => {
            let step = format!(
                "let element = {load};\n            if (is_larger(element, result)) {{\n                result = element;\n            }}"
            );
            // A parameter, because WGSL rejects constant expressions that are infinite.
            let lowest = match x.dtype.class() {
                Class::Float => "bitcast<f32>(p_lowest())",
                Class::Int => "bitcast<i32>(p_lowest())",
                Class::Uint | Class::Wide => "p_lowest()",
            };
            builder.param(
                "lowest",
                match x.dtype.class() {
                    Class::Float => f32::NEG_INFINITY.to_bits(),
                    // The result of a window that covers only padding is stored in the dtype.
                    Class::Int if x.dtype == DType::I8 => i32::from(i8::MIN) as u32,
                    Class::Int => 1 << 31,
                    Class::Uint | Class::Wide => 0,
                },
            );
            (lowest.to_string(), step, is_larger(x.dtype))
        }
    };
    let text = format!(
        "{functions}fn element(i: u32) -> {number} {{
    let position = i % (p_positions0() * p_positions1());
    let plane = i / (p_positions0() * p_positions1());
    var result = {first};
{}    return result;
}}
",
        each_element(&step)
    );
    Ok(element_kernel(builder, sizes.planes * sizes.positions[0] * sizes.positions[1], &text))
}

pub(super) fn gradient(op: &PoolGradient, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let gradient = &call.operands[0];
    let sizes = op.sizes(gradient.layout.shape())?;
    // The gradient of max pooling searches each window that covers an element.
    let [down, across] = [0, 1].map(|axis| sizes.window.size[axis].div_ceil(sizes.window.stride[axis].max(1)));
    let searched = if op.pool.op == PoolOp::Max { down.saturating_mul(across) } else { 0 };
    check_steps("the gradient of pooling", &sizes.window, searched.saturating_add(1))?;
    let mut builder = call.builder();
    params(&mut builder, &sizes, gradient.layout.offset());
    // Whether the window at a position selected the image element at `element_index`.
    let selects = match op.pool.op {
        PoolOp::Sum => {
            "fn selects(plane: u32, position: u32, element_index: u32) -> bool {\n    return true;\n}\n".to_string()
        }
        PoolOp::Max => {
            let x = &call.operands[1];
            builder.param("image_offset", x.layout.offset() as u32);
            // The first element is selected even if it is negative infinity, so that every window with an element selects one.
            let step = "let at = y * p_image1() + x;
            let element = load_1(p_image_offset() + plane * p_image0() * p_image1() + at);
            if (best == 0xffffffffu || is_larger(element, largest)) {
                best = at;
                largest = element;
            }";
            format!(
                "{}fn selects(plane: u32, position: u32, element_index: u32) -> bool {{
    var best = 0xffffffffu;
    var largest = 0.0;
{}    return best == element_index;
}}
",
                is_larger(x.dtype),
                each_element(step)
            )
        }
    };
    // For each element of the window, finds the position at which it covers this element of the image, if any.
    let text = format!(
        "{selects}fn element(i: u32) -> f32 {{
    let element_index = i % (p_image0() * p_image1());
    let plane = i / (p_image0() * p_image1());
    var sum = 0.0;
    for (var row = 0u; row < p_size0(); row += 1u) {{
        let from0 = element_index / p_image1() + p_padding0();
        let step0 = row * p_dilation0();
        if (from0 < step0 || (from0 - step0) % p_stride0() != 0u || (from0 - step0) / p_stride0() >= p_positions0()) {{
            continue;
        }}
        for (var column = 0u; column < p_size1(); column += 1u) {{
            let from1 = element_index % p_image1() + p_padding1();
            let step1 = column * p_dilation1();
            if (from1 < step1 || (from1 - step1) % p_stride1() != 0u || (from1 - step1) / p_stride1() >= p_positions1()) {{
                continue;
            }}
            let position = (from0 - step0) / p_stride0() * p_positions1() + (from1 - step1) / p_stride1();
            if (selects(plane, position, element_index)) {{
                sum += load_0(p_offset() + plane * p_positions0() * p_positions1() + position);
            }}
        }}
    }}
    return sum;
}}
"
    );
    Ok(element_kernel(builder, sizes.planes * sizes.image[0] * sizes.image[1], &text))
}
