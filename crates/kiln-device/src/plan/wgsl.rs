//! Runs plans as WGSL kernels: one command list for all steps.

use super::{CompiledPlan, PlanRun};
use crate::buffer::Buffer;
use crate::command::CommandList;
use crate::device::Device;
use crate::info::{DeviceInfo, Feature};
use crate::kernel::{Grid, Kernel, KernelFlag, KernelOptions, KernelSource, LoadedKernel, Value};
use crate::observe::KernelCost;
use kiln_ir::plan::{Place, Plan, Source, Step, Target};
use kiln_ir::wgsl::{self, WgslArgument, WgslFeatures, WgslKernel};
use kiln_ir::{Error, Result, error};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plan whose kernels are compiled from WGSL. All steps run as one submission.
///
/// See [`CompiledPlan`] for an example.
#[derive(Debug)]
pub struct WgslPlan {
    steps: Vec<WgslStep>,
}

/// The number of storage buffers that every GPU supported by wgpu can bind to a kernel.
const STORAGE_BUFFERS: usize = 8;

impl WgslPlan {
    /// Returns the properties of a device that plans of WGSL kernels must respect.
    pub fn target(info: &DeviceInfo) -> Target {
        Target {
            max_tensor_bytes: info.limits.max_binding_bytes,
            input_alignment_bytes: info.limits.binding_alignment_bytes as usize,
            ..Target::gpu(STORAGE_BUFFERS, info.features.contains(&Feature::ShaderF16))
        }
    }

    /// Renders the kernels of a plan, and compiles those that are not cached.
    ///
    /// # Errors
    /// Returns `Unsupported` if the device cannot run a kernel; the device's fault.
    pub fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let steps = plan.steps.iter().map(|step| WgslStep::new(device, plan, step));
        Ok(Self { steps: steps.collect::<Result<_>>()? })
    }
}

impl CompiledPlan for WgslPlan {
    fn run(&self, device: &Device, run: &PlanRun<'_>) -> Result<u64> {
        let mut commands = device.commands();
        self.steps.iter().try_for_each(|step| step.record(device, run, &mut commands))?;
        device.submit(commands)
    }

    fn bytes(&self) -> u64 {
        // Equal steps share a kernel, which is counted once.
        let kernels: BTreeMap<_, u64> =
            self.steps.iter().map(|step| (Arc::as_ptr(&step.kernel), step.kernel.bytes)).collect();
        kernels.values().sum::<u64>() + self.steps.iter().map(WgslStep::own_bytes).sum::<u64>()
    }

    fn sources(&self) -> Vec<(&str, &str)> {
        self.steps.iter().map(WgslStep::source).collect()
    }
}

/// A step of a plan: a compiled WGSL kernel and the sources of its arguments.
///
/// See [`CompiledPlan`] for an example.
#[derive(Debug)]
pub struct WgslStep {
    kernel: Arc<LoadedKernel>,
    rendered: WgslKernel,
    /// The arguments, by index of the kernel's bindings.
    bound: Vec<Bound>,
    cost: KernelCost,
}

/// The source of an argument.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// A buffer, and the number of bytes to bind.
    Read(Memory, Option<u64>),
    Write(Memory, Option<u64>),
    /// The uniform, and its size in words.
    Params(usize),
}

/// A buffer of a run.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Input(usize),
    Slot(usize),
    Output(usize),
}

impl WgslStep {
    /// Renders the kernel of a step, and compiles it if it is not cached.
    ///
    /// # Errors
    /// Returns the same errors as [`WgslPlan::new`].
    pub fn new(device: &Device, plan: &Plan, step: &Step) -> Result<Self> {
        let rendered = wgsl::render(&step.kernel, features(device.info()))?;
        let kernel = Arc::clone(device.kernel(source(step, &rendered))?.loaded());
        let bindings = kernel.reflection().bindings.iter().map(|binding| {
            let found = rendered.bindings.iter().find(|found| (0, found.number) == (binding.group, binding.binding));
            let bound = found.and_then(|found| match found.argument {
                WgslArgument::Operand(operand) => {
                    Some(Bound::Read(memory(plan, *step.reads.get(operand)?), found.bytes))
                }
                WgslArgument::Output => Some(Bound::Write(memory(plan, Source::Value(step.writes)), found.bytes)),
                WgslArgument::Params => Some(Bound::Params(binding.min_bytes as usize / 4)),
            });
            bound.ok_or_else(|| {
                let (kernel, name) = (&step.kernel.name, &binding.name);
                error!(Internal, "kernel `{kernel}` expected bindings that its renderer declares, found `{name}`")
            })
        });
        let bound = bindings.collect::<Result<_>>()?;
        let cost = KernelCost { bytes: step.read_bytes() + step.written_bytes(), flops: step.kernel.flops() };
        Ok(Self { kernel, rendered, bound, cost })
    }

    /// Returns the size in memory in bytes, including the kernel.
    pub fn bytes(&self) -> u64 {
        self.kernel.bytes + self.own_bytes()
    }

    fn own_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.bound) + size_of_val(&*self.rendered.params)) as u64
    }

    /// Returns the name and the text of the kernel.
    pub fn source(&self) -> (&str, &str) {
        (self.kernel.name(), &self.rendered.source)
    }

    /// Records the launch with the data of a run.
    ///
    /// # Errors
    /// Returns the same errors as [`CompiledPlan::run`], except the device's fault.
    pub fn record(&self, device: &Device, run: &PlanRun<'_>, commands: &mut CommandList) -> Result<()> {
        // Created for each run, because a plan must not hold its device.
        let kernel = Kernel::new(device.clone(), Arc::clone(&self.kernel));
        let mut launch = kernel.launch().grid(Grid::workgroups(self.rendered.workgroups)).cost(self.cost);
        for (index, bound) in self.bound.iter().enumerate() {
            launch = match *bound {
                Bound::Read(memory, bytes) => {
                    launch.bind(index, &bindable(device, run.buffer(memory)?, bytes, commands)?)
                }
                Bound::Write(memory, bytes) => {
                    let buffer = run.buffer(memory)?;
                    let mut buffer = buffer.slice(..bytes.unwrap_or(buffer.bytes()))?;
                    if self.rendered.zeroes_output {
                        commands.zero(&buffer)?;
                    }
                    launch.bind(index, &mut buffer)
                }
                Bound::Params(words) => launch.value(index, Value::slice(&self.params(run.scalars, words)?)),
            };
        }
        launch.record(commands)
    }

    /// Returns the uniform: the words of the kernel, then the scalars, padded to `size` words.
    fn params(&self, scalars: &[u32], size: usize) -> Result<Vec<u32>> {
        let mut words = self.rendered.params.clone();
        for &scalar in &self.rendered.scalars {
            words.push(*scalars.get(scalar).ok_or_else(|| missing("scalar", scalar, scalars.len()))?);
        }
        // Generated kernels declare `array<vec4<u32>, n>`, whose last vector may be partly unused.
        words.resize(size, 0);
        Ok(words)
    }
}

/// Returns the buffer of a run that a step reads or writes.
fn memory(plan: &Plan, source: Source) -> Memory {
    match source {
        Source::Input(input) => Memory::Input(input),
        Source::Value(value) => match plan.values[value].place {
            Place::Slot(slot) => Memory::Slot(slot),
            Place::Dedicated => Memory::Output(plan.dedicated_values()[value].unwrap_or_default()),
        },
    }
}

/// Returns the source for the kernel cache.
fn source(step: &Step, rendered: &WgslKernel) -> KernelSource {
    let mut source = KernelSource::wgsl(Arc::clone(&rendered.source)).named(&*step.kernel.name);
    for (name, value) in &rendered.constants {
        source = source.constant(name, *value);
    }
    if let Some(entry) = &rendered.entry {
        source = source.entry(entry);
    }
    let mut options = KernelOptions::default();
    if rendered.guarantees.loops_end {
        options.flags.insert(KernelFlag::UnboundedLoops);
    }
    if rendered.guarantees.workgroup_is_written {
        options.flags.insert(KernelFlag::UninitialisedWorkgroup);
    }
    source.options(options)
}

impl PlanRun<'_> {
    fn buffer(&self, memory: Memory) -> Result<&Buffer> {
        let (what, found, index, count) = match memory {
            Memory::Input(index) => ("input", self.inputs.get(index).copied(), index, self.inputs.len()),
            Memory::Slot(index) => ("slot", self.slots.get(index), index, self.slots.len()),
            Memory::Output(index) => ("output", self.outputs.get(index), index, self.outputs.len()),
        };
        found.ok_or_else(|| missing(what, index, count))
    }
}

/// Generated kernels access buffers in groups of this many bytes, including the last elements.
const ACCESS_BYTES: u64 = 16;

/// Returns the first `bytes` bytes of a buffer, or all of it, in a form that a kernel can bind.
///
/// The bytes are copied if the buffer starts at an offset that the device cannot bind, or ends too early. Only the CPU
/// device is given such inputs, because its native kernels can read any element.
fn bindable(device: &Device, buffer: &Buffer, bytes: Option<u64>, commands: &mut CommandList) -> Result<Buffer> {
    let wanted = bytes.unwrap_or_else(|| buffer.bytes().next_multiple_of(ACCESS_BYTES));
    let is_aligned = buffer.offset().is_multiple_of(device.info().limits.binding_alignment_bytes);
    if is_aligned && buffer.bytes() >= wanted {
        return buffer.slice(..wanted);
    }
    let (copy, available) = (device.buffer(wanted)?, wanted.min(buffer.bytes()));
    commands.copy(&buffer.slice(..available)?, &copy.slice(..available)?)?;
    Ok(copy)
}

fn missing(what: &str, index: usize, found: usize) -> Error {
    error!(Internal, "a run expected a {what} {index}, found {found} of them")
}

/// Returns the features that kernels for a device may use.
fn features(info: &DeviceInfo) -> WgslFeatures {
    let subgroup_size = info.limits.subgroup_size.map(|(_, most)| most).filter(|&most| most > 0);
    WgslFeatures { f16: info.features.contains(&Feature::ShaderF16), subgroup_size }
}
