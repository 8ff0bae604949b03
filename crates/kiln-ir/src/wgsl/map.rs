//! Pure elementwise kernels: each invocation computes four consecutive elements.

use super::builder::WgslBuilder;
use super::convert::type_name;
use super::{WgslFeatures, WgslKernel, grid};
use crate::kernel::Kernel;

const WORKGROUP: u32 = 128;

pub(super) fn render(kernel: &Kernel, features: WgslFeatures) -> WgslKernel {
    let words = kernel.as_word_copy();
    let kernel = words.as_ref().unwrap_or(kernel);
    let mut builder = WgslBuilder::new(features, &[], &kernel.body, &kernel.output);
    let quads = kernel.output.shape.elem_count().div_ceil(4) as u32;
    builder.param("quads", quads);
    let nothing = type_name(kernel.output.dtype.class(), true);
    // More than 65,535 workgroups are several rows of a grid (see `grid`); excess invocations do nothing.
    let main = format!(
        "@compute @workgroup_size({WORKGROUP})
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
    let q = id.y * groups.x * {WORKGROUP}u + id.x;
    if (q < p_quads()) {{
        finish4(q, {nothing}());
    }}
}}"
    );
    builder.finish(&main, grid(quads.div_ceil(WORKGROUP)))
}
