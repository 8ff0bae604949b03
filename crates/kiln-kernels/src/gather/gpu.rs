//! Gather on a GPU: an invocation for each element of the result.

use super::{Gather, IndexSelect};
use crate::offsets::{element_kernel, number_type, offsets};
use crate::strided::StridedIter;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{DType, Layout, Result};
use smallvec::SmallVec;

pub(super) fn gather(op: &Gather, call: &WgslCall<'_>) -> Result<WgslKernel> {
    Ok(render(call, op.axis, &call.operands[1].layout))
}

/// Renders a gather whose indices are broadcast across the other axes.
pub(super) fn index_select(op: &IndexSelect, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let (x, index) = (&call.operands[0].layout, &call.operands[1].layout);
    let shape = x.shape().with(op.axis, index.shape()[0]);
    let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, shape.rank());
    strides[op.axis] = index.strides()[0];
    Ok(render(call, op.axis, &Layout::strided(shape, &strides, index.offset())))
}

fn render(call: &WgslCall<'_>, axis: usize, index: &Layout) -> WgslKernel {
    let [x, indices] = call.operands else { unreachable!("shape inference checked the number of operands") };
    let mut strides: SmallVec<[isize; 6]> = SmallVec::from_slice(x.layout.strides());
    // The index determines the position along the axis, so the iterator has stride 0 there.
    let along = std::mem::take(&mut strides[axis]);
    let starts = [x.layout.offset() as isize, index.offset() as isize];
    let iter = StridedIter::new(index.shape(), [&strides, index.strides()], starts);
    // As an unsigned number, a negative index is at least 2^31 and fails this comparison too.
    let length = x.layout.shape()[axis];
    let end = if indices.dtype == DType::I32 { length.min(1 << 31) } else { length };
    let mut builder = call.builder();
    builder.param("end", end as u32);
    builder.param("along", along as u32);
    let number = number_type(x.dtype);
    let text = format!(
        "{}fn element(i: u32) -> {number} {{
    let index = u32(load_1(at1(i)));
    if (index >= p_end()) {{
        return {number}(0);
    }}
    return load_0(at0(i) + index * p_along());
}}
",
        offsets(&mut builder, "at", &iter)
    );
    element_kernel(builder, iter.items(), &text)
}
