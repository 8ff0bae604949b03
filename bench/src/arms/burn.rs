//! burn with its flex backend: eager, rayon, gemm for matmul.

use super::{Prepared, Task};
use burn::tensor::Device;

pub(super) fn prepare(task: &Task<'_>) -> Prepared {
    Ok(burn_workloads::prepare(&task.op, task.number, task.data, &Device::flex()))
}
