//! x
use super::*;
pub(super) fn wgsl(_op: &Softmax, _call: &WgslCall<'_>) -> Result<WgslKernel> {
    Err(crate::indices::invalid(String::new()))
}
