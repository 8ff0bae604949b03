//! Code that users of candle and PyTorch write from habit compiles and runs, or the other library's name is a documentation alias of the right method.

use kiln::{DType, Device, Ellipsis, NewAxis, Result, Slice, Tensor, nn};

/// Lines from the cheat sheets of candle and PyTorch, in Rust.
#[test]
#[expect(clippy::too_many_lines, reason = "a list of lines")]
fn common_lines_compile_and_run() -> Result<()> {
    let device = Device::cpu()?;
    let d = &device;

    // Creation.
    let a = Tensor::new([[1f32, 2.], [3., 4.]], d)?;
    let b = Tensor::new([[1f32, 0.], [0., 1.]], d)?;
    let v = Tensor::new([1f32, 2., 3.], d)?;
    let ids = Tensor::new([0u32, 1], d)?;
    Tensor::new(1.5f32, d)?;
    Tensor::from_slice(&[1f32, 2.], 2, d)?;
    Tensor::from_vec(vec![1f32, 2., 3., 4.], (2, 2), d)?;
    Tensor::zeros((2, 3), DType::F32, d)?;
    Tensor::ones(3, DType::F16, d)?;
    Tensor::full((2, 2), 7.0, DType::F32, d)?;
    Tensor::arange(0., 5., 1., DType::F32, d)?;
    Tensor::linspace(0., 1., 5, DType::F32, d)?;
    Tensor::eye(3, DType::F32, d)?;
    Tensor::rand((2, 3), DType::F32, d)?;
    Tensor::randn((2, 3), DType::F32, d)?;
    a.zeros_like()?;
    a.ones_like()?;
    a.rand_like()?;
    a.randn_like()?;
    a.full_like(2.0)?;
    d.set_seed(42);

    // Properties and elements.
    assert_eq!(a.dims(), [2, 2]);
    let (rows, columns) = a.dims2()?;
    assert_eq!((rows, columns, a.rank(), a.elem_count(), a.dim(0)?, v.dims1()?), (2, 2, 2, 4, 2, 3));
    assert_eq!((a.dtype(), a.device().info().id.as_str()), (DType::F32, "cpu"));
    assert_eq!(a.to_vec2::<f32>()?, [[1., 2.], [3., 4.]]);
    assert_eq!(v.to_vec::<f32>()?, [1., 2., 3.]);
    assert_eq!(v.sum_all()?.to_scalar::<f32>()?, 6.);

    // Operators.
    (&a + &b)?;
    (&a - &b)?;
    ((&a * &b)? + &a)?;
    (&a / 2.0)?;
    (2.0 * &a)?;
    (1.0 - (&a + &b)?)?;
    (-&a)?;
    a.add(&b)?.sub(1)?.mul(&a)?.div(&a)?;
    a.matmul(&b)?;
    a.maximum(&b)?.minimum(3.0)?;
    a.clamp(0., 1.)?;
    a.pow(2.0)?;

    // Elementwise.
    a.abs()?.sqrt()?.exp()?.log()?;
    a.sin()?.cos()?.tanh()?;
    a.relu()?.gelu()?.gelu_erf()?.silu()?.sigmoid()?;
    a.square()?.recip()?.neg()?.floor()?.ceil()?.round()?;
    a.erf()?;

    // Comparisons and selection.
    let mask = a.gt(&b)?;
    a.eq(&b)?;
    a.ge(1)?;
    a.lt(2.0)?;
    mask.where_(&a, &b)?;
    a.masked_fill(&mask, f64::NEG_INFINITY)?;
    a.gather(1, &Tensor::new([[0u32], [1]], d)?)?;
    a.index_select(0, &ids)?;
    a.embedding(&ids)?;
    mask.nonzero()?;
    v.unique()?;

    // Shapes.
    a.reshape((4, 1))?;
    a.reshape((-1, 1))?;
    a.reshape(((), 2))?;
    a.reshape(-1)?;
    a.flatten()?;
    a.flatten_from(1)?;
    a.unsqueeze(0)?.squeeze(0)?;
    a.t()?;
    a.transpose(0, 1)?;
    a.permute((1, 0))?.contiguous()?;
    a.broadcast_to((3, 2, 2))?;
    a.repeat((2, 1))?;
    a.flip(0)?;
    a.roll(1, 0)?;
    a.pad(&[(0, 0), (1, 1)], 0.0)?;
    Tensor::cat(&[&a, &b], 0)?;
    Tensor::stack(&[&a, &b], -1)?;
    a.chunk(2, 0)?;
    a.split(&[1, 1], 0)?;
    a.narrow(0, 0, 1)?;
    a.tril(0)?.triu(0)?;

    // Indexing.
    a.i(0)?;
    a.i((.., 1))?;
    a.i((0..1, ..))?;
    a.i((.., -1))?;
    a.i((Ellipsis, 0))?;
    a.i((NewAxis, 0))?;
    a.i((.., Slice::new(..).step(-1)))?;
    a.i(&ids)?;

    // Reductions.
    a.sum(0)?;
    a.sum((0, 1))?;
    a.sum_keepdim(-1)?;
    a.mean(1)?;
    a.mean_all()?;
    a.max(1)?;
    a.min_keepdim(0)?;
    a.argmax(-1)?;
    a.argmin(0)?;
    a.var(0)?;
    a.std(0)?;
    a.norm(..)?;
    a.logsumexp(1)?;
    a.softmax(-1)?;
    a.log_softmax(1)?;

    // Dtypes and devices.
    a.to_dtype(DType::F16)?;
    a.to_device(d)?;
    let copy = a.clone();
    let _ = copy.detach();

    // Learning.
    let w = a.requires_grad()?;
    w.matmul(&b)?.sum_all()?.backward()?;
    assert!(w.grad().is_some());
    nn::cross_entropy(&a, &ids)?;
    nn::mse(&a, &b)?;
    a.dropout(0.5, 0)?;
    a.layer_norm(None, None, 1e-5)?;
    Tensor::einsum("ij,jk->ik", &[&a, &b])?;
    ids.one_hot(3, DType::F32)?;
    Ok(())
}

/// Every combination of tensors, references, results and numbers that candle accepts, and integers, for each operator.
#[test]
fn operators_take_tensors_results_and_numbers() -> Result<()> {
    let device = Device::cpu()?;
    let a = Tensor::new([6f32, 8.], &device)?;
    let b = Tensor::new([2f32, 4.], &device)?;
    let ids = Tensor::new([7u32, 9], &device)?;
    macro_rules! check {
        ($($sign:tt [$($expected:literal)+] [$($with_two:literal)+] [$($two_with:literal)+];)*) => {$(
            let expected = [$($expected as f32),+];
            for result in [
                &a $sign &b,
                &a $sign b.clone(),
                a.clone() $sign &b,
                a.clone() $sign b.clone(),
                Ok(a.clone()) $sign &b,
                Ok(a.clone()) $sign b.clone(),
                &a $sign Ok(b.clone()),
                a.clone() $sign Ok(&b),
            ] {
                assert_eq!(result?.to_vec::<f32>()?, expected, stringify!($sign));
            }
            for result in [&a $sign 2, &a $sign 2.0, &a $sign 2f32, &a $sign 2u8, a.clone() $sign 2.0] {
                assert_eq!(result?.to_vec::<f32>()?, [$($with_two as f32),+], stringify!($sign));
            }
            for result in [2 $sign &a, 2.0 $sign &a, 2 $sign a.clone(), 2.0 $sign a.clone()] {
                assert_eq!(result?.to_vec::<f32>()?, [$($two_with as f32),+], stringify!($sign));
            }
        )*};
    }
    check! {
        + [8.0 12.0] [8.0 10.0] [8.0 10.0];
        - [4.0 4.0] [4.0 6.0] [-4.0 -6.0];
        * [12.0 32.0] [12.0 16.0] [12.0 16.0];
        / [3.0 2.0] [3.0 4.0] [0.333_333_34 0.25];
    }
    assert_eq!((-&a)?.to_vec::<f32>()?, (-a.clone())?.to_vec::<f32>()?);
    // The type of a literal on the left is inferred, so method calls can follow.
    assert_eq!((1 - &a)?.abs()?.to_vec::<f32>()?, [5., 7.]);
    assert_eq!((1.0 - &a)?.abs()?.to_vec::<f32>()?, [5., 7.]);
    assert_eq!(((&a + 1)?.sum_all()? * 2)?.to_scalar::<f32>()?, 32.);
    assert_eq!((10 - &ids)?.to_vec::<u32>()?, [3, 1]);
    // The error is that of the op that failed.
    let wrong = Tensor::new([1f32, 2., 3.], &device)?;
    let error = (&a + (&b * &wrong)).unwrap_err().to_string();
    assert!(error.starts_with("mul expected"), "{error}");
    assert_eq!(((&b * &wrong) - &a).unwrap_err().to_string(), error);
    let error = (2.5 - &ids).unwrap_err().to_string();
    assert!(error.starts_with("sub expected"), "{error}");
    Ok(())
}

/// The documentation search finds Kiln's method by the name that another library uses.
#[test]
fn names_of_other_libraries_are_aliases() {
    let names = [
        "amax",
        "amin",
        "argwhere",
        "broadcast_as",
        "clip",
        "constant_pad",
        "expand",
        "flatten_all",
        "get",
        "index",
        "item",
        "mT",
        "mm",
        "movedim",
        "ndim",
        "numel",
        "numpy",
        "pad_with_zeros",
        "powf",
        "ravel",
        "reciprocal",
        "size",
        "sqr",
        "swapaxes",
        "tensor",
        "tile",
        "to_vec0",
        "to_vec1",
        "tolist",
        "view",
        "where_cond",
        "bmm",
        "broadcast_matmul",
        "concat",
        "to",
        "log_sum_exp",
    ];
    let mut sources = String::new();
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    folders.push(concat!(env!("CARGO_MANIFEST_DIR"), "/../kiln-ir/src/op").into());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    // Methods declared by a macro have their aliases in the macro's list.
    let missing: Vec<&str> = names.into_iter().filter(|name| !sources.contains(&format!("\"{name}\""))).collect();
    assert!(missing.is_empty(), "no alias: {missing:?}");
}

/// A first program needs only the prelude.
mod first_program {
    use kiln::prelude::*;

    struct Net {
        hidden: nn::Linear,
        output: nn::Linear,
    }

    impl Module for Net {
        fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
            self.output.forward(&self.hidden.forward(input, mode)?.relu()?, mode)
        }

        fn visit(&self, visitor: &mut nn::Visitor<'_>) {
            visitor.module("hidden", &self.hidden);
            visitor.module("output", &self.output);
        }
    }

    fn device() -> Result<Device> {
        let device = Device::cpu()?;
        device.set_seed(1);
        Ok(device)
    }

    #[test]
    fn a_network_learns_with_the_prelude_alone() -> Result<()> {
        let device = device()?;
        let net = Net { hidden: nn::Linear::new(1, 16, &device)?, output: nn::Linear::new(16, 1, &device)? };
        let x = Tensor::linspace(-1., 1., 32, DType::F32, &device)?.i((.., NewAxis))?;
        let y = ((&x * 2.0)? + 1.0)?;
        let mut optimizer = Optimizer::new(optim::Adam::new(), &net)?;
        for step in 0..300 {
            nn::mse(&net.forward(&x, &Mode::training(step))?, &y)?.backward()?;
            optimizer.step(0.02)?;
        }
        let found = no_grad(|| net.forward(&x, &Mode::inference()))?;
        let worst = (found - &y)?.abs()?.max(..)?.to_scalar::<f32>()?;
        assert!(worst < 0.1, "the network is {worst} off 2 x + 1");
        Ok(())
    }

    #[test]
    fn indices_gradients_and_errors_need_the_prelude_alone() -> Result<()> {
        let device = device()?;
        assert_eq!(device.info().kind, DeviceKind::Cpu);
        let x = Tensor::new([[1f32, 2., 3.], [4., 5., 6.]], &device)?;
        assert_eq!(x.shape(), &Shape::from((2, 3)));
        assert_eq!(x.i((Ellipsis, Slice::new(..).step(2)))?.to_vec2::<f32>()?, [[1., 3.], [4., 6.]]);
        let half = x.to_dtype(DType::F16)?.to_vec::<f16>()?;
        assert_eq!(half[5], f16::from_f32(6.));
        assert_eq!(first::<bf16>(&x.to_dtype(DType::BF16)?)?, bf16::from_f32(1.));
        let gradient = grad(|inputs| inputs[0].square()?.sum_all(), &[&x])?;
        assert_eq!(gradient[0].to_vec::<f32>()?, [2., 4., 6., 8., 10., 12.]);
        let error: Error = x.matmul(&x).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        Ok(())
    }

    fn first<T: Element>(tensor: &Tensor) -> Result<T> {
        Ok(tensor.to_vec::<T>()?[0])
    }
}
