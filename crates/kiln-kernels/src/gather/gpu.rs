//! x
use super::*;
pub(super) fn gather(_op: &Gather, _call: &WgslCall<'_>) -> Result<WgslKernel> {
    Err(crate::indices::invalid(String::new()))
}
pub(super) fn index_select(_op: &IndexSelect, _call: &WgslCall<'_>) -> Result<WgslKernel> {
    Err(crate::indices::invalid(String::new()))
}
