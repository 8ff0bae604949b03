//! Every elementwise op of the table, over dtypes, layouts, ranks and sizes, against the reference and error bound of the table entry.
//!
//! There is no list of ops here: every op of the table is tested.

use crate::data;
use crate::devices::{self, Subject};
use kiln::ir::op::reference::wrapped;
use kiln::ir::op::{self, ElementOp, Signature};
use kiln::{DType, Tensor};
use kiln_testkit::{Array, LayoutCase, Rng, layouts, rounded};

/// Sizes around the SIMD width, the elements per invocation and the workgroup size.
const SIZES: [usize; 12] = [0, 1, 3, 4, 5, 63, 64, 65, 255, 256, 257, 1025];

/// The dtypes of an op's arguments, and that of its result.
pub(crate) struct Types {
    pub(crate) args: Vec<DType>,
    pub(crate) result: DType,
}

impl Types {
    /// One entry for each dtype that the op takes.
    pub(crate) fn of(op: &ElementOp) -> Vec<Self> {
        // The references of bit ops are for 32 bits.
        let has_reference = |dtype| dtype != DType::I64 || op.takes_dtype(DType::F64);
        let taken = DType::ALL.into_iter().filter(|&dtype| op.takes_dtype(dtype) && has_reference(dtype));
        let same = |arity, result| Self { args: vec![result; arity], result };
        match op.signature {
            Signature::Same { arity } => taken.map(|dtype| same(arity, dtype)).collect(),
            Signature::Compare => taken.map(|dtype| Self { args: vec![dtype; 2], result: DType::U8 }).collect(),
            Signature::Select => {
                taken.map(|dtype| Self { args: vec![DType::U8, dtype, dtype], result: dtype }).collect()
            }
            Signature::Bits { arity } => vec![same(arity, DType::U32)],
            Signature::BitsToFloat { arity } => vec![Self { args: vec![DType::U32; arity], result: DType::F32 }],
        }
    }

    /// The dtype that varies.
    fn variable(&self) -> DType {
        self.args[self.args.len() - 1]
    }
}

fn is_float(dtype: DType) -> bool {
    dtype.is_float() || dtype == DType::F64
}

/// Samples arguments from the intervals of the entry, rounded to the dtypes.
fn sample(op: &ElementOp, types: &Types, shape: &[usize], rng: &mut Rng) -> Vec<Array> {
    let draw = |(&dtype, &(low, high)): (&DType, &op::Interval)| {
        let (low, high) = if is_float(dtype) { (low, high) } else { (low, high + 1.0) };
        Array::from_fn(shape, |_| rounded(rng.uniform(low, high), dtype))
    };
    types.args.iter().zip(op.intervals()).map(draw).collect()
}

/// Returns the result of the op's reference for these arguments.
fn reference(op: &ElementOp, result: DType, args: &[Array]) -> Array {
    let mut place = 0;
    let shape = args[0].shape().to_vec();
    Array::from_fn(&shape, |_| {
        let numbers: Vec<f64> = args.iter().map(|arg| arg.numbers()[place]).collect();
        place += 1;
        let exact = (op.reference())(&numbers);
        if is_float(result) { exact } else { wrapped(exact, result) }
    })
}

fn check(subject: &Subject, op: &'static ElementOp, types: &Types, args: &[Array], tensors: &[Tensor], layout: &str) {
    let wanted = reference(op, types.result, args);
    let what = format!("{op:?} of {layout} {} {:?} on {}", types.variable(), args[0].shape(), subject.name);
    let found = Tensor::apply(op, &tensors.iter().collect::<Vec<_>>());
    let found = found.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    data::check(&what, &found, types.result, &wanted, op.error_bound(types.result));
}

/// Returns the ops and dtypes to test on a device. A GPU opened without `f16` is only tested with `f16`: its other kernels are those of the
/// GPU with it.
fn cases(subject: &Subject) -> Vec<(&'static ElementOp, Types)> {
    let every = op::all().iter().flat_map(|&op| Types::of(op).into_iter().map(move |types| (op, types)));
    let is_tested = |types: &Types| {
        let dtype = types.variable();
        (!subject.lacks_f16 || dtype == DType::F16) && !(subject.takes_wgsl && dtype.is_wide())
    };
    every.filter(|(_, types)| is_tested(types)).collect()
}

/// Every op and dtype at every size.
#[test]
fn sizes_around_the_widths() {
    for subject in devices::all() {
        let mut rng = Rng::new(1);
        for (op, types) in cases(subject) {
            for size in SIZES {
                let args = sample(op, &types, &[size], &mut rng);
                let tensor = |(array, &dtype): (&Array, &DType)| data::tensor(array, dtype, &subject.device);
                let tensors: Vec<Tensor> = args.iter().zip(&types.args).map(tensor).collect();
                check(subject, op, &types, &args, &tensors, "contiguous");
            }
        }
    }
}

/// Every op and dtype in every layout and rank. The arguments of one call have different layouts.
#[test]
fn layouts_and_ranks() {
    let shapes: [&[usize]; 8] =
        [&[], &[7], &[3, 5], &[2, 3, 4], &[2, 1, 3, 2], &[1, 2, 1, 3, 2], &[2, 1, 3, 1, 2, 2], &[2, 0, 3]];
    for subject in devices::all() {
        let mut rng = Rng::new(2);
        for (number, (op, types)) in cases(subject).into_iter().enumerate() {
            // Index computations do not depend on the op, so on a GPU each op is tested with one of the shapes.
            let own = [shapes[number % shapes.len()]];
            for shape in if subject.takes_wgsl { &own[..] } else { &shapes } {
                let args = sample(op, &types, shape, &mut rng);
                let placed: Vec<Vec<LayoutCase>> = args.iter().map(layouts).collect();
                let count = if subject.takes_wgsl { 2 } else { placed[0].len() };
                for turn in 0..count {
                    let of = |(index, layouts): (usize, &Vec<LayoutCase>)| {
                        data::placed(
                            &layouts[(turn + number + index) % layouts.len()],
                            types.args[index],
                            &subject.device,
                        )
                    };
                    let tensors: Vec<Tensor> = placed.iter().enumerate().map(of).collect();
                    check(subject, op, &types, &args, &tensors, placed[0][(turn + number) % placed[0].len()].name);
                }
            }
        }
    }
}

/// On every device, some ops in every pair of layouts: what the test above leaves out on a GPU.
#[test]
fn pairs_of_layouts() {
    let ops = [&op::SUB, &op::LT];
    for subject in devices::all() {
        let mut rng = Rng::new(3);
        for op in ops {
            for types in Types::of(op).into_iter().filter(|types| !(subject.takes_wgsl && types.variable().is_wide())) {
                let args = sample(op, &types, &[3, 5, 2], &mut rng);
                let [left, right] = [layouts(&args[0]), layouts(&args[1])];
                for (turn, left) in left.iter().enumerate() {
                    let right = &right[(turn + 3) % right.len()];
                    let place = |placed: &LayoutCase| data::placed(placed, types.args[0], &subject.device);
                    let what = format!("{} and {}", left.name, right.name);
                    check(subject, op, &types, &args, &[place(left), place(right)], &what);
                }
            }
        }
    }
}

/// Pairs of shapes that broadcast, for every combination of rank and length.
#[test]
fn broadcasting() {
    let pairs: [(&[usize], &[usize]); 9] = [
        (&[4, 5], &[5]),
        (&[4, 1], &[1, 5]),
        (&[], &[2, 3]),
        (&[2, 1, 3], &[4, 1]),
        (&[1, 1, 1], &[2, 2, 2]),
        (&[0, 3], &[3]),
        (&[1], &[0]),
        (&[2, 1, 2, 1, 2, 1], &[3, 1, 2, 1, 2]),
        (&[257, 1], &[1, 65]),
    ];
    for subject in devices::all() {
        let mut rng = Rng::new(4);
        for dtype in [DType::F32, DType::F16, DType::U8] {
            for (a, b) in pairs {
                let mut draw = |shape: &[usize]| Array::from_fn(shape, |_| rng.below(16) as f64);
                let (left, right) = (draw(a), draw(b));
                let wanted = left.zip(&right, |a, b| a * 16.0 - b);
                let wanted = if dtype == DType::U8 { wanted.map(|x| wrapped(x, dtype)) } else { wanted };
                let tensor = |array| data::tensor(array, dtype, &subject.device);
                let what = format!("{a:?} and {b:?} of {dtype} on {}", subject.name);
                let (left, right) = (tensor(&left), tensor(&right));
                let found = left.mul_scalar(16.0).and_then(|x| x.sub(&right)).unwrap();
                data::check(&what, &found, dtype, &wanted, op::Tolerance::EXACT);
            }
        }
    }
}
