//! Seeded random computations: every path to the same result gives the same elements.
//!
//! A computation is a list of steps over tensors, decided by a seed alone, so that it can be run again in another way: all at
//! once (fused), op by op (nothing to fuse), on other threads, with a plan from the cache, in place.

use crate::devices;
use kiln::device::{CpuOptions, SimdLevel};
use kiln::{DType, Device, Tensor};
use kiln_testkit::{Array, Rng};

/// When elements are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// At the end, all at once.
    Lazy,
    /// After each op.
    Eager,
    /// After some ops, by the seed.
    Sometimes,
}

/// The number of ops of a computation.
const OPS: usize = 24;

/// Runs the computation of a seed; the last few tensors are its results.
fn run(seed: u64, rows: usize, columns: usize, device: &Device, mode: Mode) -> Vec<Vec<f32>> {
    let mut rng = Rng::new(seed);
    let mut pauses = Rng::new(seed ^ 0xfeed);
    let mut tensors: Vec<Tensor> = (0..3)
        .map(|_| {
            let array = Array::from_fn(&[rows, columns], |_| rng.uniform(-2.0, 2.0));
            crate::data::tensor(&array, DType::F32, device)
        })
        .collect();
    for _ in 0..OPS {
        let tensor = step(&mut rng, &tensors);
        let pause = pauses.below(3) == 0;
        if mode == Mode::Eager || (mode == Mode::Sometimes && pause) {
            tensor.eval().unwrap();
        }
        tensors.push(tensor);
    }
    let results = tensors.split_off(tensors.len() - 4);
    // Intermediates have no handles, so the planner may drop them.
    drop(tensors);
    Tensor::eval_all(&results.iter().collect::<Vec<_>>()).unwrap();
    results.iter().map(|result| result.to_vec::<f32>().unwrap()).collect()
}

/// One op on tensors of one shape, with a result of that shape and of numbers that stay small.
fn step(rng: &mut Rng, tensors: &[Tensor]) -> Tensor {
    // Newer tensors more often, so that chains become long.
    let recent = |rng: &mut Rng| {
        let back = rng.below(tensors.len()).min(rng.below(tensors.len()));
        &tensors[tensors.len() - 1 - back]
    };
    let (a, b) = (recent(rng), recent(rng));
    let rows = a.shape()[0];
    let result = match rng.below(22) {
        0 => a.add(b),
        1 => a.sub(b),
        2 => a.mul(b).and_then(|product| product.tanh()),
        3 => a.maximum(b),
        4 => a.minimum(b),
        5 => a.relu(),
        6 => a.sigmoid(),
        7 => a.neg().and_then(|x| x.exp()).and_then(|x| x.minimum(2.0)),
        8 => a.add_scalar(0.25),
        9 => a.mul_scalar(-0.75),
        10 => a.gt(b).and_then(|mask| mask.where_(a, b)),
        11 => a.sum_keepdim([1]).and_then(|sums| a.sub(&sums.mul_scalar(0.01)?)),
        12 => a.max_keepdim([0]).and_then(|largest| a.sub(&largest)).and_then(|x| x.maximum(-2.0)),
        13 => a.mean_keepdim([0, 1]).and_then(|mean| mean.add(b)),
        14 => a.softmax(1),
        15 => a.layer_norm(None, None, 1e-3),
        16 => a.flip(1).and_then(|x| x.add(b)),
        17 => a.slice(0, ..rows / 2).and_then(|top| Tensor::cat(&[&b.slice(0, ..rows - rows / 2)?, &top], 0)),
        18 => a.matmul(&b.t().unwrap()).and_then(|square| square.matmul(a)).and_then(|x| x.tanh()),
        19 => a.t().and_then(|x| x.contiguous()).and_then(|x| x.t()).and_then(|x| x.add(a)),
        20 => a.to_dtype(DType::BF16).and_then(|x| x.to_dtype(DType::F32)),
        _ => a.gelu().and_then(|x| x.abs()),
    };
    // Sums of sums stay in the range where every path is equally exact.
    result.and_then(|x| x.clamp(-4.0, 4.0)).unwrap()
}

/// Largest difference that two orders of the same sums make in these computations.
const TOLERANCE: f32 = 2e-3;

fn assert_close(what: &str, found: &[Vec<f32>], wanted: &[Vec<f32>]) {
    for (result, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found.len(), wanted.len(), "{what}");
        for (place, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
            let is_close = (found - wanted).abs() <= TOLERANCE || (found.is_nan() && wanted.is_nan());
            assert!(is_close, "{what}: expected {wanted}, found {found} at {place} of result {result}");
        }
    }
}

/// Fused or op by op, the elements are the same on the CPU.
#[test]
fn fused_is_what_op_by_op_gives() {
    for subject in devices::cpus() {
        for seed in 0..60 {
            let (rows, columns) = [(4, 7), (1, 33), (16, 16), (5, 65)][seed as usize % 4];
            let compute = |mode| run(seed, rows, columns, &subject.device, mode);
            let lazy = compute(Mode::Lazy);
            for mode in [Mode::Eager, Mode::Sometimes] {
                let what = format!("seed {seed}, {mode:?}, {}", subject.name);
                assert_close(&what, &compute(mode), &lazy);
            }
        }
    }
}

/// The GPU computes what the CPU does. Each computation compiles new kernels, so there are few.
#[test]
fn the_gpu_gives_what_the_cpu_gives() {
    for subject in devices::all().iter().filter(|subject| subject.takes_wgsl) {
        for seed in 100..106 {
            let lazy = run(seed, 5, 33, &subject.device, Mode::Lazy);
            assert_close(&format!("seed {seed}"), &lazy, &run(seed, 5, 33, devices::cpu(), Mode::Lazy));
        }
    }
}

/// With one thread or eight, bit for bit the same: sums are split by the shape, not by the number of threads.
#[test]
fn threads_do_not_change_a_bit() {
    let one = Device::cpu_with(devices::cpu_options().threads(1)).unwrap();
    let eight = Device::cpu_with(devices::cpu_options().threads(8)).unwrap();
    for seed in 200..206 {
        let (rows, columns) = [(300, 257), (7, 9001), (1025, 64)][seed as usize % 3];
        let bits = |device: &Device| -> Vec<Vec<u32>> {
            let results = run(seed, rows, columns, device, Mode::Lazy);
            results.iter().map(|result| result.iter().map(|number| number.to_bits()).collect()).collect()
        };
        assert!(bits(&one) == bits(&eight), "seed {seed}");
    }
}

/// A cached plan gives the same results for new data as a new plan.
#[test]
fn a_cached_plan_is_a_new_plan() {
    let warm = devices::cpu();
    for seed in 300..310 {
        let graph = |device: &Device, shift: f64| {
            let mut rng = Rng::new(seed);
            let mut tensors: Vec<Tensor> = (0..3)
                .map(|_| {
                    let array = Array::from_fn(&[6, 10], |_| rng.uniform(-1.0, 1.0) + shift);
                    crate::data::tensor(&array, DType::F32, device)
                })
                .collect();
            for _ in 0..8 {
                let next = step(&mut rng, &tensors).add_scalar(shift).unwrap();
                tensors.push(next);
            }
            tensors.last().unwrap().to_vec::<f32>().unwrap()
        };
        graph(warm, 0.5);
        let cold = Device::cpu_with(devices::cpu_options().threads(2)).unwrap();
        assert_eq!(graph(warm, -0.25), graph(&cold, -0.25), "seed {seed}");
    }
}

/// In place or not, the elements are the same, and other handles keep theirs, also views and clones.
#[test]
fn in_place_is_what_a_new_tensor_would_be() {
    for subject in devices::all() {
        let numbers = Array::from_fn(&[4, 6], |index| (index[0] * 6 + index[1]) as f64 / 4.0 - 2.0);
        let x = crate::data::tensor(&numbers, DType::F32, &subject.device);
        let (clone, view) = (x.clone(), x.t().unwrap());
        let (before, before_view) = (x.to_vec::<f32>().unwrap(), view.to_vec::<f32>().unwrap());
        let factor = x.abs().unwrap().add_scalar(1.0).unwrap();
        // Negative from the first step on, so that a step that lost a sign would show.
        let expected = x.sub(&factor).unwrap().mul(&factor).unwrap().add(&x).unwrap().div(&factor).unwrap();
        let mut changed = x.clone();
        changed.sub_assign(&factor).unwrap();
        changed.mul_assign(&factor).unwrap();
        changed.add_assign(&x).unwrap();
        changed.div_assign(&factor).unwrap();
        assert_eq!(changed.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap(), "{}", subject.name);
        assert_eq!(clone.to_vec::<f32>().unwrap(), before, "{}", subject.name);
        assert_eq!(view.to_vec::<f32>().unwrap(), before_view, "{}", subject.name);
    }
}

/// `eval_checked` runs fused, unfused and on the CPU, and finds no difference.
#[test]
fn checked_evaluation_finds_nothing_to_report() {
    for subject in devices::all() {
        for seed in if subject.takes_wgsl { 400..402 } else { 400..408 } {
            let mut rng = Rng::new(seed);
            let array = Array::from_fn(&[5, 12], |_| rng.uniform(-1.0, 1.0));
            let mut tensors = vec![crate::data::tensor(&array, DType::F32, &subject.device)];
            for _ in 0..8 {
                let next = step(&mut rng, &tensors);
                tensors.push(next);
            }
            let last = tensors.last().unwrap();
            last.eval_checked().unwrap_or_else(|error| panic!("seed {seed} on {}: {error}", subject.name));
        }
    }
}

/// Without vector instructions, results differ by roundings only.
#[test]
fn vectors_change_roundings_only() {
    let scalar = Device::cpu_with(CpuOptions::new().threads(1).simd(SimdLevel::Scalar)).unwrap();
    for seed in 500..520 {
        let wanted = run(seed, 9, 31, &scalar, Mode::Lazy);
        assert_close(&format!("seed {seed}"), &run(seed, 9, 31, devices::cpu(), Mode::Lazy), &wanted);
    }
}
