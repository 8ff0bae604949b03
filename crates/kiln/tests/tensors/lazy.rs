//! Lazy evaluation: when ops run, how often they are planned, what is stored, and what reports say.

use kiln::nn::Activation;
use kiln::{DType, Device, ErrorKind, Status, Tensor};

fn cpu() -> Device {
    Device::cpu_with(crate::devices::cpu_options()).unwrap()
}

fn numbers(shape: (usize, usize), device: &Device) -> Tensor {
    let elements: Vec<f32> = (0..shape.0 * shape.1).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&elements, shape, device).unwrap()
}

#[test]
fn ops_run_when_elements_are_read() {
    let device = cpu();
    let x = numbers((4, 4), &device);
    let y = x.exp().unwrap().neg().unwrap();
    assert_eq!((x.status(), y.status()), (Status::Ready, Status::Planned));
    y.to_vec::<f32>().unwrap();
    assert_eq!(y.status(), Status::Ready);
    assert_eq!(y.explain().unwrap().kernels(), 0);
}

/// Each named form is one kernel.
#[test]
fn named_fused_forms_are_one_kernel() {
    let device = cpu();
    let (a, b) = (numbers((8, 8), &device), numbers((8, 8), &device));
    let bias = numbers((1, 8), &device).reshape(8).unwrap();
    let forms = [
        ("fused_add_relu", a.fused_add_relu(&b)),
        ("fused_mul_relu", a.fused_mul_relu(&b)),
        ("fused_affine of numbers", a.fused_affine(2.0, 1.0)),
        ("fused_affine of tensors", a.fused_affine(&b, &bias)),
        ("matmul_with_activation none", a.matmul_with_activation(&b, Activation::None)),
        ("matmul_with_activation relu", a.matmul_with_activation(&b, Activation::Relu)),
        ("matmul_with_activation gelu", a.matmul_with_activation(&b, Activation::Gelu)),
        ("fused_linear_residual_relu", a.fused_linear_residual_relu(&b, &bias, &a)),
        ("fused_gelu_linear", a.fused_gelu_linear(&b, &bias)),
        ("softmax", a.softmax(1)),
        ("layer_norm", a.layer_norm(Some(&bias), Some(&bias), 1e-5)),
        ("chain into a reduction", a.mul(&b).unwrap().add_scalar(1.0).unwrap().relu().unwrap().sum(1)),
        ("mean", a.square().unwrap().mean(0)),
    ];
    for (name, form) in forms {
        let explanation = form.unwrap().explain().unwrap();
        assert_eq!(explanation.kernels(), 1, "{name}: {explanation}");
    }
}

/// A repeated computation with new data and new numbers does no planning.
#[test]
fn a_computation_is_planned_once_per_set_of_shapes() {
    let device = cpu();
    let step = |rows: usize, scale: f64| {
        let x = numbers((rows, 8), &device);
        let y = x.mul_scalar(scale).unwrap().gelu().unwrap().sum(1).unwrap();
        let explanation = y.explain().unwrap();
        y.eval().unwrap();
        explanation
    };
    let first = step(4, 1.0);
    assert!(!first.was_planned() && first.to_string().contains("planned now"), "{first}");
    for scale in 0..50 {
        assert!(step(4, f64::from(scale)).was_planned());
    }
    assert_eq!(device.plan_cache_stats().misses, 1);
    let other = step(5, 1.0);
    assert!(!other.was_planned() && other.to_string().contains("shape variant 2"), "{other}");
    assert_eq!(device.plan_cache_stats().misses, 2);
    // One plan per length, but no more than the cache holds.
    for rows in 1..40 {
        step(rows, 1.0);
    }
    assert_eq!(device.plan_cache_stats().misses, 39);
}

/// The offset of a view is not part of a plan: a loop over the rows of a table is planned once.
#[test]
fn parts_of_a_tensor_share_a_plan() {
    let device = cpu();
    let table = numbers((64, 5), &device);
    let reversed = table.flip(0).unwrap();
    for row in 0..60 {
        let part = table.slice(0, row..row + 4).unwrap().mul_scalar(2.0).unwrap();
        let first = table.select(0, row).unwrap().to_vec::<f32>().unwrap()[0];
        assert_eq!(part.to_vec::<f32>().unwrap()[0], 2.0 * first);
        let part = reversed.slice(0, row..row + 4).unwrap().mul_scalar(2.0).unwrap();
        let first = table.select(0, 63 - row).unwrap().to_vec::<f32>().unwrap()[0];
        assert_eq!(part.to_vec::<f32>().unwrap()[0], 2.0 * first);
    }
    assert_eq!(device.plan_cache_stats().misses, 2);
}

/// Plans of one device are not seen by another.
#[test]
fn plans_belong_to_a_device() {
    let (one, other) = (cpu(), cpu());
    numbers((2, 2), &one).exp().unwrap().eval().unwrap();
    assert_eq!((one.plan_cache_stats().misses, other.plan_cache_stats().misses), (1, 0));
}

/// A long chain runs in batches, and neither overflows a stack nor loses an op.
#[test]
fn a_chain_of_ten_thousand_ops_runs_in_batches() {
    let device = cpu();
    let one = Tensor::ones(16, DType::F32, &device).unwrap();
    let mut x = Tensor::zeros(16, DType::F32, &device).unwrap();
    for _ in 0..10_000 {
        x = x.add(&one).unwrap();
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [10_000.0; 16]);
    assert!(device.plan_cache_stats().misses < 50, "{}", device.plan_cache_stats());
}

/// A tensor that is added to itself at each step has few nodes, however often each is used.
#[test]
fn shared_nodes_are_counted_once() {
    let device = cpu();
    let mut x = Tensor::ones(4, DType::F32, &device).unwrap();
    for _ in 0..60 {
        x = x.add(&x).unwrap().mul_scalar(0.5).unwrap();
    }
    assert_eq!(x.status(), Status::Planned);
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0; 4]);
}

/// Results that the plan stores anyway are kept if a handle to them exists.
#[test]
fn a_held_reduction_is_not_computed_again() {
    let device = cpu();
    let x = numbers((64, 64), &device);
    let sums = x.exp().unwrap().sum_keepdim([1]).unwrap();
    let shares = x.exp().unwrap().div(&sums).unwrap();
    shares.eval().unwrap();
    assert_eq!(sums.status(), Status::Ready);
    let dropped = x.exp().unwrap().div(&x.exp().unwrap().sum_keepdim([1]).unwrap()).unwrap();
    assert_eq!(dropped.explain().unwrap().kernels(), 2);
    dropped.eval().unwrap();
    assert_eq!(dropped.to_vec::<f32>().unwrap(), shares.to_vec::<f32>().unwrap());
}

/// A held result that is computed a second time is then stored: at most one computation is wasted.
#[test]
fn a_held_chain_is_computed_twice_at_most() {
    let device = cpu();
    let weights = numbers((8, 8), &device).to_dtype(DType::F16).unwrap();
    let kernels = |_| {
        let result = weights.mul_scalar(2.0).unwrap();
        let explanation = result.explain().unwrap();
        result.eval().unwrap();
        (explanation.kernels(), explanation.bytes_moved())
    };
    let runs: Vec<(usize, u64)> = (0..4).map(kernels).collect();
    // Read 256 bytes and write 128; write 128 more, and read them; only read and write 128.
    assert_eq!(runs, [(1, 384), (2, 640), (1, 256), (1, 256)]);
    assert_eq!(weights.status(), Status::Ready);
}

/// A lookup in a table reads the rows that are selected, not the table.
#[test]
fn a_lookup_moves_the_selected_rows() {
    let device = cpu();
    let table = numbers((1000, 64), &device);
    let words = Tensor::from_slice(&[5u32, 999, 0, 5, 7, 8], (2, 3), &device).unwrap();
    let explanation = table.embedding(&words).unwrap().explain().unwrap();
    // 6 rows of 64 numbers are read and written, 6 indices are read.
    assert_eq!((explanation.kernels(), explanation.bytes_moved()), (1, 2 * 6 * 64 * 4 + 6 * 4), "{explanation}");
    assert_eq!(explanation.plan().unwrap().unfused_bytes, 2 * 6 * 64 * 4 + 6 * 4);
}

#[test]
fn several_tensors_share_what_they_have_in_common() {
    let device = cpu();
    let x = numbers((8, 8), &device);
    let sum = x.sum_all().unwrap();
    let (y, z) = (x.sub(&sum).unwrap(), x.add(&sum).unwrap());
    Tensor::eval_all(&[&y, &z]).unwrap();
    assert!([&y, &z].iter().all(|tensor| tensor.status() == Status::Ready));
    let error = Tensor::eval_all(&[&y, &numbers((1, 1), &cpu())]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Many tensors are computed in parts, equal parts are planned once, and small results share memory blocks.
#[test]
fn many_small_tensors_take_few_plans_and_few_blocks() {
    let device = cpu();
    let b = numbers((4, 4), &device);
    let sources: Vec<Tensor> = (0..2048).map(|i| Tensor::full((4, 4), i, DType::F32, &device).unwrap()).collect();
    Tensor::eval_all(&sources.iter().collect::<Vec<_>>()).unwrap();
    let (plans, blocks) = (device.plan_cache_stats(), device.buffer_pool_stats().allocation_count);
    let sums: Vec<Tensor> = sources.iter().map(|a| a.add(&b).unwrap()).collect();
    Tensor::eval_all(&sums.iter().collect::<Vec<_>>()).unwrap();
    assert!(sums.iter().all(|sum| sum.status() == Status::Ready));
    let now = device.plan_cache_stats();
    assert_eq!((now.misses - plans.misses, now.hits - plans.hits), (1, 7));
    assert_eq!(device.buffer_pool_stats().allocation_count - blocks, 8, "2048 results of 64 bytes, 16 KiB to a block");
    let b = b.to_vec::<f32>().unwrap();
    for (i, sum) in sums.iter().enumerate() {
        let expected: Vec<f32> = b.iter().map(|b| i as f32 + b).collect();
        assert_eq!(sum.to_vec::<f32>().unwrap(), expected, "{i}");
    }
    // A result that is kept holds only its own block.
    let kept = sums[1000].clone();
    drop(sums);
    let plain = numbers((4, 4), &device).add(&kept).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(plain, b.iter().map(|b| 1000.0 + b + b).collect::<Vec<_>>());
}

/// Nodes shared by several parts are stored with the first part.
#[test]
fn parts_of_many_tensors_share_what_they_have_in_common() {
    let device = cpu();
    let x = numbers((4, 4), &device);
    let shared = x.exp().unwrap();
    let results: Vec<Tensor> = (0..600).map(|i| shared.mul_scalar(i).unwrap().add(&x).unwrap()).collect();
    Tensor::eval_all(&results.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(shared.status(), Status::Ready);
    for (i, result) in results.iter().enumerate() {
        let alone = x.exp().unwrap().mul_scalar(i as f64).unwrap().add(&x).unwrap();
        assert_eq!(result.to_vec::<f32>().unwrap(), alone.to_vec::<f32>().unwrap(), "{i}");
    }
}

/// Intermediates share memory, and the plan says how much it takes.
#[test]
fn peak_bytes_are_no_worse_than_the_live_buffers() {
    let device = cpu();
    let mut x = numbers((64, 64), &device);
    for _ in 0..10 {
        x = x.softmax(1).unwrap();
    }
    let explanation = x.explain().unwrap();
    let plan = explanation.plan().unwrap();
    assert_eq!(explanation.kernels(), 10);
    assert_eq!(plan.unshared_bytes(), 10 * 64 * 64 * 4);
    // Two intermediates at a time, or one and the output.
    assert_eq!((plan.peak_bytes(), plan.live_bytes()), (3 * 64 * 64 * 4, 2 * 64 * 64 * 4));
}

#[test]
fn the_nan_check_names_the_op_that_made_a_nan() {
    let device = cpu();
    device.set_nan_check(true);
    let x = Tensor::from_slice(&[1.0f32, 0.0, 4.0], 3, &device).unwrap();
    let fine = x.add_scalar(1.0).unwrap().sqrt().unwrap();
    assert_eq!(fine.to_vec::<f32>().unwrap()[1], 1.0);
    let error = x.mul_scalar(2.0).unwrap().log().unwrap().exp().unwrap().sum_all().unwrap().eval().unwrap_err();
    let message = error.to_string();
    assert!(message.contains("`log`") && message.contains("-inf at element 1"), "{message}");
    // An infinity in the caller's constants is intentional.
    let masked = x.gt(0.5).unwrap().where_(&x, f64::NEG_INFINITY).unwrap();
    assert_eq!(masked.to_vec::<f32>().unwrap()[1], f32::NEG_INFINITY);
    device.set_nan_check(false);
    assert_eq!(x.log().unwrap().to_vec::<f32>().unwrap()[1], f32::NEG_INFINITY);
}

/// A failed run leaves the tensor planned, and says why each time.
#[test]
fn an_index_out_of_range_is_an_error_of_every_read() {
    let device = cpu();
    let x = numbers((2, 2), &device);
    let index = Tensor::from_slice(&[0u32, 7], 2, &device).unwrap();
    let picked = x.index_select(0, &index).unwrap();
    for _ in 0..2 {
        let error = picked.to_vec::<f32>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains('7'), "{error}");
        assert_eq!(picked.status(), Status::Planned);
    }
}

#[test]
fn many_threads_evaluate_one_graph() {
    let device = cpu();
    let x = numbers((32, 32), &device);
    let y = x.exp().unwrap().matmul(&x).unwrap().gelu().unwrap();
    let expected = y.add_scalar(0.0).unwrap().to_vec::<f32>().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(y.to_vec::<f32>().unwrap(), expected);
                let own = x.exp().unwrap().matmul(&x).unwrap().gelu().unwrap();
                assert_eq!(own.to_vec::<f32>().unwrap(), expected);
            });
        }
    });
}

/// Graphs with common nodes are collected on several threads at once, each in its own order.
#[test]
fn many_threads_evaluate_graphs_with_common_nodes() {
    let device = cpu();
    let x = numbers((8, 8), &device);
    for _ in 0..50 {
        let chain: Vec<Tensor> = (0..20)
            .scan(x.clone(), |last, _| {
                *last = last.mul_scalar(0.5).unwrap().add(&x).unwrap();
                Some(last.clone())
            })
            .collect();
        let expected: Vec<f32> = (0..20).fold(x.to_vec::<f32>().unwrap(), |last, _| {
            last.iter().zip(x.to_vec::<f32>().unwrap()).map(|(last, x)| last * 0.5 + x).collect()
        });
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (chain, expected) = (&chain, &expected);
                scope.spawn(move || {
                    let mixed = chain[3 * thread].sub(&chain[19 - thread]).unwrap().add(&chain[19 - thread]).unwrap();
                    mixed.eval().unwrap();
                    assert_eq!(&chain[19].to_vec::<f32>().unwrap(), expected);
                });
            }
        });
    }
}

/// Reads return stored values: 16-bit elements are rounded before they are widened.
#[test]
fn reading_does_not_depend_on_what_ran_before() {
    let device = cpu();
    let tenth = || Tensor::full(1, 0.1, DType::F16, &device).unwrap();
    let large = || Tensor::full(1, 300.0, DType::F16, &device).unwrap().square().unwrap();
    for make in [&tenth as &dyn Fn() -> Tensor, &large] {
        let (one, other) = (make(), make());
        other.eval().unwrap();
        assert_eq!(one.to_vec::<f32>().unwrap(), other.to_vec::<f32>().unwrap());
    }
    assert_eq!(large().to_vec::<f32>().unwrap(), [f32::INFINITY]);
    device.set_seed(3);
    let random = Tensor::rand(1 << 16, DType::F16, &device).unwrap();
    assert!(random.to_vec::<f32>().unwrap().iter().all(|x| (0.0..1.0).contains(x)));
}

/// Views without elements have no offset, whatever was sliced before.
#[test]
fn empty_views_can_be_read_and_used() {
    let device = cpu();
    let x = numbers((4, 4), &device);
    let empty = x.slice(0, 3..).unwrap().slice(1, 4..).unwrap();
    assert_eq!(empty.shape()[..], [1, 0]);
    assert!(empty.to_vec::<f32>().unwrap().is_empty());
    let other = x.slice(1, 4..).unwrap().slice(0, 3..).unwrap();
    assert!(other.to_vec::<f32>().unwrap().is_empty());
    assert_eq!(empty.matmul(&other.t().unwrap()).unwrap().to_vec::<f32>().unwrap(), [0.0]);
    assert_eq!(x.slice_step(0, 3.., isize::MAX).unwrap().shape()[..], [1, 4]);
    assert_eq!(x.slice_step(0, ..1, isize::MIN).unwrap().shape()[..], [1, 4]);
    let ones = Tensor::tri(2, 2, i32::MAX, DType::U8, &device).unwrap();
    assert_eq!(ones.to_vec::<u8>().unwrap(), [1; 4]);
    assert_eq!(x.triu(i32::MIN).unwrap().to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    let bytes = Tensor::from_slice(&[200u8, 1, 2, 200], (2, 2), &device).unwrap();
    assert_eq!(Tensor::einsum("ii->i", &[&bytes]).unwrap().to_vec::<u8>().unwrap(), [200, 200]);
}

/// Discontinuous ops (comparison, floor, reciprocal near 0) cause no false alarm where fused kernels round less often.
#[test]
fn checked_results_of_16_bits_agree() {
    let device = cpu();
    for dtype in [DType::F16, DType::BF16] {
        let x = numbers((8, 8), &device).to_dtype(dtype).unwrap();
        let y = x.mul_scalar(1.001).unwrap();
        let graphs = [
            y.sub(&x).unwrap().add_scalar(0.001).unwrap().recip(),
            y.mul_scalar(1.0 / 1.001).unwrap().eq(&x),
            y.mul_scalar(64.0).unwrap().floor(),
            y.mul_scalar(100.0).unwrap().to_dtype(DType::I32),
            y.mul_scalar(9.0).unwrap().exp(),
            y.matmul(&x).unwrap().mul_scalar(3.0).unwrap().gelu(),
            y.exp().unwrap().sum_keepdim([1]).unwrap().log().unwrap().add(&x),
            y.softmax(1).unwrap().matmul(&x).unwrap().layer_norm(None, None, 1e-3),
        ];
        for (number, graph) in graphs.into_iter().enumerate() {
            let report = graph.unwrap().eval_checked();
            assert!(report.is_ok(), "{dtype} {number}: {}", report.unwrap_err());
        }
    }
}
