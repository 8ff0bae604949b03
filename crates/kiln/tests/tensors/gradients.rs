//! The gradient of every op, against finite differences on the CPU device, and on other devices against the CPU device.

use crate::devices;
use kiln::autograd::{GradientCheck, check_gradients};
use kiln::ir::op::{self, Signature};
use kiln::nn::{AttentionOptions, PoolWindow};
use kiln::{DType, Device, Result, Tensor};

/// Returns irregular numbers of a range, none near its middle.
fn numbers(count: usize, (low, high): (f64, f64), salt: usize) -> Vec<f32> {
    let part = |number: usize| {
        let part = ((number + 1) as f64 * 0.618_034 + salt as f64 * 0.29) % 1.0;
        // Away from the middle, where many ops are not smooth.
        if part < 0.5 { part * 0.92 } else { 1.0 - (1.0 - part) * 0.92 }
    };
    (0..count).map(|number| (low + (high - low) * part(number)) as f32).collect()
}

fn input(shape: &[usize], range: (f64, f64), salt: usize, device: &Device) -> Tensor {
    Tensor::from_slice(&numbers(shape.iter().product(), range, salt), shape, device).unwrap()
}

type Function = dyn Fn(&[Tensor]) -> Result<Tensor>;

/// Checks the gradients of a function of `f32` for inputs of these shapes and ranges.
fn check(name: &str, inputs: &[(&[usize], (f64, f64))], function: &Function) {
    check_with(name, inputs, function, GradientCheck::new());
}

fn check_with(name: &str, inputs: &[(&[usize], (f64, f64))], function: &Function, options: GradientCheck) {
    let on = |device: &Device| -> Vec<Tensor> {
        let inputs = inputs.iter().enumerate();
        inputs.map(|(salt, &(shape, range))| input(shape, range, salt, device)).collect()
    };
    let own = on(devices::cpu());
    let report = check_gradients(function, &own.iter().collect::<Vec<_>>(), options);
    let report = report.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    assert!(report.passed(), "{name}:\n{report}");
    let elements: usize = own.iter().map(|input| input.elem_count().min(64)).sum();
    assert_eq!(report.checked(), elements, "{name}");
    let wanted = gradients(function, &own).unwrap();
    for subject in devices::all().iter().skip(1).filter(|subject| !subject.lacks_f16) {
        let found =
            gradients(function, &on(&subject.device)).unwrap_or_else(|e| panic!("{name} on {}: {e}", subject.name));
        for (number, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found.len(), wanted.len(), "{name}");
            let size = wanted.iter().fold(1.0f32, |most, x| most.max(x.abs()));
            let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-5 * size;
            let near = found.iter().zip(wanted).all(is_near);
            assert!(near, "{name} on {}, input {number}:\n{found:?}\n{wanted:?}", subject.name);
        }
    }
}

/// Returns the gradients of the sum of squares of a function.
fn gradients(function: &Function, inputs: &[Tensor]) -> Result<Vec<Vec<f32>>> {
    let leaves = inputs.iter().map(Tensor::requires_grad).collect::<Result<Vec<_>>>()?;
    let result = function(&leaves)?;
    if result.is_tracked() {
        result.square()?.sum_all()?.backward()?;
    }
    let gradient = |leaf: &Tensor| match leaf.grad() {
        Some(gradient) => {
            assert_eq!((gradient.shape(), gradient.dtype()), (leaf.shape(), leaf.dtype()));
            gradient.to_vec()
        }
        None => Ok(vec![0.0; leaf.elem_count()]),
    };
    leaves.iter().map(gradient).collect()
}

/// The part of an op's sampling interval in which finite differences are meaningful.
fn range(interval: op::Interval) -> (f64, f64) {
    let (low, high) = (interval.0.max(-2.0), interval.1.min(2.0));
    if low == 0.0 { (0.3, high) } else { (low, high) }
}

#[test]
fn every_op_of_the_table_has_its_gradient() {
    let mut checked = 0;
    for &op in op::all() {
        assert!(op.has_gradient(), "{} states none", op.name);
        let ranges: Vec<(f64, f64)> = match op.name {
            // Some beyond each border, none on it.
            "clamp" => vec![(-2.0, 2.0), (-1.3, -1.2), (0.7, 0.8)],
            // Away from its poles.
            "tan" => vec![(-1.0, 1.0)],
            _ => op.intervals().iter().map(|&interval| range(interval)).collect(),
        };
        match op.signature {
            Signature::Same { .. } if op.takes(kiln::ir::Class::Float) => {
                let shape: &[usize] = &[2, 3];
                let inputs: Vec<_> = ranges.iter().map(|&range| (shape, range)).collect();
                check(op.name, &inputs, &move |x| Tensor::apply(op, &x.iter().collect::<Vec<_>>()));
                // Broadcast: rows, columns, a scalar.
                let shapes: [&[usize]; 3] = [&[3, 1], &[2], &[]];
                let inputs: Vec<_> = shapes.into_iter().zip(ranges.iter().copied()).collect();
                check(op.name, &inputs, &move |x| Tensor::apply(op, &x.iter().collect::<Vec<_>>()));
                // The same tensor several times.
                let arity = op.arity();
                if arity > 1 && !matches!(op.name, "minimum" | "maximum" | "clamp") {
                    check(op.name, &[(shape, (0.4, 1.9))], &move |x| Tensor::apply(op, &vec![&x[0]; arity]));
                }
                checked += 1;
            }
            Signature::Select => {
                let choice = |x: &[Tensor]| {
                    let condition = x[0].gt(&x[1])?;
                    condition.where_(&x[0].square()?, &x[1])
                };
                check(op.name, &[(&[2, 3], (-1.0, 1.0)), (&[3], (-1.0, 1.0))], &choice);
                checked += 1;
            }
            _ => {}
        }
    }
    assert!(checked >= 30, "{checked}");
}

#[test]
fn reductions() {
    const R: (f64, f64) = (-2.0, 2.0);
    let whole: &[(&[usize], (f64, f64))] = &[(&[2, 3, 2], R)];
    check("sum", whole, &|x| x[0].sum_all());
    check("sum_axis", whole, &|x| x[0].sum(1));
    check("sum_keepdim", whole, &|x| x[0].sum_keepdim([0, 2]));
    check("mean", whole, &|x| x[0].mean_all());
    check("mean_axis", whole, &|x| x[0].mean(-1));
    check("max", whole, &|x| x[0].max_all());
    check("max_axis", whole, &|x| x[0].max(1));
    check("min_axis", whole, &|x| x[0].min(0));
    check("argmax", whole, &|x| x[0].argmax(0)?.to_dtype(DType::F32));
    // Among equal maxima, the first gets the gradient.
    let x = Tensor::from_slice(&[1.0f32, 3.0, 3.0, 2.0], 4, devices::cpu()).unwrap().requires_grad().unwrap();
    x.max_all().unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0, 0.0, 0.0]);
    // In 16 bits too, where recomputed values are rounded differently from stored ones.
    for subject in devices::all() {
        for dtype in [DType::F16, DType::BF16] {
            let x = input(&[3, 4], R, 0, &subject.device).to_dtype(dtype).unwrap().requires_grad().unwrap();
            let largest = x.exp().unwrap().max(1).unwrap();
            largest.eval().unwrap();
            largest.to_dtype(DType::F32).unwrap().sum_all().unwrap().backward().unwrap();
            let gradient = x.grad().unwrap().to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
            let hits = gradient.iter().filter(|slope| **slope != 0.0).count();
            assert_eq!(hits, 3, "{dtype} on {}: {gradient:?}", subject.name);
        }
    }
    // The derivative of a constant power is 0, also at 0.
    let zero = Tensor::from_slice(&[0.0f32], 1, devices::cpu()).unwrap().requires_grad().unwrap();
    zero.pow(0.0).unwrap().backward().unwrap();
    assert_eq!(zero.grad().unwrap().to_vec::<f32>().unwrap(), [0.0]);
}

#[test]
fn selections_and_statistics() {
    let range = (-2.0, 2.0);
    check("i", &[(&[3, 4, 5], range)], &|x| x[0].i((kiln::Slice::new(..).step(2), 1..3, -1)));
    check("i of tensors", &[(&[3, 4, 2], range)], &|x| {
        let index = |indices: [u32; 3]| Tensor::new(indices, x[0].device());
        x[0].i((&index([2, 0, 2])?, &index([3, 1, 3])?))?.exp()
    });
    check("repeat", &[(&[2, 3], range)], &|x| x[0].repeat((2, 1, 2)));
    check("roll", &[(&[2, 5], range)], &|x| x[0].roll(2, 1));
    check("pad", &[(&[2, 3], range)], &|x| x[0].pad(&[(1, 0), (0, 2)], 1.0));
    check("masked_fill", &[(&[2, 3], range)], &|x| x[0].masked_fill(&x[0].gt(0.5)?, 3.0));
    check("var", &[(&[3, 4], range)], &|x| x[0].var(1));
    check("std", &[(&[3, 4], range)], &|x| x[0].std((0, 1)));
    check("norm", &[(&[3, 4], range)], &|x| x[0].norm_keepdim(0));
    check("logsumexp", &[(&[3, 4], range)], &|x| x[0].logsumexp(-1));
}

#[test]
fn views_and_joins() {
    const R: (f64, f64) = (-2.0, 2.0);
    let whole: &[(&[usize], (f64, f64))] = &[(&[3, 4], R)];
    check("t", whole, &|x| x[0].t()?.mul(&x[0].reshape((4, 3))?));
    check("permute", &[(&[2, 3, 4], R)], &|x| x[0].permute([2, 0, 1])?.exp());
    check("reshape", whole, &|x| x[0].t()?.reshape((2, 6))?.exp());
    check("slice", whole, &|x| x[0].slice(1, 1..3)?.exp());
    check("slice of 2", whole, &|x| x[0].slice_step(1, .., 2)?.exp());
    check("slice of 3 with a rest", &[(&[2, 8], R)], &|x| x[0].slice_step(1, 1..8, 3)?.exp());
    check("slice backwards", whole, &|x| x[0].slice_step(1, .., -2)?.exp());
    check("flip", whole, &|x| x[0].flip(0)?.mul(&x[0]));
    check("broadcast_to", &[(&[3, 1], R)], &|x| x[0].broadcast_to((2, 3, 4))?.exp());
    check("select", whole, &|x| x[0].select(0, 1)?.exp());
    check("squeeze", &[(&[3, 1, 2], R)], &|x| x[0].squeeze(1)?.unsqueeze(0)?.exp());
    check("split", whole, &|x| {
        let parts = x[0].split(&[1, 3], 1)?;
        parts[0].mul(&parts[1])
    });
    check("tril", whole, &|x| x[0].tril(0)?.exp());
    check("cat", &[(&[2, 3], R), (&[1, 3], R), (&[2, 3], R)], &|x| Tensor::cat(x, 0)?.exp());
    check("cat of one twice", whole, &|x| Tensor::cat(&[&x[0], &x[0].exp()?, &x[0]], 1)?.sin());
    check("stack", &[(&[2, 3], R), (&[2, 3], R)], &|x| Tensor::stack(x, 1)?.exp());
    check("contiguous", whole, &|x| x[0].t()?.contiguous()?.exp());
}

#[test]
fn scans() {
    const R: (f64, f64) = (-1.5, 1.5);
    for shape in [&[6][..], &[3, 4], &[2, 3, 2]] {
        let inputs = &[(shape, R)];
        for axis in 0..shape.len() {
            check("cumsum", inputs, &move |x| x[0].cumsum(axis)?.exp());
            check("cumprod", inputs, &move |x| x[0].cumprod(axis));
            // Of gradients too.
            check("gradient of cumprod", inputs, &move |x| {
                let gradients = kiln::grad(|y| y[0].cumprod(axis)?.square()?.sum_all(), &[&x[0]])?;
                Ok(gradients[0].clone())
            });
        }
    }
    // No division of 0 by 0.
    for subject in devices::all() {
        let x = Tensor::new([2.0f32, 0.0, 3.0, 0.0, 5.0], &subject.device).unwrap().requires_grad().unwrap();
        x.cumprod(0).unwrap().sum_all().unwrap().backward().unwrap();
        let found = x.grad().unwrap().to_vec::<f32>().unwrap();
        assert_eq!(found, [1.0, 2.0 + 6.0, 0.0, 0.0, 0.0], "{}", subject.name);
    }
}

#[test]
fn sorts() {
    const R: (f64, f64) = (-2.0, 2.0);
    let whole: &[(&[usize], (f64, f64))] = &[(&[3, 5], R)];
    check("sort", whole, &|x| x[0].sort(1, false)?.0.mul(&x[0]));
    check("sort along 0", whole, &|x| x[0].sort(0, true)?.0.mul(&x[0]));
    check("topk", whole, &|x| x[0].topk(2, 1, true)?.0.exp());
    check("argsort", whole, &|x| x[0].argsort(1, false)?.to_dtype(DType::F32));
}

#[test]
fn pools() {
    const R: (f64, f64) = (-2.0, 2.0);
    let whole: &[(&[usize], (f64, f64))] = &[(&[1, 2, 5, 6], R)];
    let odd = || PoolWindow::new((3, 2)).stride((2, 1)).padding((1, 1));
    check("max_pool2d", whole, &|x| x[0].max_pool2d(2)?.exp());
    check("max_pool2d with padding", whole, &move |x| x[0].max_pool2d(odd())?.exp());
    check("avg_pool2d", whole, &|x| x[0].avg_pool2d(2)?.exp());
    check("avg_pool2d with padding", whole, &move |x| x[0].avg_pool2d(odd())?.exp());
    check("avg_pool2d inside", whole, &move |x| x[0].avg_pool2d(odd().without_counting_padding())?.exp());
    check("max_pool1d", &[(&[1, 2, 9], R)], &|x| x[0].max_pool1d(3)?.exp());
    check("avg_pool1d", &[(&[1, 2, 9], R)], &|x| x[0].avg_pool1d(PoolWindow::new(3).stride(2))?.exp());
    check("adaptive_avg_pool2d", whole, &|x| x[0].adaptive_avg_pool2d((2, 4))?.exp());
    // Among equal maxima, the first gets the gradient.
    for subject in devices::all() {
        let x = Tensor::ones([1, 1, 2, 4], DType::F32, &subject.device).unwrap().requires_grad().unwrap();
        x.max_pool2d(2).unwrap().sum_all().unwrap().backward().unwrap();
        let found = x.grad().unwrap().to_vec::<f32>().unwrap();
        assert_eq!(found, [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], "{}", subject.name);
    }
}

#[test]
fn products() {
    const R: (f64, f64) = (-1.0, 1.0);
    check("matmul", &[(&[3, 4], R), (&[4, 2], R)], &|x| x[0].matmul(&x[1]));
    check("matmul of batches", &[(&[2, 3, 4], R), (&[4, 2], R)], &|x| x[0].matmul(&x[1]));
    check("matmul of batches that broadcast", &[(&[2, 1, 2, 3], R), (&[3, 3, 2], R)], &|x| x[0].matmul(&x[1]));
    check("matmul of a vector", &[(&[4], R), (&[4, 2], R)], &|x| x[0].matmul(&x[1]));
    check("matmul with itself", &[(&[3, 3], R)], &|x| x[0].matmul(&x[0].t()?)?.matmul(&x[0]));
    check("einsum", &[(&[2, 3, 4], R), (&[4, 3, 2], R)], &|x| Tensor::einsum("bik,kjb->bij", x));
    let linear: &[(&[usize], (f64, f64))] = &[(&[2, 3], R), (&[3, 4], R), (&[4], R), (&[2, 4], R)];
    check("fused_gelu_linear", &linear[..3], &|x| x[0].fused_gelu_linear(&x[1], &x[2]));
    check("fused_linear_residual_relu", linear, &|x| x[0].fused_linear_residual_relu(&x[1], &x[2], &x[3]));
    check("fused_affine", &[(&[2, 3], R), (&[3], R), (&[2, 1], R)], &|x| x[0].fused_affine(&x[1], &x[2]));
}

#[test]
fn rows() {
    const R: (f64, f64) = (-2.0, 2.0);
    let rows: &[(&[usize], (f64, f64))] = &[(&[3, 5], R), (&[5], (0.5, 1.5)), (&[5], R)];
    check("softmax", &rows[..1], &|x| x[0].softmax(1));
    check("softmax of columns", &rows[..1], &|x| x[0].softmax(0));
    check("log_softmax", &rows[..1], &|x| x[0].log_softmax(1));
    check("layer_norm", rows, &|x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5));
    check("layer_norm without weights", &rows[..1], &|x| x[0].layer_norm(None, None, 1e-2));
    check("rms_norm", &rows[..2], &|x| x[0].rms_norm(Some(&x[1]), 1e-5));
    check("rms_norm without weights", &rows[..1], &|x| x[0].rms_norm(None, 1e-2));
    let channels: &[(&[usize], (f64, f64))] = &[(&[2, 3, 2], R), (&[3], R), (&[3], (0.5, 1.5)), (&[3], R), (&[3], R)];
    check("batch_norm", channels, &|x| x[0].batch_norm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), 1e-5));
    check("rope", &[(&[3, 4], R)], &|x| x[0].rope(2, 100.0));
    check("dropout", &[(&[4, 4], R)], &|x| x[0].exp()?.dropout(0.5, 7));
}

#[test]
fn attention() {
    const R: (f64, f64) = (-1.0, 1.0);
    let shapes: &[(&[usize], (f64, f64))] = &[(&[1, 2, 3, 4], R), (&[1, 2, 5, 4], R), (&[1, 2, 5, 2], R)];
    check("attention", shapes, &|x| Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions::new()));
    check("causal attention", shapes, &|x| {
        Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions::new().causal().scale(0.7))
    });
    check("masked attention", shapes, &|x| {
        // All keys of the second query are masked.
        let mask: Vec<u8> = (0..15).map(|place| u8::from(place / 5 != 1 && place % 3 != 1)).collect();
        let mask = Tensor::from_slice(&mask, (3, 5), x[0].device())?;
        Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions::new().causal().mask(&mask))
    });
}

#[test]
fn indices() {
    const R: (f64, f64) = (-2.0, 2.0);
    let index = |numbers: &[u32], shape: &[usize], like: &Tensor| Tensor::from_slice(numbers, shape, like.device());
    check("gather", &[(&[3, 2], R)], &move |x| x[0].gather(0, &index(&[2, 0, 2, 1, 2, 2], &[3, 2], &x[0])?)?.exp());
    check("index_select", &[(&[3, 4], R)], &move |x| x[0].index_select(1, &index(&[3, 0, 3], &[3], &x[0])?)?.exp());
    check("embedding", &[(&[4, 2], R)], &move |x| x[0].embedding(&index(&[1, 3, 1, 0], &[2, 2], &x[0])?)?.exp());
    // Index 1 occurs twice: only the last element written there has a gradient.
    check("scatter", &[(&[4, 2], R), (&[3, 2], R)], &move |x| {
        x[0].scatter(0, &index(&[1, 0, 1, 2, 3, 2], &[3, 2], &x[0])?, &x[1])?.exp()
    });
    check("scatter_add", &[(&[4, 2], R), (&[3, 2], R)], &move |x| {
        x[0].scatter_add(0, &index(&[1, 0, 1, 2, 3, 2], &[3, 2], &x[0])?, &x[1])?.exp()
    });
}

#[test]
fn nothing_has_gradients_of_its_shape() {
    let empty: &[(&[usize], (f64, f64))] = &[(&[0, 3], (-1.0, 1.0)), (&[3, 2], (-1.0, 1.0))];
    check("sum of nothing", &empty[..1], &|x| x[0].exp()?.sum_all());
    check("matmul of nothing", empty, &|x| x[0].matmul(&x[1]));
    check("slice of nothing", &empty[1..], &|x| x[0].slice(0, 1..1)?.exp());
    check("cat with nothing", &[empty[0], (&[2, 3], (-1.0, 1.0))], &|x| Tensor::cat(x, 0)?.exp());
    check("softmax of nothing", &empty[..1], &|x| x[0].softmax(1));
    check("inner length 0", &[(&[2, 0], (-1.0, 1.0)), (&[0, 3], (-1.0, 1.0))], &|x| x[0].matmul(&x[1]));
}

/// In 16 bits too, within their precision.
#[test]
fn gradients_of_16_bits() {
    for subject in devices::all() {
        for dtype in [DType::F16, DType::BF16] {
            let wide: Vec<Tensor> = [(2, 3), (3, 4)]
                .into_iter()
                .enumerate()
                .map(|(salt, (rows, columns))| input(&[rows, columns], (-1.0, 1.0), salt, &subject.device))
                .collect();
            let narrow: Vec<Tensor> = wide.iter().map(|x| x.to_dtype(dtype).unwrap()).collect();
            let rounded: Vec<Tensor> = narrow.iter().map(|x| x.to_dtype(DType::F32).unwrap()).collect();
            let function = |x: &[Tensor]| x[0].matmul(&x[1])?.gelu()?.softmax(1);
            let gradient = |inputs: &[Tensor]| -> Vec<Vec<f32>> {
                let leaves: Vec<Tensor> = inputs.iter().map(|x| x.requires_grad().unwrap()).collect();
                let result = function(&leaves).unwrap().to_dtype(DType::F32).unwrap();
                result.square().unwrap().sum_all().unwrap().backward().unwrap();
                leaves.iter().map(|leaf| leaf.grad().unwrap().to_dtype(DType::F32).unwrap().to_vec().unwrap()).collect()
            };
            let step = if dtype == DType::F16 { 2e-3 } else { 2e-2 };
            for (found, wanted) in gradient(&narrow).iter().zip(gradient(&rounded)) {
                let near = found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() <= step);
                assert!(near, "{dtype} on {}:\n{found:?}\n{wanted:?}", subject.name);
            }
        }
    }
}
