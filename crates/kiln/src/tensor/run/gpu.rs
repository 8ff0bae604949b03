//! Plans as kernels in WGSL: one command list for all steps.

use kiln_device::{
    Binding, Buffer, Device, DeviceInfo, Feature, Grid, Kernel, KernelCost, KernelFlag, KernelOptions, KernelSource,
    Launch, Value,
};
use kiln_ir::kernel::Core;
use kiln_ir::plan::{Place, Plan, Source, Step};
use kiln_ir::wgsl::{self, WgslFeatures, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

/// A plan whose kernels are compiled for a device.
#[derive(Debug)]
pub(crate) struct GpuPlan {
    steps: Vec<GpuStep>,
}

/// A compiled kernel, and where it finds what it takes.
#[derive(Debug)]
struct GpuStep {
    kernel: Kernel,
    rendered: WgslKernel,
    /// By binding of the kernel.
    takes: Vec<Take>,
    cost: KernelCost,
}

/// What a binding of a kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    Read(Memory),
    Write(Memory),
    Params,
}

/// A buffer of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Input(usize),
    Slot(usize),
    Output(usize),
}

/// The buffers of a run.
#[derive(Clone, Copy, Debug)]
struct Buffers<'a> {
    inputs: &'a [&'a Buffer],
    slots: &'a [Buffer],
    outputs: &'a [Buffer],
}

impl GpuPlan {
    /// Renders the kernels of a plan, and compiles those that the device does not have yet.
    ///
    /// # Errors
    /// `Unsupported` where the device cannot run a kernel; the device's fault.
    pub(crate) fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let features = features(device.info());
        let homes = plan.values.iter().zip(plan.own_values()).map(|(value, own)| match (value.place, own) {
            (Place::Slot(slot), _) => Memory::Slot(slot),
            (Place::Own, number) => Memory::Output(number.unwrap_or_default()),
        });
        let homes: Vec<Memory> = homes.collect();
        let steps = plan.steps.iter().map(|step| GpuStep::new(device, step, &homes, features));
        Ok(Self { steps: steps.collect::<Result<_>>()? })
    }

    /// Runs all steps as one submission, whose number it returns, and does not wait for it.
    ///
    /// `scalars` are the bits of the run's numbers, and `outputs` the values in buffers of their own, in the order of [`Plan::values`]. Each buffer
    /// is a multiple of 16 bytes long, never empty, and what a step writes shares no allocation with what it reads.
    ///
    /// # Errors
    /// `InvalidArgument` where a buffer is not what a kernel takes; the device's fault.
    pub(crate) fn run(
        &self,
        device: &Device,
        inputs: &[&Buffer],
        scalars: &[u32],
        slots: &[Buffer],
        outputs: &[Buffer],
    ) -> Result<u64> {
        let buffers = Buffers { inputs, slots, outputs };
        let mut commands = device.commands();
        for step in &self.steps {
            step.launch(buffers, scalars)?.record(&mut commands)?;
        }
        device.submit(commands)
    }

    /// The name and text of each step's kernel.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.steps.iter().map(|step| (step.kernel.name(), step.rendered.source.as_str()))
    }
}

impl GpuStep {
    fn new(device: &Device, step: &Step, homes: &[Memory], features: WgslFeatures) -> Result<Self> {
        let rendered = wgsl::render(&step.kernel, features)?;
        let source = KernelSource::wgsl(rendered.source.as_str()).named(&*step.kernel.name);
        let source = source.options(KernelOptions { flags: flags(&step.kernel.core), ..KernelOptions::default() });
        let kernel = device.kernel(source)?;
        let bindings = kernel.reflection().bindings.iter();
        let takes = bindings.map(|binding| take(binding, step, homes)).collect::<Result<_>>()?;
        let cost = KernelCost { bytes: step.read_bytes() + step.written_bytes(), flops: step.kernel.flops() };
        Ok(Self { kernel, rendered, takes, cost })
    }

    fn launch(&self, buffers: Buffers<'_>, scalars: &[u32]) -> Result<Launch<'_>> {
        let mut launch = self.kernel.launch().grid(Grid::workgroups(self.rendered.workgroups)).cost(self.cost);
        for (index, take) in self.takes.iter().enumerate() {
            launch = match *take {
                Take::Read(memory) => launch.bind(index, buffers.get(memory)?),
                Take::Write(memory) => launch.bind(index, &mut buffers.get(memory)?.clone()),
                Take::Params => launch.value(index, Value::slice(&self.params(scalars)?)),
            };
        }
        Ok(launch)
    }

    /// The words of the kernel, then the scalars, in whole groups of four.
    fn params(&self, scalars: &[u32]) -> Result<Vec<u32>> {
        let mut words = self.rendered.params.clone();
        for &scalar in &self.rendered.scalars {
            words.push(*scalars.get(scalar).ok_or_else(|| missing("scalar", scalar, scalars.len()))?);
        }
        words.resize(words.len().next_multiple_of(4), 0);
        Ok(words)
    }
}

impl<'a> Buffers<'a> {
    fn get(self, memory: Memory) -> Result<&'a Buffer> {
        let (what, list, index) = match memory {
            Memory::Input(index) => {
                let found = self.inputs.get(index).copied();
                return found.ok_or_else(|| missing("input", index, self.inputs.len()));
            }
            Memory::Slot(index) => ("slot", self.slots, index),
            Memory::Output(index) => ("output", self.outputs, index),
        };
        list.get(index).ok_or_else(|| missing(what, index, list.len()))
    }
}

fn missing(what: &str, index: usize, found: usize) -> Error {
    Error::new(ErrorKind::Internal, format!("a run expected a {what} {index}, found {found} of them"))
}

/// What kernels for a device may use.
pub(crate) fn features(info: &DeviceInfo) -> WgslFeatures {
    let subgroup_size = info.limits.subgroup_size.map(|(_, most)| most).filter(|&most| most > 0);
    WgslFeatures { f16: info.features.contains(&Feature::ShaderF16), subgroup_size }
}

/// Loops of kernels end by themselves, and rendered reductions write all of the workgroup memory that they read.
fn flags(core: &Core) -> BTreeSet<KernelFlag> {
    match core {
        Core::Map | Core::Reduce { .. } => [KernelFlag::UnboundedLoops, KernelFlag::UninitialisedWorkgroup].into(),
        Core::Op { .. } => [KernelFlag::UnboundedLoops].into(),
    }
}

/// What a binding is given, by its name.
fn take(binding: &Binding, step: &Step, homes: &[Memory]) -> Result<Take> {
    let core_operands = match &step.kernel.core {
        Core::Map => 0,
        Core::Reduce { input, .. } => input.operands.len(),
        Core::Op { operands, .. } => operands.len(),
    };
    let number = |prefix: &str| binding.name.strip_prefix(prefix).and_then(|number| number.parse::<usize>().ok());
    let read = number("core").or_else(|| number("body").map(|index| core_operands + index));
    let source = read.and_then(|index| step.reads.get(index));
    match (source, binding.name.as_str()) {
        (Some(&Source::Input(input)), _) => Ok(Take::Read(Memory::Input(input))),
        (Some(&Source::Value(value)), _) => Ok(Take::Read(homes[value])),
        (None, "output") => Ok(Take::Write(homes[step.writes])),
        (None, "params") => Ok(Take::Params),
        (None, name) => {
            let message = format!("kernel `{}` expected bindings of its operands, found `{name}`", step.kernel.name);
            Err(Error::new(ErrorKind::Internal, message))
        }
    }
}
