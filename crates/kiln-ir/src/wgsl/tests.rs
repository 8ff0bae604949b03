//! Generated WGSL, validated by naga without a device.

use super::{WgslFeatures, WgslKernel, render};
use crate::graph::{Reduce, TensorType};
use crate::kernel::{Body, Core, Instruction, Kernel, Operand, Program};
use crate::op;
use crate::{Class, DType, Layout, Shape};
use naga::valid::{Capabilities, ValidationFlags, Validator};

const FEATURES: [WgslFeatures; 2] =
    [WgslFeatures { f16: false, subgroup_size: None }, WgslFeatures { f16: true, subgroup_size: Some(32) }];

const REDUCTIONS: [Reduce; 6] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::ArgMax, Reduce::ArgMin];

fn check(kernel: &WgslKernel, features: WgslFeatures) {
    let module = naga::front::wgsl::parse_str(&kernel.source)
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(&kernel.source), kernel.source));
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SHADER_FLOAT16, features.f16);
    capabilities.set(Capabilities::SUBGROUP, features.subgroup_size.is_some());
    let checked = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
    assert!(checked.is_ok(), "{checked:?}\n{}", kernel.source);
}

fn rendered(kernel: &Kernel, features: WgslFeatures) -> WgslKernel {
    let rendered = render(kernel, features).unwrap();
    check(&rendered, features);
    rendered
}

fn body(space: &Shape, operands: Vec<(DType, Layout)>, instructions: Vec<Instruction>) -> Body {
    let operands = operands.into_iter().map(|(dtype, layout)| Operand { dtype, layout }).collect();
    Body { space: space.clone(), operands, program: Program { instructions } }
}

/// Loads every operand, casts it to the dtype of the first, sums them, and casts the sum to `output`.
fn added(space: &Shape, operands: Vec<(DType, Layout)>, output: DType) -> Body {
    let (to, mut sum) = (operands[0].0, None);
    let mut instructions = Vec::new();
    for (operand, (dtype, _)) in operands.iter().enumerate() {
        instructions.push(Instruction::Load { operand });
        if *dtype != to {
            instructions.push(Instruction::Cast { arg: instructions.len() - 1, from: dtype.class(), to });
        }
        let arg = instructions.len() - 1;
        if let Some(sum) = sum {
            let op = op::by_name("add").unwrap();
            instructions.push(Instruction::Op { op, class: to.class(), args: [sum, arg].into_iter().collect() });
        }
        sum = Some(instructions.len() - 1);
    }
    instructions.push(Instruction::Cast { arg: instructions.len() - 1, from: to.class(), to: output });
    body(space, operands, instructions)
}

fn map(space: &Shape, operands: Vec<(DType, Layout)>, dtype: DType) -> Kernel {
    let output = TensorType { shape: space.clone(), dtype };
    Kernel { name: "map".to_string(), core: Core::Map, body: added(space, operands, dtype), output }
}

fn reduce(op: Reduce, space: &Shape, kept: usize, operands: Vec<(DType, Layout)>) -> Kernel {
    let dtype = operands[0].0;
    let class = if matches!(op, Reduce::ArgMax | Reduce::ArgMin) { Class::Uint } else { dtype.class() };
    let shape = Shape::new(&space[..kept]);
    Kernel {
        name: "reduce".to_string(),
        core: Core::Reduce { op, input: added(space, operands, dtype), kept },
        body: body(&shape, Vec::new(), vec![Instruction::Core { class }]),
        output: TensorType { shape, dtype: if class == Class::Uint { DType::U32 } else { dtype.computed() } },
    }
}

/// Views of the shape (4, 8) with different access patterns.
fn layouts() -> Vec<Layout> {
    let shape = Shape::from((4, 8));
    let rows = Layout::contiguous(shape.clone());
    vec![
        rows.clone(),
        Layout::strided(shape.clone(), &[8, 1], 3),
        Layout::contiguous(Shape::from((8, 4))).permuted(&[1, 0]),
        Layout::contiguous(Shape::from(8)).broadcast_to(&shape),
        Layout::contiguous(Shape::from((4, 1))).broadcast_to(&shape),
        Layout::contiguous(Shape::from(1)).broadcast_to(&shape),
        Layout::strided(shape.clone(), &[-8, -1], 31),
        Layout::strided(shape, &[32, 3], 1),
    ]
}

/// Every combination of dtypes and layouts is valid WGSL, with and without optional adapter features.
#[test]
fn every_kernel_is_valid_wgsl() {
    let space = Shape::from((4, 8));
    for features in FEATURES {
        for dtype in DType::NARROW {
            for layout in layouts() {
                for other in DType::NARROW {
                    let second = Layout::contiguous(space.clone());
                    rendered(&map(&space, vec![(dtype, layout.clone()), (other, second)], other), features);
                }
                for op in REDUCTIONS.into_iter().filter(|op| *op != Reduce::Mean || dtype.is_float()) {
                    for kept in 0..3 {
                        rendered(&reduce(op, &space, kept, vec![(dtype, layout.clone())]), features);
                    }
                }
            }
        }
    }
}

/// Two ops declared outside the table with the same name, which is not a WGSL identifier, become two functions.
#[test]
fn ops_with_the_same_name_stay_apart() {
    struct Twice;
    struct Square;
    impl op::FloatOp<1> for Twice {
        fn eval<T: op::Float>([x]: [T; 1]) -> T {
            x + x
        }
    }
    impl op::FloatOp<1> for Square {
        fn eval<T: op::Float>([x]: [T; 1]) -> T {
            x * x
        }
    }
    static TWICE: op::ElementOp = op::ElementOp::float::<Twice, 1>("my op", "", [(0.0, 1.0)], |x| x[0] + x[0]);
    static SQUARE: op::ElementOp = op::ElementOp::float::<Square, 1>("my op", "", [(0.0, 1.0)], |x| x[0] * x[0]);
    let space = Shape::from(4);
    let op = |op, arg: usize| Instruction::Op { op, class: Class::Float, args: [arg].into_iter().collect() };
    let instructions = vec![Instruction::Load { operand: 0 }, op(&TWICE, 0), op(&SQUARE, 1), op(&TWICE, 2)];
    let operands = vec![(DType::F32, Layout::contiguous(space.clone()))];
    let output = TensorType { shape: space.clone(), dtype: DType::F32 };
    let body = body(&space, operands, instructions);
    let kernel = Kernel { name: "mine".to_string(), core: Core::Map, body, output };
    let source = rendered(&kernel, FEATURES[0]).source;
    assert_eq!(source.matches("fn op_my_op_f4").count(), 2, "{source}");
    assert_eq!((source.matches("a0 + a0").count(), source.matches("a0 * a0").count()), (1, 1), "{source}");
}

/// A new shape of the same class needs no new kernel.
#[test]
fn lengths_strides_and_offsets_are_not_part_of_the_text() {
    let pair = |rows: usize, columns: usize, offset: usize| {
        let space = Shape::from((rows, columns));
        let turned = Layout::strided(space.clone(), &[1, rows as isize], offset);
        let kernels = [
            map(
                &space,
                vec![(DType::F32, Layout::contiguous(space.clone())), (DType::F16, turned.clone())],
                DType::BF16,
            ),
            reduce(Reduce::Sum, &space, 1, vec![(DType::F32, turned)]),
        ];
        kernels.map(|kernel| rendered(&kernel, FEATURES[1]))
    };
    for (one, other) in pair(12, 24, 5).into_iter().zip(pair(16, 20, 9)) {
        assert_eq!(one.source, other.source);
        assert_ne!(one.params, other.params);
    }
}

#[test]
fn workgroups_are_spread_over_two_axes() {
    for workgroups in [0, 1, 65_535, 65_536, 100_000, 1 << 24] {
        let [x, y, z] = super::grid(workgroups);
        assert!(x <= 65_535 && y <= 65_535 && z == 1, "{workgroups}");
        let total = u64::from(x) * u64::from(y);
        assert!(total >= u64::from(workgroups) && total < u64::from(workgroups) + u64::from(y), "{workgroups}");
    }
}

/// Golden sources, for maintainers who debug a slow or wrong kernel.
#[test]
fn the_text_of_typical_kernels() {
    let space = Shape::from((64, 96));
    let rows = Layout::contiguous(space.clone());
    let turned = Layout::contiguous(Shape::from((96, 64))).permuted(&[1, 0]);
    let bias = Layout::contiguous(Shape::from(96)).broadcast_to(&space);
    let odd = Shape::from((3, 5, 7));
    let steps = Layout::strided(odd.clone(), &[200, -16, 2], 100);
    let [plain, all] = FEATURES;
    let kernels = [
        ("add_f32", map(&space, vec![(DType::F32, rows.clone()), (DType::F32, rows.clone())], DType::F32), plain),
        ("bias_f16_native", map(&space, vec![(DType::F16, rows.clone()), (DType::F32, bias.clone())], DType::F16), all),
        ("bias_bf16_packed", map(&space, vec![(DType::BF16, turned.clone()), (DType::U8, bias)], DType::BF16), plain),
        ("gather_u8", map(&odd, vec![(DType::U8, steps)], DType::U8), plain),
        (
            "sum_rows",
            reduce(
                Reduce::Sum,
                &Shape::from((2, 4096)),
                1,
                vec![(DType::F32, Layout::contiguous(Shape::from((2, 4096))))],
            ),
            all,
        ),
        ("max_columns", reduce(Reduce::Max, &space, 1, vec![(DType::F32, turned)]), plain),
        ("argmin_rows", reduce(Reduce::ArgMin, &space, 1, vec![(DType::I32, rows)]), plain),
    ];
    for (name, kernel, features) in kernels {
        insta::assert_snapshot!(name, rendered(&kernel, features).source);
    }
}
