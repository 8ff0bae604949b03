//! Machine code compared with the loops: identical bits for every op, dtype and length.

use super::STREAM_BYTES;
use crate::native::body::TileProgram;
use crate::native::tiles::{Arena, Memory, Runner};
use kiln_ir::kernel::{Body, Instruction, Operand, Program};
use kiln_ir::op::{self, ElementOp, Signature};
use kiln_ir::{Class, DType, Layout, Shape, SimdLevel};
use smallvec::SmallVec;

/// Extreme words: zeros, subnormals, infinities, NaN, and integers at the ends of their range.
const EXTREME: [u32; 16] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f7f_ffff,
    0x4170_0000,
    0xc2d0_0000,
    0x3f00_0000,
    0x42c8_0000,
    31,
    u32::MAX,
];

/// A deterministic sequence of words.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Returns elements of a dtype: extreme and moderate ones.
    fn elements(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let element = |words: &mut Self| -> u32 {
            let word = words.next();
            let moderate = (f64::from(words.next() as i32) / f64::from(1 << 28)) as f32;
            match dtype {
                _ if word.is_multiple_of(3) && dtype != DType::Bool => {
                    EXTREME[word as usize / 3 % EXTREME.len()] >> (32 - 8 * dtype.bytes())
                }
                DType::F32 => moderate.to_bits(),
                DType::F16 => u32::from(half::f16::from_f32(moderate).to_bits()),
                DType::BF16 => u32::from(half::bf16::from_f32(moderate).to_bits()),
                DType::Bool => words.next() % 2,
                _ => words.next() % 64,
            }
        };
        (0..count).flat_map(|_| element(self).to_le_bytes().into_iter().take(dtype.bytes())).collect()
    }
}

/// Returns what a program stores.
fn run(program: &TileProgram, inputs: &[Vec<u32>], scalars: &[u32], len: usize) -> Vec<u32> {
    // Aligned like the memory of a device, with a guard after the end that must stay unchanged.
    let mut output = vec![0xdead_beef; len + 8 + 16];
    let first = output.as_ptr().align_offset(64);
    let output = &mut output[first..first + len + 8];
    let operands: Vec<*const u8> = inputs.iter().map(|input| input.as_ptr().cast()).collect();
    let memory = Memory { operands: &operands, output: output.as_mut_ptr().cast(), scalars };
    let mut arena = Arena::new();
    // SAFETY: the operands are within their memory, and the output has room.
    unsafe { Runner::new(program, memory, len, &mut arena).run_range(0..len) };
    output.to_vec()
}

/// Runs a program both ways, and compares the results; returns false if it has no machine code.
fn agrees(body: &Body, store: DType, scalars: &[u32], seed: u64) -> bool {
    let level = SimdLevel::detect();
    let (made, loops) =
        (TileProgram::new(body, Some(store), level).unwrap(), TileProgram::of_loops(body, Some(store), level).unwrap());
    let len = body.space.elem_count();
    let mut words = Words(seed);
    let inputs: Vec<Vec<u32>> = body
        .operands
        .iter()
        .map(|operand| {
            let mut bytes = words.elements(operand.dtype, operand.layout.range().end);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
        })
        .collect();
    let (found, expected) = (run(&made, &inputs, scalars, len), run(&loops, &inputs, scalars, len));
    for element in 0..(len + 8) * 4 / store.bytes() {
        let word = |words: &[u32]| {
            let bytes = &bytemuck::cast_slice::<u32, u8>(words)[element * store.bytes()..][..store.bytes()];
            bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
        };
        let (found, expected) = (word(&found), word(&expected));
        let is_nan = |word: u32| match store {
            DType::F32 => f32::from_bits(word).is_nan(),
            DType::F16 => half::f16::from_bits(word as u16).is_nan(),
            DType::BF16 => half::bf16::from_bits(word as u16).is_nan(),
            _ => false,
        };
        let is_same = found == expected || is_nan(found) && is_nan(expected);
        assert!(is_same, "element {element} of {len} {store}: {found:#x}, expected {expected:#x}; {:?}", body.program);
    }
    made.machine.is_some()
}

fn operand(dtype: DType, shape: &Shape) -> Operand {
    Operand { dtype, layout: Layout::contiguous(shape.clone()) }
}

/// A body of one op on operands of a dtype.
fn body_of(op: &'static ElementOp, dtype: DType, len: usize) -> (Body, DType) {
    let shape = Shape::from(len);
    let operands: Vec<Operand> = (0..op.arity())
        .map(|arg| operand(if op.signature == Signature::Select && arg == 0 { DType::U8 } else { dtype }, &shape))
        .collect();
    let mut instructions: Vec<Instruction> = (0..op.arity()).map(|operand| Instruction::Load { operand }).collect();
    instructions.push(Instruction::Op { op, class: dtype.class(), args: (0..op.arity()).collect() });
    let result = match op.signature {
        Signature::Compare => DType::U8,
        Signature::BitsToFloat { .. } => DType::F32,
        _ => dtype,
    };
    if matches!(result, DType::U8 | DType::I8) && op.signature != Signature::Compare {
        let arg = instructions.len() - 1;
        instructions.push(Instruction::Cast { arg, from: result.class(), to: result });
    }
    (Body { space: shape, operands, program: Program { instructions } }, result)
}

/// Every table op, on every dtype, at lengths around the vector length.
#[test]
fn every_op_gives_the_bits_of_its_loop() {
    let mut without_code = Vec::new();
    for &op in op::all() {
        for dtype in DType::NARROW.into_iter().filter(|&dtype| op.takes_dtype(dtype)) {
            for len in [1, 7, 8, 9, 64, 517] {
                let (body, store) = body_of(op, dtype, len);
                if !agrees(&body, store, &[], len as u64) && len == 8 {
                    without_code.push(format!("{} {dtype}", op.name));
                }
            }
        }
    }
    if SimdLevel::detect() >= SimdLevel::Avx2 {
        // AVX2 has no integer division.
        assert_eq!(without_code, ["div i8", "div i32", "div u8", "div u32"]);
    }
}

/// Large results are stored non-temporally and agree, including the partial vector at the end; a result that is read
/// again is not.
#[test]
fn large_results_are_the_same() {
    for (dtype, store) in [(DType::F32, DType::F32), (DType::F16, DType::F16), (DType::BF16, DType::BF16)] {
        let (body, _) = body_of(&op::ADD, dtype, STREAM_BYTES / dtype.bytes() + 5);
        agrees(&body, store, &[], 3);
        let made = TileProgram::new(&body, Some(store), SimdLevel::detect()).unwrap();
        let streams = made.machine.map(|machine| machine.code.streaming.is_some());
        assert!(streams.is_none_or(|streams| streams == (store != DType::BF16)), "{store}");
    }
}

/// Programs of many ops, with more values than registers, scalars, splats, strided operands and iotas.
#[test]
fn random_programs_give_the_bits_of_their_loops() {
    let cheap: Vec<&ElementOp> = op::all().iter().copied().filter(|op| op.takes(Class::Float)).collect();
    let mut words = Words(7);
    let mut below = |bound: usize| words.next() as usize % bound;
    let mut with_code = 0;
    for case in 0..300 {
        let shape = Shape::from((3, 40 + case % 9));
        let dtypes = [DType::F32, DType::F16, DType::BF16];
        let operands: Vec<Operand> = (0..1 + below(9))
            .map(|_| {
                let dtype = dtypes[below(3)];
                let layout = match below(4) {
                    0 => Layout::contiguous(Shape::from((shape[1], 3))).permuted(&[1, 0]),
                    1 => Layout::contiguous(Shape::from((1, 1))).broadcast_to(&shape),
                    _ => Layout::contiguous(shape.clone()),
                };
                Operand { dtype, layout }
            })
            .collect();
        let mut instructions: Vec<Instruction> =
            (0..operands.len()).map(|operand| Instruction::Load { operand }).collect();
        let scalars: Vec<u32> = (0..3).map(|_| (below(100) as f32 - 50.0).to_bits()).collect();
        instructions.extend((0..3).map(|scalar| Instruction::Scalar { scalar, class: Class::Float }));
        instructions.push(Instruction::Iota);
        let arg = instructions.len() - 1;
        instructions.push(Instruction::Cast { arg, from: Class::Int, to: DType::F32 });
        let is_float = |index: &usize| *index != arg;
        for _ in 0..1 + below(60) {
            let op = cheap[below(cheap.len())];
            if !matches!(op.signature, Signature::Same { .. }) {
                continue;
            }
            let count = instructions.len();
            let args: SmallVec<[usize; 3]> =
                (0..op.arity()).map(|_| Some(below(count)).filter(is_float).unwrap_or(0)).collect();
            instructions.push(Instruction::Op { op, class: Class::Float, args });
        }
        // Combine all values so far, so that many are live at once.
        let mut sum = instructions.len() - 1;
        for value in (0..instructions.len()).filter(is_float) {
            instructions.push(Instruction::Op {
                op: &op::MAXIMUM,
                class: Class::Float,
                args: SmallVec::from_slice(&[sum, value]),
            });
            sum = instructions.len() - 1;
        }
        let body = Body { space: shape, operands, program: Program { instructions } };
        with_code += usize::from(agrees(&body, dtypes[case % 3], &scalars, case as u64));
    }
    if SimdLevel::detect() >= SimdLevel::Avx2 {
        assert!(with_code > 200, "{with_code} of 300 programs had code");
    }
}
