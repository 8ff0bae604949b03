//! The WGSL of attention: the text beside this file, and the mask where there is one.

use super::Attention;
use kiln_ir::wgsl::{self, WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};

/// Queries of a workgroup, as in the text.
const BLOCK: usize = 16;

/// Elements of a result at most: each invocation keeps 16 of them.
pub(super) const MOST_ELEMENTS: usize = 16 * BLOCK;

const MASK: &str = "
fn is_unmasked(b: u32, h: u32, query: u32, key: u32) -> bool {
    let place = p_mask_offset() + b * p_mask_stride0() + h * p_mask_stride1();
    return load_3(place + query * p_mask_stride2() + key * p_mask_stride3()) != 0u;
}
";

const NO_MASK: &str = "
fn is_unmasked(b: u32, h: u32, query: u32, key: u32) -> bool {
    return true;
}
";

pub(super) fn render(op: &Attention, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let [q, _, v, mask @ ..] = call.operands else {
        let message = format!("attention expected 3 or 4 operands, found {}", call.operands.len());
        return Err(Error::new(ErrorKind::Internal, message));
    };
    let (queries, values) = (q.layout.shape(), v.layout.shape());
    if values[3] > MOST_ELEMENTS {
        let message = format!("attention on a GPU expected values of at most {MOST_ELEMENTS} elements, found {values}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // Steps of all loops of an invocation, but for those of constant length, which compilers write out.
    let blocks_of = |length: usize| length.div_ceil(BLOCK);
    let steps = blocks_of(values[2]) * (1 + blocks_of(queries[3]) + blocks_of(values[3]));
    if steps > 3 * wgsl::LOOP_STEPS {
        let message = format!(
            "attention on a GPU expected fewer keys or shorter ones, found queries {queries} and values {values}"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut builder = call.builder();
    for (name, length) in [("m", queries[2]), ("n", values[2]), ("d", queries[3]), ("e", values[3])] {
        builder.param(name, length as u32);
    }
    builder.param("scale", op.scale.to_bits());
    builder.param("causal", u32::from(op.causal));
    for (name, operand) in ["q", "k", "v", "mask"].into_iter().zip(call.operands) {
        builder.strides(name, &operand.layout);
    }
    let blocks = queries[0] * queries[1] * queries[2].div_ceil(BLOCK);
    let blocks = u32::try_from(blocks).map_err(|_| {
        Error::new(ErrorKind::TooLarge, format!("attention expected at most {} queries, found {queries}", u32::MAX))
    })?;
    let text = if mask.is_empty() { NO_MASK } else { MASK };
    Ok(builder.finish(&format!("{text}{}", include_str!("gpu.wgsl")), wgsl::grid(blocks)))
}
