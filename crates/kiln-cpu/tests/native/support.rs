//! Devices, tensors of every layout, and single kernels as plans.

use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::{Buffer, Device, PlanRun};
use kiln_ir::kernel::{Body, Core, Instruction, Kernel, Operand, Program};
use kiln_ir::plan::{Place, Plan, PlanOutput, Source, Step, Value};
use kiln_ir::{DType, Layout, Result, Shape};
use std::sync::{Arc, LazyLock};

/// One thread and eight, each with scalar code and with the processor's SIMD level.
pub(crate) fn devices() -> &'static [(String, Device)] {
    static DEVICES: LazyLock<Vec<(String, Device)>> = LazyLock::new(open);
    &DEVICES
}

fn open() -> Vec<(String, Device)> {
    let arms = [1, 8].map(|threads| [SimdLevel::Scalar, SimdLevel::detect()].map(|simd| (threads, simd)));
    let open = |(threads, simd): (usize, SimdLevel)| {
        let device = kiln_cpu::open(CpuOptions::new().threads(threads).simd(simd)).unwrap();
        (format!("{threads} threads, {simd}"), device)
    };
    arms.into_iter().flatten().map(open).collect()
}

/// A deterministic random generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A tensor in the memory of the host.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) operand: Operand,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// Creates a tensor; `element` maps an offset to a number.
    pub(crate) fn new(dtype: DType, layout: Layout, element: impl FnMut(usize) -> f64) -> Self {
        let bytes = (0..layout.range().end).map(element).flat_map(|number| to_bytes(dtype, number)).collect();
        Self { operand: Operand { dtype, layout }, bytes }
    }

    /// Small integers: sums and products of a few of them are exact.
    pub(crate) fn random(dtype: DType, layout: Layout, random: &mut Random) -> Self {
        let low = if matches!(dtype, DType::U8 | DType::U32) { 0.0 } else { -4.0 };
        Self::new(dtype, layout, |_| low + random.below(9) as f64)
    }

    /// The elements in the order of the layout.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let all = from_bytes(self.operand.dtype, &self.bytes);
        places(&self.operand.layout).into_iter().map(|place| all[place]).collect()
    }
}

/// Returns the offset of each element of a layout, in row-major order.
fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![layout.offset() as isize];
    for (&length, &stride) in layout.shape().iter().zip(layout.strides()) {
        places = places.iter().flat_map(|place| (0..length as isize).map(move |i| place + i * stride)).collect();
    }
    places.into_iter().map(|place| place as usize).collect()
}

pub(crate) fn to_bytes(dtype: DType, number: f64) -> Vec<u8> {
    kiln_testkit::encode(&[number], dtype)
}

pub(crate) fn from_bytes(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    kiln_testkit::decode(bytes, dtype)
}

/// Layouts of a shape, one of each kind.
pub(crate) fn layouts(shape: &Shape) -> Vec<(&'static str, Layout)> {
    let rank = shape.rank();
    let contiguous = Layout::contiguous(shape.clone());
    let mut layouts = vec![("contiguous", contiguous.clone())];
    layouts.push(("offset", Layout::strided(shape.clone(), contiguous.strides(), 13)));
    if rank == 0 {
        return layouts;
    }
    let backwards: Vec<usize> = (0..rank).rev().collect();
    let transposed = Layout::contiguous(backwards.iter().map(|&axis| shape[axis]).collect()).permuted(&backwards);
    layouts.push(("transposed", transposed));
    let (last, length) = (rank - 1, shape[rank - 1]);
    let wider = Layout::contiguous(shape.with(last, 3 * length + 2));
    layouts.push(("stepped", wider.sliced(last, 1, length, 3)));
    layouts.push(("part of rows", wider.sliced(last, 2, length, 1)));
    if length > 0 {
        layouts.push(("reversed", contiguous.sliced(last, length - 1, length, -1)));
    }
    for axis in [0, last] {
        layouts.push(("broadcast", Layout::contiguous(shape.with(axis, 1)).broadcast_to(shape)));
    }
    layouts.push(("splat", Layout::contiguous(Shape::from(())).broadcast_to(shape)));
    layouts
}

/// Creates a kernel without a core.
pub(crate) fn map(shape: &Shape, operands: &[Operand], instructions: Vec<Instruction>, dtype: DType) -> Kernel {
    let body = Body { space: shape.clone(), operands: operands.to_vec(), program: Program { instructions } };
    kernel(Core::Map, body, dtype)
}

pub(crate) fn kernel(core: Core, body: Body, dtype: DType) -> Kernel {
    let output = kiln_ir::graph::TensorType { shape: body.space.clone(), dtype };
    Kernel { name: "tested".into(), core, body, output }
}

/// A plan of one kernel whose operands are the inputs, in order.
pub(crate) fn plan_of(kernel: Kernel) -> Plan {
    let core = match &kernel.core {
        Core::Map => 0,
        Core::Reduce { input, .. } => input.operands.len(),
        Core::Op { operands, .. } => operands.len(),
    };
    let reads = (0..core + kernel.body.operands.len()).map(Source::Input).collect();
    let ty = kernel.output.clone();
    let layout = Layout::contiguous(ty.shape.clone());
    Plan {
        steps: vec![Step { kernel, reads, writes: 0 }],
        values: vec![Value { ty, place: Place::Dedicated }],
        slots: Vec::new(),
        held: Vec::new(),
        outputs: vec![PlanOutput { source: Source::Value(0), layout }],
        notes: Vec::new(),
        unfused_bytes: 0,
    }
}

/// Runs a plan and returns the bytes of its dedicated values.
pub(crate) fn run_plan(device: &Device, plan: Plan, inputs: &[Tensor], scalars: &[u32]) -> Result<Vec<Vec<u8>>> {
    let plan = Arc::new(plan);
    let compiled = device.compile(&plan)?;
    let buffer = |bytes: u64| device.buffer(bytes).unwrap();
    let inputs: Vec<Buffer> =
        inputs.iter().map(|tensor| device.buffer_from(&tensor.bytes).unwrap().as_bytes().clone()).collect();
    let slots: Vec<Buffer> = plan.slots.iter().map(|&bytes| buffer(bytes)).collect();
    let own = plan.values.iter().filter(|value| value.place == Place::Dedicated);
    let own: Vec<Buffer> =
        own.map(|value| buffer((value.ty.shape.elem_count() * value.ty.dtype.bytes()) as u64)).collect();
    for buffer in slots.iter().chain(&own) {
        // Poison, so that elements that a step does not write are noticed.
        buffer.map_write(|bytes| bytes.fill(0xa5))?;
    }
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    compiled.run(device, &PlanRun { inputs: &inputs, slots: &slots, outputs: &own, scalars })?;
    own.iter().map(Buffer::read).collect()
}

/// Runs one kernel and returns the bytes of its output.
pub(crate) fn run(device: &Device, kernel: &Kernel, inputs: &[Tensor], scalars: &[u32]) -> Vec<u8> {
    run_plan(device, plan_of(kernel.clone()), inputs, scalars).unwrap().remove(0)
}
