//! Plans on a device: what a compiled plan is, and the form that runs as WGSL kernels.
//!
//! A device states its [requirements](crate::DeviceApi::target) for plans and [compiles](crate::DeviceApi::compile) them.

mod wgsl;

pub use wgsl::{WgslPlan, WgslStep};

use crate::buffer::Buffer;
use crate::device::Device;
use kiln_ir::Result;
use std::fmt::Debug;

/// A plan that is ready to run on its device, as often as wanted and from any number of threads.
///
/// A compiled plan holds no [`Device`]: the device's own cache keeps it.
pub trait CompiledPlan: Debug + Send + Sync {
    /// Runs the plan, or hands it to the driver, and returns the number of the submission. Does not wait for it.
    ///
    /// # Errors
    /// `InvalidArgument` where a buffer is not what a kernel takes; the device's fault.
    fn run(&self, device: &Device, run: &PlanRun<'_>) -> Result<u64>;

    /// Whether small results of a run may share an allocation. WGSL cannot bind two slices of one for reading and for writing.
    fn packs_results(&self) -> bool {
        false
    }

    /// Bytes that it takes in memory, without the [plan](kiln_ir::plan::Plan) itself: machine code, and the kernels that it keeps. The
    /// kernel cache counts these too while it has them, so the sum over both is an upper bound.
    fn bytes(&self) -> u64;

    /// The name and the WGSL of each kernel that was compiled from WGSL, in order.
    fn sources(&self) -> Vec<(&str, &str)>;
}

/// The data of one run of a plan.
///
/// Each slot and output is a multiple of 16 bytes long and never empty, and shares no allocation with another buffer unless the plan
/// [packs its results](CompiledPlan::packs_results).
#[derive(Clone, Copy, Debug)]
pub struct PlanRun<'a> {
    /// The inputs of the plan.
    pub inputs: &'a [&'a Buffer],
    /// The [slots](kiln_ir::plan::Plan::slots).
    pub slots: &'a [Buffer],
    /// The values in buffers of their own, in the order of [`Plan::values`](kiln_ir::plan::Plan::values).
    pub outputs: &'a [Buffer],
    /// The scalars, as the bits of their class.
    pub scalars: &'a [u32],
}
