//! The Kiln column of `docs/from-candle-and-pytorch.md`: every line compiles and runs here, and the page has no other.

#![expect(unused_must_use, reason = "lines of a table, whose results are not used")]

use kiln::prelude::*;

#[test]
fn create() -> Result<()> {
    let device = Device::cpu()?;
    let data = vec![0f32; 6];
    let x = Tensor::new([[1f32, 2.], [3., 4.]], &device)?;
    Tensor::from_vec(data, (2, 3), &device)?;
    Tensor::zeros((2, 3), DType::F32, &device)?;
    Tensor::full((2, 2), 7.0, DType::F32, &device)?;
    Tensor::arange(0., 5., 1., DType::F32, &device)?;
    Tensor::linspace(0., 1., 5, DType::F32, &device)?;
    Tensor::eye(3, DType::F32, &device)?;
    Tensor::rand((2, 3), DType::F32, &device)?;
    Tensor::randn((2, 3), DType::F32, &device)?;
    x.zeros_like()?;
    device.set_seed(42);
    assert_eq!((x.dims(), x.elem_count()), (&[2, 2][..], 4));
    Ok(())
}

#[test]
fn index() -> Result<()> {
    let device = Device::cpu()?;
    let (x, y) = matrices(&device)?;
    let ids = Tensor::new([0u32, 1], &device)?;
    let index = Tensor::new([[0u32], [1]], &device)?;
    let mask = x.gt(&y)?;
    x.i(0)?;
    x.i((.., 1))?;
    assert_eq!(x.i((.., -1))?.to_vec::<f32>()?, [2., 4.]);
    x.i((0..1, ..))?;
    assert_eq!(x.i((Ellipsis, Slice::new(..).step(2)))?.dims(), [2, 1]);
    assert_eq!(x.i((.., NewAxis))?.dims(), [2, 1, 2]);
    assert_eq!(x.i(&ids)?.to_vec::<f32>()?, x.index_select(0, &ids)?.to_vec::<f32>()?);
    assert_eq!(x.gather(1, &index)?.to_vec::<f32>()?, [1., 4.]);
    x.embedding(&ids)?;
    assert_eq!(mask.dtype(), DType::U8);
    mask.where_(&x, &y)?;
    assert_eq!(x.masked_fill(&mask, 0.0)?.to_vec::<f32>()?, [1., 0., 0., 0.]);
    x.narrow(0, 0, 1)?;
    Ok(())
}

#[test]
fn compute() -> Result<()> {
    let device = Device::cpu()?;
    let (x, y) = matrices(&device)?;
    let v = Tensor::new([1f32, 2.], &device)?;
    (&x + &y)?;
    assert_eq!((&x + &v)?.to_vec::<f32>()?, [2., 4., 4., 6.]);
    assert_eq!(((2.0 * &x)? - 1.0)?.to_vec::<f32>()?, [1., 3., 5., 7.]);
    x.pow(2.0)?;
    x.gt(&y)?;
    x.maximum(&y)?;
    x.clamp(0.0, 1.0)?;
    x.exp()?.log()?;
    x.relu()?;
    // GELU at 1: with the error function, and its approximation.
    assert!((x.gelu_erf()?.to_vec::<f32>()?[0] - 0.841_345).abs() < 1e-5);
    assert!((x.gelu()?.to_vec::<f32>()?[0] - 0.841_192).abs() < 1e-5);
    x.softmax(-1)?;
    Ok(())
}

#[test]
fn reduce() -> Result<()> {
    let device = Device::cpu()?;
    let (x, _) = matrices(&device)?;
    x.sum_all()?;
    x.sum(0)?;
    x.sum((0, 1))?;
    x.mean_keepdim(-1)?;
    assert_eq!(x.max(1)?.to_vec::<f32>()?, [2., 4.]);
    assert_eq!(x.argmax(-1)?.dtype(), DType::U32);
    assert_eq!(x.var(0)?.to_vec::<f32>()?, [2., 2.]);
    x.norm(..)?;
    x.logsumexp(1)?;
    x.cumsum(0)?;
    x.topk(1, -1, true)?;
    Ok(())
}

#[test]
fn join_and_reshape() -> Result<()> {
    let device = Device::cpu()?;
    let (x, y) = matrices(&device)?;
    Tensor::cat(&[&x, &y], 0)?;
    Tensor::stack(&[&x, &y], -1)?;
    x.chunk(2, 0)?;
    x.reshape((-1, 1))?;
    x.flatten()?;
    x.unsqueeze(0)?.squeeze(0)?;
    x.t()?;
    x.permute((1, 0))?;
    x.broadcast_to((3, 2, 2))?;
    x.repeat((2, 1))?;
    assert_eq!(x.pad(&[(0, 0), (1, 1)], 0.0)?.dims(), [2, 4]);
    Ok(())
}

#[test]
fn linear_algebra() -> Result<()> {
    let device = Device::cpu()?;
    let (x, y) = matrices(&device)?;
    let v = Tensor::new([1f32, 2.], &device)?;
    x.matmul(&y)?;
    assert_eq!(x.matmul(&v)?.to_vec::<f32>()?, [5., 11.]);
    Tensor::einsum("ij,jk->ik", &[&x, &y])?;
    x.tril(0)?;
    let (weight, bias) = (v.ones_like()?, v.zeros_like()?);
    x.layer_norm(Some(&weight), Some(&bias), 1e-5)?;
    let (q, k, v, options) = (x.clone(), y.clone(), x, nn::AttentionOptions::new());
    Tensor::attention(&q, &k, &v, options)?;
    Ok(())
}

#[test]
fn train() -> Result<()> {
    let device = Device::cpu()?;
    let (x, y) = matrices(&device)?;
    let (ids, seed) = (Tensor::new([0u32, 1], &device)?, 0);
    let w = x.requires_grad()?;
    let loss = w.matmul(&y)?.sum_all()?;
    loss.backward()?;
    assert!(w.grad().is_some());

    let first = nn::Linear::new(2, 3, &device)?;
    let last = nn::Linear::new(3, 2, &device)?;
    let net = nn::Sequential::new().with(first).with(nn::Activation::Relu).with(last);
    no_grad(|| net.forward(&x, &Mode::inference()))?;
    let mut optimizer = Optimizer::new(optim::Adam::new().decoupled_weight_decay(0.01), &net)?;
    let logits = net.forward(&x, &Mode::training(seed))?;
    nn::cross_entropy(&logits, &ids)?.backward()?;
    optimizer.step(0.001)?;
    assert!(net.parameters()[0].1.grad().is_none(), "a step clears the gradients");
    nn::mse(&x, &y)?;
    Optimizer::new(optim::Sgd::new(), &net)?.clip_norm(1.0);
    x.dropout(0.5, seed)?;
    Ok(())
}

#[test]
fn load_and_save() -> Result<()> {
    let device = Device::cpu()?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    let net = nn::Sequential::new().with(nn::Linear::new(2, 3, &device)?);
    let layer = nn::Linear::new(2, 3, &device)?;
    nn::save(&net, &path)?;
    nn::load(&net, &path)?;
    let weights = nn::Weights::load(&path, &device)?;
    weights.get((3, 2), "0.weight")?;
    weights.prefix("0").load_into(&layer)?;
    Ok(())
}

#[test]
fn devices_and_dtypes() -> Result<()> {
    let device = Device::cpu()?;
    let (x, _) = matrices(&device)?;
    Device::best()?;
    let _compiled_only = || -> Result<()> {
        Device::gpu(0)?;
        Ok(())
    };
    x.to_device(&device)?;
    x.to_dtype(DType::F16)?;
    assert_eq!(x.sum_all()?.to_scalar::<f32>()?, 10.);
    assert_eq!(x.to_vec2::<f32>()?, [[1., 2.], [3., 4.]]);
    device.synchronize()?;
    Ok(())
}

/// The differences that the page states.
#[test]
fn differences() -> Result<()> {
    let (device, other) = (Device::cpu()?, Device::cpu()?);
    let (x, _) = matrices(&device)?;
    let planned = x.exp()?;
    assert_eq!(planned.status(), kiln::Status::Planned);
    let half = x.to_dtype(DType::F16)?;
    assert_eq!((&x + &half).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(((&half + 1.0)?.dtype(), Tensor::new(1.0, &device)?.dtype()), (DType::F16, DType::F64));
    assert_eq!((&x + &x.to_device(&other)?).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let sum = |dtype| Ok::<_, Error>(x.to_dtype(dtype)?.sum_all()?.dtype());
    assert_eq!([sum(DType::U8)?, sum(DType::Bool)?, sum(DType::I8)?], [DType::U32, DType::U32, DType::I32]);
    assert_eq!([sum(DType::I32)?, sum(DType::U32)?], [DType::I32, DType::U32]);
    let condition = x.to_dtype(DType::Bool)?;
    condition.where_(&x, &x)?;
    let ids = Tensor::new([-1, 2], &device)?;
    assert_eq!(x.i(&ids)?.eval().unwrap_err().kind(), ErrorKind::InvalidArgument);
    for dtype in [DType::U32, DType::I32, DType::I64] {
        x.i(&Tensor::new([0u32], &device)?.to_dtype(dtype)?)?.eval()?;
    }
    let random = || Tensor::rand(4, DType::F32, &Device::cpu()?)?.to_vec::<f32>();
    assert_eq!(random()?, random()?);
    Ok(())
}

/// Each line of the page's last column is a line above.
#[test]
fn page_has_only_lines_of_this_file() {
    let page = include_str!("../../../docs/from-candle-and-pytorch.md");
    let mut count = 0;
    for row in page.lines().filter(|line| line.starts_with('|')) {
        // A pipe in a cell is escaped.
        let row = row.replace("\\|", "\0");
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, _, kiln] = cells[..] else { panic!("expected three cells, found {row}") };
        for code in kiln.split('`').skip(1).step_by(2).map(|code| code.replace('\0', "|")) {
            assert!(include_str!("migration.rs").contains(&code), "no test has `{code}`");
            count += 1;
        }
    }
    assert!(count > 80, "{count} lines");
}

fn matrices(device: &Device) -> Result<(Tensor, Tensor)> {
    Ok((Tensor::new([[1f32, 2.], [3., 4.]], device)?, Tensor::new([[1f32, 0.], [0., 1.]], device)?))
}
