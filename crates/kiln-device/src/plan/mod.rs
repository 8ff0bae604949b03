//! Compiled plans, and their implementation as WGSL kernels.
//!
//! A device states its [requirements](crate::DeviceApi::target) for plans and [compiles](crate::DeviceApi::compile)
//! them.

mod wgsl;

pub use wgsl::{WgslPlan, WgslStep};

use crate::buffer::Buffer;
use crate::device::Device;
use kiln_ir::Result;
use std::fmt::Debug;

/// A plan compiled for a device. It can run any number of times, from any number of threads.
///
/// It holds no [`Device`], because the cache of the device holds it.
///
/// ```
/// # use kiln_ir::graph::{Op, OpGraph, OpNode, TensorType};
/// # use kiln_ir::{DType, Layout, Shape, op};
/// use kiln_device::{CompiledPlan, NullDevice, PlanRun, WgslPlan, WgslStep};
/// use kiln_ir::plan::Plan;
///
/// # let ty = TensorType { shape: Shape::from((2, 4)), dtype: DType::F32 };
/// # let node = |op, inputs: &[usize]| OpNode { op, inputs: inputs.into(), ty: ty.clone() };
/// # let input = node(Op::Input(Layout::contiguous(ty.shape.clone()).into()), &[]);
/// # let nodes = vec![input, node(Op::Element(&op::RELU), &[0])];
/// # let graph = OpGraph { nodes, outputs: vec![1], held: Vec::new() };
/// let device = NullDevice::new().into_device()?;
/// let plan = Plan::new(&graph, &WgslPlan::target(device.info()))?;
/// let compiled = WgslPlan::new(&device, &plan)?;
/// let (x, y) = (device.buffer(32)?, device.buffer(32)?);
/// compiled.run(&device, &PlanRun { inputs: &[&x], slots: &[], outputs: &[y], scalars: &[] })?;
/// let step = WgslStep::new(&device, &plan, &plan.steps[0])?;
/// assert_eq!(compiled.sources(), [step.source()]);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub trait CompiledPlan: Debug + Send + Sync {
    /// Runs the plan, or passes it to the driver, and returns the number of the submission, without waiting for it.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a buffer does not match a kernel; the device's fault.
    fn run(&self, device: &Device, run: &PlanRun<'_>) -> Result<u64>;

    /// Returns whether small results of a run may share an allocation. False for WGSL, which cannot bind two slices of
    /// one for reading and writing.
    fn packs_results(&self) -> bool {
        false
    }

    /// Returns the size in memory in bytes, without the [plan](kiln_ir::plan::Plan) itself: machine code and kernels.
    /// The kernel cache may count the same kernels, so the sum over both is an upper bound.
    fn bytes(&self) -> u64;

    /// Returns the name and the WGSL of each kernel that was compiled from WGSL, in order.
    fn sources(&self) -> Vec<(&str, &str)>;
}

/// The data of one run of a plan.
///
/// The length of each slot and output is a non-zero multiple of 16 bytes. It shares no allocation with another buffer
/// unless the plan [packs its results](CompiledPlan::packs_results).
///
/// See [`CompiledPlan`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct PlanRun<'a> {
    /// The inputs of the plan.
    pub inputs: &'a [&'a Buffer],
    /// The [slots](kiln_ir::plan::Plan::slots).
    pub slots: &'a [Buffer],
    /// The buffers of the values that are not in slots, in the order of [`Plan::values`](kiln_ir::plan::Plan::values).
    pub outputs: &'a [Buffer],
    /// The scalars, as bits.
    pub scalars: &'a [u32],
}
