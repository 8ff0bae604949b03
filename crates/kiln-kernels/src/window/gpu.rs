//! Unfold and fold on a GPU: an invocation for each element of the result.

use super::{Fold, Sizes, Unfold, Window};
use crate::offsets::{element_kernel, number_type};
use kiln_ir::wgsl::{LOOP_STEPS, WgslBuilder, WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};

fn params(builder: &mut WgslBuilder<'_>, sizes: &Sizes, offset: usize) {
    // The operand is contiguous (the default of `takes`), so its offset and the sizes determine every position.
    builder.param("offset", offset as u32);
    builder.param("channels", sizes.channels as u32);
    window_params(builder, &sizes.window, sizes.image, sizes.positions);
}

/// Adds the sizes of a window on an image as parameters, so that they are not part of the text.
pub(crate) fn window_params(builder: &mut WgslBuilder<'_>, window: &Window, image: [usize; 2], positions: [usize; 2]) {
    let pairs = [
        ("image", image),
        ("positions", positions),
        ("size", window.size),
        ("stride", window.stride),
        ("padding", window.padding),
        ("dilation", window.dilation),
    ];
    for (name, pair) in pairs {
        builder.param(&format!("{name}0"), pair[0] as u32);
        builder.param(&format!("{name}1"), pair[1] as u32);
    }
}

/// Rejects windows that need more loop iterations per invocation than every driver allows.
pub(crate) fn check_steps(name: &str, window: &Window, windows: usize) -> Result<()> {
    let [down, across] = window.size;
    let steps = down.saturating_mul(across.saturating_add(1)).saturating_mul(windows);
    if steps <= 3 * LOOP_STEPS {
        return Ok(());
    }
    let message = format!(
        "{name} on a GPU expected windows of at most {} steps, found {steps} for windows of ({down}, {across}); use the CPU device",
        3 * LOOP_STEPS
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

pub(super) fn unfold(op: &Unfold, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let x = &call.operands[0];
    let sizes = Sizes::of_images(&op.window, x.layout.shape())?;
    let mut builder = call.builder();
    params(&mut builder, &sizes, x.layout.offset());
    let number = number_type(x.dtype);
    // Coordinates are unsigned: one before the image wraps around and fails the same comparison as one after its end.
    let text = format!(
        "fn element(i: u32) -> {number} {{
    let taps = p_size0() * p_size1();
    let row = i / (p_channels() * taps);
    let tap = i % (p_channels() * taps);
    let batch = row / (p_positions0() * p_positions1());
    let position = row % (p_positions0() * p_positions1());
    let y = position / p_positions1() * p_stride0() + tap % taps / p_size1() * p_dilation0() - p_padding0();
    let x = position % p_positions1() * p_stride1() + tap % p_size1() * p_dilation1() - p_padding1();
    if (y >= p_image0() || x >= p_image1()) {{
        return {number}(0);
    }}
    let plane = batch * p_channels() + tap / taps;
    return load_0(p_offset() + (plane * p_image0() + y) * p_image1() + x);
}}
"
    );
    Ok(element_kernel(builder, sizes.batch * sizes.positions[0] * sizes.positions[1] * sizes.row(), &text))
}

pub(super) fn fold(op: &Fold, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let x = &call.operands[0];
    let sizes = Sizes::of_rows(&op.window, op.image, x.layout.shape())?;
    check_steps("fold", &sizes.window, 1)?;
    let mut builder = call.builder();
    params(&mut builder, &sizes, x.layout.offset());
    // For each element of the window, finds the position at which it covers this element of the image, if any.
    let text = "fn element(i: u32) -> f32 {
    let x = i % p_image1();
    let y = i / p_image1() % p_image0();
    let channel = i / (p_image0() * p_image1()) % p_channels();
    let batch = i / (p_image0() * p_image1() * p_channels());
    let taps = p_size0() * p_size1();
    var sum = 0.0;
    for (var row = 0u; row < p_size0(); row += 1u) {
        let from0 = y + p_padding0();
        let step0 = row * p_dilation0();
        if (from0 < step0 || (from0 - step0) % p_stride0() != 0u || (from0 - step0) / p_stride0() >= p_positions0()) {
            continue;
        }
        for (var column = 0u; column < p_size1(); column += 1u) {
            let from1 = x + p_padding1();
            let step1 = column * p_dilation1();
            if (from1 < step1 || (from1 - step1) % p_stride1() != 0u || (from1 - step1) / p_stride1() >= p_positions1()) {
                continue;
            }
            let position = (from0 - step0) / p_stride0() * p_positions1() + (from1 - step1) / p_stride1();
            let seen = (batch * p_positions0() * p_positions1() + position) * p_channels() * taps;
            sum += load_0(p_offset() + seen + channel * taps + row * p_size1() + column);
        }
    }
    return sum;
}
";
    let [height, width] = sizes.image;
    Ok(element_kernel(builder, sizes.batch * sizes.channels * height * width, text))
}
