//! Elementwise kernels: random programs over every dtype and layout.

use crate::reference;
use crate::support::{Random, Tensor, devices, from_bytes, layouts, map, run, to_bytes};
use kiln_ir::kernel::Instruction;
use kiln_ir::op::{self, ElementOp};
use kiln_ir::{Class, DType, Layout, Shape};
use smallvec::SmallVec;

fn load(operand: usize) -> Instruction {
    Instruction::Load { operand }
}

fn apply(op: &'static ElementOp, class: Class, args: &[usize]) -> Instruction {
    Instruction::Op { op, class, args: SmallVec::from_slice(args) }
}

/// A program over operands of these dtypes that gives a value of the class, with casts between classes, shared values and
/// values that nothing uses. Casts to narrow dtypes keep numbers small.
fn whole(class: Class) -> DType {
    match class {
        Class::Float => DType::F32,
        Class::Int => DType::I32,
        _ => DType::U32,
    }
}

fn program(dtypes: &[DType], class: Class, random: &mut Random) -> Vec<Instruction> {
    let mut code: Vec<Instruction> = Vec::new();
    let mut classes: Vec<Class> = Vec::new();
    let mut push = |instruction, class, classes: &mut Vec<Class>| {
        code.push(instruction);
        classes.push(class);
    };
    for (operand, dtype) in dtypes.iter().enumerate() {
        push(load(operand), dtype.class(), &mut classes);
    }
    push(Instruction::Scalar { scalar: 1, class: Class::Float }, Class::Float, &mut classes);
    push(Instruction::Scalar { scalar: 0, class: Class::Uint }, Class::Uint, &mut classes);
    push(Instruction::Iota, Class::Uint, &mut classes);
    push(Instruction::Cast { arg: classes.len() - 1, from: Class::Uint, to: DType::U8 }, Class::Uint, &mut classes);
    for _ in 0..3 + random.below(12) {
        let (arg, to) = (random.below(classes.len()), DType::NARROW[random.below(8)]);
        if random.below(3) == 0 {
            push(Instruction::Cast { arg, from: classes[arg], to }, to.class(), &mut classes);
            continue;
        }
        let same = |random: &mut Random| {
            let of_class: Vec<usize> = (0..classes.len()).filter(|&value| classes[value] == classes[arg]).collect();
            of_class[random.below(of_class.len())]
        };
        let (class, other) = (classes[arg], same(random));
        let binary = [&op::ADD, &op::SUB, &op::MUL, &op::MAXIMUM, &op::MINIMUM];
        let condition = classes.iter().rposition(|&class| class == Class::Uint).unwrap();
        let (instruction, class) = match random.below(8) {
            0 => (apply(&op::NEG, class, &[arg]), class),
            1 => (apply(&op::ABS, class, &[arg]), class),
            2 => (apply(&op::LT, class, &[arg, other]), Class::Uint),
            3 => (apply(&op::WHERE, class, &[condition, arg, other]), class),
            _ => (apply(binary[random.below(5)], class, &[arg, other]), class),
        };
        push(instruction, class, &mut classes);
    }
    let last = classes.len() - 1;
    if classes[last] != class {
        push(Instruction::Cast { arg: last, from: classes[last], to: whole(class) }, class, &mut classes);
    }
    code
}

/// Whether every number on the way is exact in `f32`, so that the result does not depend on rounding, and no integer
/// product exceeds the exact range of `f64`.
fn is_exact(code: &[Instruction], tensors: &[Tensor], scalars: &[u32], elements: usize) -> bool {
    (1..=code.len()).all(|end| {
        let values = reference::evaluate(&code[..end], tensors, scalars, &[], elements);
        values.iter().all(|value| value.abs() < 16_777_216.0)
    })
}

fn check(shape: &Shape, tensors: &[Tensor], code: &[Instruction], dtype: DType, scalars: &[u32], what: &str) {
    let operands: Vec<_> = tensors.iter().map(|tensor| tensor.operand.clone()).collect();
    let kernel = map(shape, &operands, code.to_vec(), dtype);
    let expected = reference::evaluate(code, tensors, scalars, &[], shape.elem_count());
    // Stored like results of arithmetic: floats rounded, integers wrapped.
    let expected: Vec<f64> = expected.into_iter().map(|value| reference::cast(value, dtype.class(), dtype)).collect();
    for (name, device) in devices() {
        let found = from_bytes(dtype, &run(device, &kernel, tensors, scalars));
        let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(found.len(), expected.len());
        if let Some(place) = wrong {
            panic!("{what} {shape} {dtype} {name}: element {place}: {} and not {}", found[place], expected[place]);
        }
    }
}

/// Ranks from 0 to 7, sizes 0 and 1, every layout and dtype, programs with shared and unused values.
#[test]
fn random_programs_agree_with_the_reference() {
    let mut random = Random(5);
    let shapes: [&[usize]; 12] = [
        &[],
        &[1],
        &[0],
        &[17],
        &[4, 0, 3],
        &[3, 5],
        &[1, 7, 1],
        &[33, 31],
        &[2, 3, 4, 5],
        &[3, 1, 2, 4, 3],
        &[2, 2, 3, 2, 3, 2],
        &[2, 1, 2, 3, 2, 2, 3],
    ];
    let scalars = [3u32, 2.0f32.to_bits()];
    let (mut run, mut skipped) = (0, 0);
    for shape in shapes.map(Shape::new) {
        let all = layouts(&shape);
        for round in 0..all.len() {
            let tensors: Vec<Tensor> = (0..1 + random.below(4))
                .map(|operand| {
                    let (_, layout) = &all[(round + operand * 3) % all.len()];
                    Tensor::random(DType::NARROW[random.below(8)], layout.clone(), &mut random)
                })
                .collect();
            let dtypes: Vec<DType> = tensors.iter().map(|tensor| tensor.operand.dtype).collect();
            // Programs for `Bool` compute 0 and 1 only, which these do not.
            let dtype = DType::NARROW[random.below(7)];
            let code = program(&dtypes, dtype.class(), &mut random);
            if !is_exact(&code, &tensors, &scalars, shape.elem_count()) {
                skipped += 1;
                continue;
            }
            run += 1;
            check(&shape, &tensors, &code, dtype, &scalars, &format!("program {run}"));
        }
    }
    assert!(run > 60, "{run} run, {skipped} skipped");
}

/// Large transposes run in blocks, for any axes and with other operands.
#[test]
fn operands_that_lie_across_are_read_in_blocks() {
    let mut random = Random(37);
    let shapes: [(&[usize], &[usize]); 4] = [
        (&[130, 131], &[1, 0]),
        (&[3, 70, 90], &[0, 2, 1]),
        (&[65, 4, 67], &[2, 1, 0]),
        (&[2, 50, 3, 60], &[1, 3, 0, 2]),
    ];
    for (shape, axes) in shapes {
        let turned: Shape = axes.iter().map(|&axis| shape[axis]).collect();
        let shape = Shape::new(shape);
        let back: Vec<usize> = (0..axes.len()).map(|axis| axes.iter().position(|&a| a == axis).unwrap()).collect();
        let across = Layout::contiguous(turned).permuted(&back);
        for dtype in DType::NARROW {
            let bias = Layout::contiguous(Shape::from(shape[shape.rank() - 1])).broadcast_to(&shape);
            let tensors =
                [(dtype, across.clone()), (DType::F16, Layout::contiguous(shape.clone())), (DType::F32, bias)]
                    .map(|(dtype, layout)| Tensor::random(dtype, layout, &mut random));
            let cast = |arg, from| Instruction::Cast { arg, from, to: DType::F32 };
            let code = [
                load(0),
                cast(0, dtype.class()),
                load(1),
                apply(&op::ADD, Class::Float, &[1, 2]),
                load(2),
                apply(&op::MUL, Class::Float, &[3, 4]),
                Instruction::Iota,
                cast(6, Class::Uint),
                apply(&op::ADD, Class::Float, &[5, 7]),
            ];
            check(&shape, &tensors, &code, DType::F32, &[], "across");
            check(&shape, &tensors[..1], &code[..1], dtype, &[], "copy across");
        }
    }
}

/// Every dtype is read correctly from every layout, at sizes around those of vectors, tiles and parts.
#[test]
fn every_dtype_is_read_from_every_layout() {
    let mut random = Random(7);
    for shape in [[5, 13], [2, 4097], [67, 61], [9, 4096]].map(Shape::from) {
        for (what, layout) in layouts(&shape) {
            for dtype in DType::NARROW {
                let tensor = Tensor::random(dtype, layout.clone(), &mut random);
                check(&shape, &[tensor], &[load(0)], dtype, &[], what);
            }
        }
    }
}

#[test]
fn sizes_around_vectors_tiles_and_parts_are_whole() {
    let mut random = Random(11);
    let code =
        [load(0), load(1), apply(&op::MUL, Class::Float, &[0, 1]), load(1), apply(&op::ADD, Class::Float, &[2, 3])];
    for elements in [1, 7, 8, 9, 31, 33, 1023, 1025, 4095, 4096, 4097, 32_767, 32_769, 131_073] {
        let shape = Shape::from(elements);
        let tensors =
            [DType::F32, DType::F16].map(|dtype| Tensor::random(dtype, Layout::contiguous(shape.clone()), &mut random));
        for dtype in [DType::F32, DType::BF16] {
            check(&shape, &tensors, &code, dtype, &[], "size");
        }
    }
}

/// A constant that is first used when other values are dead has the same value in every tile.
#[test]
fn numbers_survive_from_tile_to_tile() {
    let mut random = Random(41);
    let shape = Shape::from(10_000);
    let tensors =
        [DType::F16, DType::U8].map(|dtype| Tensor::random(dtype, Layout::contiguous(shape.clone()), &mut random));
    let splat = Tensor::random(DType::F16, Layout::contiguous(Shape::from(())).broadcast_to(&shape), &mut random);
    let tensors = [tensors.as_slice(), &[splat]].concat();
    let code = [
        load(0),
        apply(&op::ABS, Class::Float, &[0]),
        apply(&op::NEG, Class::Float, &[1]),
        Instruction::Scalar { scalar: 0, class: Class::Float },
        apply(&op::ADD, Class::Float, &[2, 3]),
        load(2),
        apply(&op::MUL, Class::Float, &[4, 5]),
        load(1),
        Instruction::Cast { arg: 7, from: Class::Uint, to: DType::F32 },
        apply(&op::ADD, Class::Float, &[6, 8]),
    ];
    check(&shape, &tensors, &code, DType::F32, &[3.0f32.to_bits()], "numbers");
}

/// A program with more live values than fit the scratch memory on the stack.
#[test]
fn many_live_values_fit() {
    let mut random = Random(13);
    let shape = Shape::from(1000);
    let tensors = [Tensor::random(DType::F16, Layout::contiguous(shape.clone()), &mut random)];
    let mut code = vec![load(0)];
    let scalars: Vec<u32> = (0..90).map(|scalar| (scalar as f32).to_bits()).collect();
    for scalar in 0..scalars.len() {
        code.push(Instruction::Scalar { scalar, class: Class::Float });
        code.push(apply(&op::ADD, Class::Float, &[0, code.len() - 1]));
    }
    let sums: Vec<usize> = (0..scalars.len()).map(|scalar| 2 + 2 * scalar).collect();
    let mut last = sums[0];
    for &sum in &sums[1..] {
        code.push(apply(&op::ADD, Class::Float, &[last, sum]));
        last = code.len() - 1;
    }
    check(&shape, &tensors, &code, DType::F32, &scalars, "many values");
}

#[test]
fn scalars_and_iota_need_no_operand() {
    let shape = Shape::from((70, 1000));
    check(&shape, &[], &[Instruction::Iota], DType::U32, &[], "iota");
    check(&shape, &[], &[Instruction::Iota], DType::U8, &[], "iota");
    let scalar = Instruction::Scalar { scalar: 0, class: Class::Float };
    check(&shape, &[], &[scalar], DType::F16, &[1.5f32.to_bits()], "full");
    assert_eq!(to_bytes(DType::F16, 1.5), [0x00, 0x3e]);
}
