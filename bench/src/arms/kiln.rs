//! Kiln.

use super::{Prepared, Task};
use kiln::Device;
use kiln::device::CpuOptions;
use kiln_bench::KilnWorkload;

pub(super) fn prepare(task: &Task<'_>) -> Prepared {
    let device = Device::cpu_with(CpuOptions::new().threads(task.threads))?;
    Ok(KilnWorkload::with_data(&task.op, task.dtype, task.data, &device)?.into_prepared())
}
