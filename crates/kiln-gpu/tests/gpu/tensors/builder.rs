//! The interface for kernel authors: loads of every dtype from any index, and stores with a fused epilogue.

use super::{body, decode, devices, encode, features, launch};
use kiln_device::Device;
use kiln_ir::graph::TensorType;
use kiln_ir::kernel::{Instruction, Operand};
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{Class, DType, Layout, Shape, op};
use std::slice::from_ref;

const ELEMENTS: usize = 37;

/// Loads four elements from each index in three ways, and stores the first plus the operand of the epilogue.
const ONE: &str = "
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= p_elements()) {
        return;
    }
    let i = id.x + u32(-p_back());
    let four = load4_0(i);
    let other = quad_0(i >> 2u);
    if (four.x == load_0(i) && four.w == load_0(i + 3u) && other[i & 3u] == four.x) {
        finish(id.x, four.x);
    }
}";

/// The same, four elements at a time.
const FOUR: &str = "
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (4u * id.x < p_elements()) {
        finish4(id.x, load4_0(4u * id.x + u32(-p_back())));
    }
}";

fn check(device: &Device, dtype: DType, back: i32, main: &str) {
    let output = TensorType { shape: Shape::from(ELEMENTS), dtype };
    let length = ELEMENTS + 8;
    let operands = [Operand { dtype, layout: Layout::contiguous(Shape::from(length)) }];
    let (class, args) = (dtype.class(), [0, 1].into_iter().collect());
    let instructions = vec![
        Instruction::Core { class },
        Instruction::Load { operand: 0 },
        Instruction::Op { op: op::by_name("add").unwrap(), class, args },
    ];
    let epilogue = body(&output.shape, dtype, &[Layout::strided(output.shape.clone(), &[2], 1)], instructions);
    let call = WgslCall { features: features(device), operands: &operands, body: &epilogue, output: &output };
    let mut builder = call.builder();
    builder.param("elements", ELEMENTS as u32);
    builder.param_i32("back", back);
    let rendered: WgslKernel = builder.finish(main, [1, 1, 1]);
    let values = |count: usize, step: usize| (0..count).map(|index| (index * step % 19) as f64).collect::<Vec<_>>();
    let (x, bias) = (encode(dtype, &values(length, 7)), encode(dtype, &values(2 * ELEMENTS, 3)));
    let found = launch(device, &rendered, &output, (from_ref(&x), from_ref(&bias)), &[]);
    let (x, bias) = (decode(dtype, &x), decode(dtype, &bias));
    let first = back.unsigned_abs() as usize;
    let expected: Vec<f64> = (0..ELEMENTS).map(|index| x[index + first] + bias[2 * index + 1]).collect();
    assert_eq!(found, expected, "{dtype} {back}\n{}", rendered.source);
}

/// All ways to load agree for every dtype and index, and the fused epilogue is applied.
#[test]
fn elements_of_every_dtype_are_loaded_and_stored() {
    for device in devices() {
        for dtype in DType::NARROW {
            for back in [0, -1, -2, -3, -4] {
                check(&device, dtype, back, FOUR);
                if dtype.computed() == dtype {
                    check(&device, dtype, back, ONE);
                }
            }
        }
    }
}

/// Only functions that the text calls are declared, so that nothing else is bound.
#[test]
fn a_kernel_declares_only_called_functions() {
    let output = TensorType { shape: Shape::from(4), dtype: DType::F32 };
    let operands = [Operand { dtype: DType::F32, layout: Layout::contiguous(Shape::from(4)) }];
    let epilogue = body(&output.shape, DType::F32, &[], vec![Instruction::Core { class: Class::Float }]);
    for device in devices() {
        let call = WgslCall { features: features(&device), operands: &operands, body: &epilogue, output: &output };
        let main = "@compute @workgroup_size(1) fn main() { finish4(0u, vec4<f32>(1.0, 2.0, 3.0, 4.0)); }";
        let rendered = call.builder().finish(main, [1, 1, 1]);
        assert!(!rendered.source.contains("params") && !rendered.source.contains("fn load"));
        assert_eq!(launch(&device, &rendered, &output, (&[], &[]), &[]), [1.0, 2.0, 3.0, 4.0]);
    }
}
