//! Kiln.

use super::{Prepared, Task};
use kiln::Device;
use kiln::device::CpuOptions;
use kiln_bench::Ours;

pub(super) fn prepare(task: &Task<'_>) -> Prepared {
    let device = Device::cpu_with(CpuOptions::new().threads(task.threads))?;
    Ok(Ours::with_data(&task.op, task.number, task.data, &device)?.ready())
}
