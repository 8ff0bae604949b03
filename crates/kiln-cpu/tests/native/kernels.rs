//! Hand-written kernels: their operands, and their stores.

use crate::reference;
use crate::support::{Random, Tensor, devices, from_bytes, kernel, plan_of, run, run_plan};
use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_ir::graph::TensorType;
use kiln_ir::host::{HostCall, HostRows};
use kiln_ir::kernel::{Body, Core, Instruction, Operand, Program};
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{Class, DType, Error, ErrorKind, KernelOp, Layout, Result, Shape, op};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Doubles its operand in pieces, on all threads, or fails.
#[derive(Debug)]
struct Double {
    piece: usize,
    /// Whether a piece is a range of columns of a matrix.
    by_columns: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Panic,
    PanicInThread,
    Refuse,
    StoreBeyond,
}

impl KernelOp for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.piece as u64]
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType> {
        Ok(inputs[0].clone())
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn flops(&self, _: &[TensorType]) -> u64 {
        0
    }

    fn has_host_code(&self) -> bool {
        true
    }

    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        let operand = &call.operands[0];
        let values: &[f32] = bytemuck::cast_slice(operand.bytes);
        let values = &values[operand.layout.offset()..][..operand.layout.shape().elem_count()];
        match self.fault {
            Some(Fault::Panic) => panic!("planted"),
            Some(Fault::Refuse) => return Err(Error::new(ErrorKind::InvalidArgument, "index 7 is too large")),
            _ => {}
        }
        if self.by_columns {
            return self.run_columns(call, values);
        }
        call.workers.run(values.len().div_ceil(self.piece), &|part| {
            assert!(self.fault.is_none_or(|fault| !matches!(fault, Fault::PanicInThread)), "planted in a thread");
            let start = part * self.piece;
            let mut piece: Vec<f32> = values[start..].iter().take(self.piece).map(|x| 2.0 * x).collect();
            let beyond = if matches!(self.fault, Some(Fault::StoreBeyond)) { 1 } else { 0 };
            // SAFETY: the parts store disjoint elements.
            unsafe { call.output.store(start + beyond, &mut piece) };
        })
    }

    fn wgsl(&self, _: &WgslCall<'_>) -> Result<WgslKernel> {
        Err(Error::new(ErrorKind::Unsupported, "not on a GPU"))
    }
}

impl Double {
    fn run_columns(&self, call: &HostCall<'_>, values: &[f32]) -> Result<()> {
        let pitch = call.operands[0].layout.shape()[1];
        call.workers.run(pitch.div_ceil(self.piece), &|part| {
            let start = part * self.piece;
            let length = self.piece.min(pitch - start);
            // Elements between the rows are not stored.
            let width = length + part % 3;
            let mut piece = vec![f32::NAN; values.len() / pitch * width];
            for (row, values) in piece.chunks_mut(width).zip(values.chunks(pitch)) {
                for (to, from) in row.iter_mut().zip(&values[start..start + length]) {
                    *to = 2.0 * from;
                }
            }
            // SAFETY: the parts store disjoint elements.
            unsafe { call.output.store_rows(HostRows { start, pitch, length, width }, &mut piece) };
        })
    }
}

/// Doubles its operand, directly in the output's memory if that is available.
#[derive(Debug)]
struct Direct;

impl KernelOp for Direct {
    fn name(&self) -> &str {
        "direct"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        SmallVec::new()
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType> {
        Ok(inputs[0].clone())
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn flops(&self, _: &[TensorType]) -> u64 {
        0
    }

    fn has_host_code(&self) -> bool {
        true
    }

    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        let values: &[f32] = bytemuck::cast_slice(call.operands[0].bytes);
        let mut doubled: Vec<f32> = values.iter().map(|x| 2.0 * x).collect();
        match call.output.floats() {
            // SAFETY: the output has as many elements as the operand, and nothing else accesses them.
            Some(first) => unsafe { first.copy_from_nonoverlapping(doubled.as_ptr(), doubled.len()) },
            // SAFETY: as above.
            None => unsafe { call.output.store(0, &mut doubled) },
        }
        Ok(())
    }

    fn wgsl(&self, _: &WgslCall<'_>) -> Result<WgslKernel> {
        Err(Error::new(ErrorKind::Unsupported, "not on a GPU"))
    }
}

fn body(shape: &Shape, operands: Vec<Operand>, instructions: Vec<Instruction>) -> Body {
    Body { space: shape.clone(), operands, program: Program { instructions } }
}

fn double(piece: usize, fault: Option<Fault>, operand: &Operand) -> Core {
    Core::Op { op: Arc::new(Double { piece, by_columns: false, fault }), operands: vec![operand.clone()] }
}

/// A kernel that reads one input and rejects its elements.
#[cfg(feature = "events")]
pub(crate) fn failing(shape: &Shape) -> kiln_ir::kernel::Kernel {
    let operand = Operand { dtype: DType::F32, layout: Layout::contiguous(shape.clone()) };
    let body = body(shape, Vec::new(), vec![Instruction::Core { class: Class::Float }]);
    kernel(double(100, Some(Fault::Refuse), &operand), body, DType::F32)
}

fn double_columns(piece: usize, operand: &Operand) -> Core {
    Core::Op { op: Arc::new(Double { piece, by_columns: true, fault: None }), operands: vec![operand.clone()] }
}

/// A fused epilogue is applied to a kernel's results, in whatever pieces it stores them.
#[test]
fn an_epilogue_is_applied_to_the_stored_results() {
    let mut random = Random(29);
    let shape = Shape::from((67, 91));
    let core = || Instruction::Core { class: Class::Float };
    let binary = |op, args: [usize; 2]| Instruction::Op { op, class: Class::Float, args: args.into_iter().collect() };
    let programs = [
        vec![core()],
        vec![
            core(),
            Instruction::Load { operand: 0 },
            binary(&op::ADD, [0, 1]),
            Instruction::Scalar { scalar: 0, class: Class::Float },
            binary(&op::MUL, [2, 3]),
        ],
    ];
    let bias = Layout::contiguous(Shape::from(91)).broadcast_to(&shape);
    for (instructions, piece) in
        programs.iter().flat_map(|program| [1, 7, 91, 6097, 10_000].map(|piece| (program, piece)))
    {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let input = Tensor::random(DType::F32, Layout::strided(shape.clone(), &[91, 1], 5), &mut random);
            let bias = Tensor::random(DType::F16, bias.clone(), &mut random);
            let doubled: Vec<f64> = input.numbers().iter().map(|x| 2.0 * x).collect();
            let scalars = [3.0f32.to_bits()];
            let expected =
                reference::evaluate(instructions, std::slice::from_ref(&bias), &scalars, &doubled, shape.elem_count());
            let operands = if instructions.len() > 1 { vec![bias.operand.clone()] } else { Vec::new() };
            let tensors = [input, bias];
            for core in [double(piece, None, &tensors[0].operand), double_columns(piece, &tensors[0].operand)] {
                let kernel = kernel(core, body(&shape, operands.clone(), instructions.clone()), dtype);
                for (name, device) in devices() {
                    let found = from_bytes(dtype, &run(device, &kernel, &tensors, &scalars));
                    assert!(found == expected, "pieces of {piece} to {dtype}, {name}");
                }
            }
        }
    }
}

/// A kernel gets the output's memory only if `store` would write the same elements unchanged.
#[test]
fn results_are_written_to_memory_only_without_an_epilogue() {
    let shape = Shape::from((3, 40));
    let input = Tensor::new(DType::F32, Layout::contiguous(shape.clone()), |index| index as f64);
    let core = Instruction::Core { class: Class::Float };
    let negated = Instruction::Op { op: &op::NEG, class: Class::Float, args: [0].into_iter().collect() };
    for (instructions, factor) in [(vec![core.clone()], 2.0), (vec![core, negated], -2.0)] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let core = Core::Op { op: Arc::new(Direct), operands: vec![input.operand.clone()] };
            let kernel = kernel(core, body(&shape, Vec::new(), instructions.clone()), dtype);
            for (name, device) in devices() {
                let found = from_bytes(dtype, &run(device, &kernel, std::slice::from_ref(&input), &[]));
                let expected: Vec<f64> = (0..120).map(|index| factor * f64::from(index)).collect();
                assert_eq!(found, expected, "{factor} to {dtype}, {name}");
            }
        }
    }
}

/// A panic disables the device; an error of a kernel does not.
#[test]
fn a_panic_ends_the_device_and_a_refusal_does_not() {
    let shape = Shape::from(100);
    let input = Tensor::new(DType::F32, Layout::contiguous(shape.clone()), |_| 1.0);
    let cases = [
        (Fault::Refuse, ErrorKind::InvalidArgument, "plan `tested`: kernel `tested`: index 7 is too large"),
        (Fault::Panic, ErrorKind::Internal, "CPU device: plan `tested`: panicked: planted"),
        (Fault::PanicInThread, ErrorKind::Internal, "planted in a thread"),
        (Fault::StoreBeyond, ErrorKind::Internal, "elements 91 and 10 more are within 100"),
    ];
    for (fault, kind, message) in cases {
        let device = kiln_cpu::open(CpuOptions::new().threads(2).simd(SimdLevel::Scalar)).unwrap();
        let core = double(10, Some(fault), &input.operand);
        let identity = vec![Instruction::Core { class: Class::Float }];
        let kernel = kernel(core, body(&shape, Vec::new(), identity), DType::F32);
        let error = run_plan(&device, plan_of(kernel), std::slice::from_ref(&input), &[]).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(text.contains(message) || matches!(fault, Fault::StoreBeyond), "{text}");
        assert_eq!(device.buffer(16).is_err(), kind == ErrorKind::Internal, "{fault:?}");
    }
}
