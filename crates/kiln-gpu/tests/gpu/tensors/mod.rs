//! Kernels rendered by the IR, run on the adapter and on the CPU device, compared with loops over `f64`.

mod builder;
mod casts;
mod maps;
mod reductions;

use crate::support;
use half::{bf16, f16};
use kiln_device::{Device, Feature, Grid, KernelSource, Value};
use kiln_gpu::GpuOptions;
use kiln_ir::graph::TensorType;
use kiln_ir::kernel::{Body, Core, Instruction, Kernel, Operand, Program};
use kiln_ir::wgsl::{WgslFeatures, WgslKernel, render};
use kiln_ir::{Class, DType, Layout, Shape, op, round_to_odd};
use std::sync::OnceLock;

/// Returns a device with all features, one without optional features, and the CPU devices.
pub(super) fn devices() -> Vec<Device> {
    static LESS: OnceLock<Device> = OnceLock::new();
    static CPUS: OnceLock<[Device; 2]> = OnceLock::new();
    let cpus = CPUS.get_or_init(support::cpus).clone();
    let Some(all) = support::in_place() else { return cpus.into() };
    let less = GpuOptions::new().without(Feature::ShaderF16).without(Feature::Subgroups);
    let less = LESS.get_or_init(|| kiln_gpu::open(0, less).unwrap());
    [all, less.clone()].into_iter().chain(cpus).collect()
}

/// Encodes elements of a dtype, with padding to a non-zero multiple of 16 bytes.
pub(super) fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|&value| match dtype {
        DType::F16 => f16::from_f32(round_to_odd::f32_of(value)).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(round_to_odd::f32_of(value)).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::U32 => (value as u32).to_le_bytes().to_vec(),
        DType::U8 => vec![value as u8],
        DType::I8 => vec![value as i8 as u8],
        DType::Bool => vec![u8::from(value != 0.0)],
        DType::I64 | DType::F64 => panic!("programs compute in 32 bits"),
    });
    let mut bytes: Vec<u8> = bytes.collect();
    bytes.resize(bytes.len().next_multiple_of(16).max(16), 0x55);
    bytes
}

pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let read = |chunk: &[u8]| match *chunk {
        [a] if dtype == DType::I8 => f64::from(a as i8),
        [a] => f64::from(a),
        [a, b] if dtype == DType::F16 => f16::from_le_bytes([a, b]).to_f64(),
        [a, b] => bf16::from_le_bytes([a, b]).to_f64(),
        [a, b, c, d] => match dtype {
            DType::F32 => f64::from(f32::from_le_bytes([a, b, c, d])),
            DType::I32 => f64::from(i32::from_le_bytes([a, b, c, d])),
            _ => f64::from(u32::from_le_bytes([a, b, c, d])),
        },
        _ => unreachable!("elements have 1, 2 or 4 bytes"),
    };
    bytes.chunks(dtype.bytes()).map(read).collect()
}

pub(super) fn features(device: &Device) -> WgslFeatures {
    let info = device.info();
    let subgroup_size = info.limits.subgroup_size.map(|(_, most)| most);
    WgslFeatures { f16: info.features.contains(&Feature::ShaderF16), subgroup_size }
}

/// Runs a kernel and returns its output.
pub(super) fn run(device: &Device, kernel: &Kernel, operands: &[Vec<u8>], scalars: &[u32]) -> Vec<f64> {
    let core_operands = match &kernel.core {
        Core::Reduce { input, .. } => input.operands.len(),
        _ => 0,
    };
    let rendered = render(kernel, features(device)).unwrap();
    launch(device, &rendered, &kernel.output, operands.split_at(core_operands), scalars)
}

/// Does the same for a rendered kernel. The operands are those of the core, then those of the epilogue.
pub(super) fn launch(
    device: &Device,
    rendered: &WgslKernel,
    output: &TensorType,
    operands: (&[Vec<u8>], &[Vec<u8>]),
    scalars: &[u32],
) -> Vec<f64> {
    let buffer = |bytes: &Vec<u8>| device.buffer_from(bytes).unwrap().into_bytes();
    let [core, body] = [operands.0, operands.1].map(|operands| operands.iter().map(buffer).collect::<Vec<_>>());
    let elements = output.shape.elem_count();
    let mut stored = buffer(&encode(output.dtype, &vec![0.0; elements]));
    let mut words = rendered.params.clone();
    words.extend(rendered.scalars.iter().map(|&scalar| scalars[scalar]));
    words.resize(words.len().next_multiple_of(4), 0);
    let compiled = device.kernel(KernelSource::wgsl(rendered.source.clone())).unwrap();
    let mut launch = compiled.launch().grid(Grid::workgroups(rendered.workgroups));
    for (index, binding) in compiled.reflection().bindings.iter().enumerate() {
        let number = |prefix: &str| binding.name.strip_prefix(prefix).map(|number| number.parse::<usize>().unwrap());
        launch = match (binding.name.as_str(), number("core"), number("body")) {
            (_, Some(operand), _) => launch.bind(index, &core[operand]),
            (_, _, Some(operand)) => launch.bind(index, &body[operand]),
            ("output", ..) => launch.bind(index, &mut stored),
            _ => launch.value(index, Value::slice(&words)),
        };
    }
    launch.submit().unwrap_or_else(|error| panic!("{error}\n{}", rendered.source));
    decode(output.dtype, &stored.read().unwrap()[..elements * output.dtype.bytes()])
}

/// Returns small integers, as many as a layout reaches.
pub(super) fn operand_values(layout: &Layout, seed: usize) -> Vec<f64> {
    (0..layout.range().end).map(|index| ((index * 7 + seed * 5) % 13) as f64).collect()
}

/// Returns the elements of an operand in the order of its space.
pub(super) fn gathered(layout: &Layout, values: &[f64]) -> Vec<f64> {
    let shape = layout.shape();
    let mut found = Vec::with_capacity(shape.elem_count());
    for number in 0..shape.elem_count() {
        let (mut rest, mut place) = (number, layout.offset() as isize);
        for axis in (0..shape.rank()).rev() {
            place += (rest % shape[axis]) as isize * layout.strides()[axis];
            rest /= shape[axis];
        }
        found.push(values[place as usize]);
    }
    found
}

/// Returns a body that adds its operands, all of one dtype, and stores the sum unchanged.
pub(super) fn sum_of(space: &Shape, dtype: DType, layouts: &[Layout]) -> Body {
    let mut instructions: Vec<Instruction> = (0..layouts.len()).map(|operand| Instruction::Load { operand }).collect();
    let mut sum = 0;
    for operand in 1..layouts.len() {
        let args = [sum, operand].into_iter().collect();
        sum = instructions.len();
        instructions.push(Instruction::Op { op: op::by_name("add").unwrap(), class: dtype.class(), args });
    }
    body(space, dtype, layouts, instructions)
}

pub(super) fn body(space: &Shape, dtype: DType, layouts: &[Layout], instructions: Vec<Instruction>) -> Body {
    let operands = layouts.iter().map(|layout| Operand { dtype, layout: layout.clone() }).collect();
    Body { space: space.clone(), operands, program: Program { instructions } }
}

pub(super) fn map(body: Body, dtype: DType) -> Kernel {
    let output = TensorType { shape: body.space.clone(), dtype };
    Kernel { name: "map".to_string(), core: Core::Map, body, output }
}

/// Returns the result of the core without an epilogue.
pub(super) fn core(class: Class) -> Vec<Instruction> {
    vec![Instruction::Core { class }]
}
