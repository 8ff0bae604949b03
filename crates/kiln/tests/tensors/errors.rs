//! Invalid calls: the method returns the error, which names the op, shapes, dtypes and devices.

use crate::devices;
use kiln::nn::{self, Activation, AttentionOptions, PoolWindow};
use kiln::{DType, Device, ErrorKind, Result, Tensor};

fn of(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::ones(shape, dtype, devices::cpu()).unwrap()
}

fn f32s(shape: &[usize]) -> Tensor {
    of(shape, DType::F32)
}

type Row = (&'static str, Result<Tensor>, ErrorKind, &'static [&'static str]);

fn check(rows: Vec<Row>) {
    for (call, result, kind, parts) in rows {
        let error = match result {
            Ok(tensor) => panic!("{call}: expected an error, found {tensor:?}"),
            Err(error) => error,
        };
        assert_eq!(error.kind(), kind, "{call}: {error}");
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "{call}: expected `{part}` in the message, found: {text}");
        }
        assert!(text.starts_with(|first: char| first.is_lowercase()), "{call}: {text}");
    }
}

#[test]
fn indices_and_lengths_that_do_not_fit_are_named() {
    use ErrorKind::{InvalidArgument, ShapeMismatch, Unsupported};
    let a = f32s(&[2, 3]);
    let cube = f32s(&[2, 3, 4]);
    let (pair, triple) = (of(&[2], DType::U32), of(&[3], DType::U32));
    let ragged = Tensor::new(vec![vec![1.0f32], vec![1.0, 2.0]], devices::cpu());
    check(vec![
        ("new", ragged, ShapeMismatch, &["new", "1", "2"]),
        ("i beyond the end", a.i(2), InvalidArgument, &["i expected", "2", "axis 0", "(2, 3)", "cpu"]),
        ("i before the start", a.i((.., -4)), InvalidArgument, &["i expected", "-4", "axis 1"]),
        ("i of three axes", a.i((0, 0, 0)), InvalidArgument, &["at most 2", "found 3", "(2, 3)"]),
        ("two ellipses", a.i((kiln::Ellipsis, kiln::Ellipsis)), InvalidArgument, &["ellipsis", "(2, 3)"]),
        ("range beyond the end", a.i((.., 1..9)), InvalidArgument, &["9", "axis 1", "(2, 3)"]),
        ("range before the start", a.i(-9..1), InvalidArgument, &["-7..1", "axis 0"]),
        ("step of 0", a.i(kiln::Slice::new(..).step(0)), InvalidArgument, &["step", "(2, 3)"]),
        ("i of floats", a.i(&a.flatten().unwrap()), Unsupported, &["i on axis 0 of f32 (2, 3)", "u32", "f32"]),
        ("i after a number", cube.i((0, 9)), InvalidArgument, &["i expected", "9", "axis 1", "(2, 3, 4)"]),
        ("i after an ellipsis", cube.i((0, kiln::Ellipsis, 5)), InvalidArgument, &["5", "axis 2", "(2, 3, 4)"]),
        ("i after a new axis", cube.i((kiln::NewAxis, 0, 1..9)), InvalidArgument, &["1..9", "axis 1", "(2, 3, 4)"]),
        ("i of floats later", cube.i((0, &a, 0)), Unsupported, &["i on axis 1 of f32 (2, 3, 4)", "u32", "(2, 3)"]),
        ("i of other shapes", cube.i((&pair, &triple)), ShapeMismatch, &["i expected", "(2,)", "(3,)"]),
        (
            "two inferred lengths",
            a.reshape((-1, ())),
            InvalidArgument,
            &["reshape", "at most one inferred length", "(2, 3)"],
        ),
        ("inferred length", a.reshape((4, -1)), ShapeMismatch, &["reshape", "[4, -1]", "(2, 3)"]),
        ("negative length", a.reshape((-2, 3)), InvalidArgument, &["reshape", "-2", "(2, 3)"]),
        ("repeat", a.repeat(2), ShapeMismatch, &["repeat", "(2,)", "(2, 3)"]),
        ("repeat too often", a.repeat((1 << 20, 1 << 20)), ErrorKind::TooLarge, &["repeat"]),
        ("roll", a.roll(1, 2), InvalidArgument, &["roll", "2", "(2, 3)"]),
        ("pad", a.pad(&[(1, 1)], 0), ShapeMismatch, &["pad", "2 pairs", "(2, 3)"]),
        ("pad with what no byte is", of(&[1], DType::U8).pad(&[(1, 1)], 300), InvalidArgument, &["pad", "300", "u8"]),
        ("masked_fill", a.masked_fill(&of(&[4, 3], DType::U8), 0), ShapeMismatch, &["masked_fill", "(4, 3)", "(2, 3)"]),
        ("masked_fill by floats", a.masked_fill(&a, 0), Unsupported, &["condition of u8", "f32"]),
        ("one_hot", a.one_hot(3, DType::F32), Unsupported, &["one_hot", "u32", "f32"]),
        ("var of integers", of(&[2], DType::I32).var(0), Unsupported, &["var", "i32"]),
        ("linspace", Tensor::linspace(0.0, 1.0, 2, DType::I32, devices::cpu()), InvalidArgument, &["linspace", "i32"]),
    ]);
    assert!(a.dims3().unwrap_err().to_string().contains("dims3 expected 3 axes, found f32 (2, 3) on cpu"));
    assert!(a.dim(2).unwrap_err().to_string().contains("dim expected an axis from -2 to 1, found 2"));
}

/// Errors begin with the method that was called, also if an op that it is composed of found the error.
#[test]
fn errors_begin_with_the_method_that_was_called() {
    let (a, b) = (f32s(&[2, 3]), f32s(&[4, 5]));
    let (bytes, none, row) = (of(&[2], DType::U8), f32s(&[0, 2]), f32s(&[3]));
    let mut own = a.clone();
    let rows: Vec<(&str, Result<Tensor>)> = vec![
        ("std", a.std(5)),
        ("std", bytes.std(0)),
        ("std_keepdim", a.std_keepdim(5)),
        ("var_keepdim", a.var_keepdim((0, 0))),
        ("norm", a.norm(2)),
        ("logsumexp", none.logsumexp(0)),
        ("logsumexp_keepdim", none.logsumexp_keepdim(0)),
        ("sum_keepdim", a.sum_keepdim(2)),
        ("mean_keepdim", bytes.mean_keepdim(0)),
        ("mean_all", bytes.mean_all()),
        ("max_all", none.max_all()),
        ("argmin_keepdim", none.argmin_keepdim(0)),
        ("t", row.t()),
        ("narrow", a.narrow(0, 1, 4)),
        ("narrow", a.narrow(3, 1, 4)),
        ("slice", a.slice(0, 1..4)),
        ("slice_step", a.slice_step(0, .., 0)),
        ("zeros", Tensor::zeros((1 << 20, 1 << 20), DType::F32, devices::cpu())),
        ("ones", Tensor::ones((1 << 20, 1 << 20), DType::F32, devices::cpu())),
        ("full_like", bytes.full_like(-1)),
        ("eye", Tensor::eye(1 << 20, DType::F32, devices::cpu())),
        ("tri", Tensor::tri(1 << 20, 1 << 20, 0, DType::F32, devices::cpu())),
        ("masked_fill", a.masked_fill(&a, 0)),
        ("masked_fill", a.masked_fill(&of(&[9], DType::U8), 0)),
        ("masked_fill", bytes.masked_fill(&bytes, 300)),
        ("repeat", a.repeat((1 << 20, 1 << 20))),
        ("pad", a.pad(&[(0, 1 << 30), (0, 1 << 30)], 0)),
        ("stack", Tensor::stack(&[&a, &b], 0)),
        ("embedding", row.embedding(&of(&[2], DType::U32))),
        ("add_scalar", bytes.add_scalar(0.5)),
        ("add_assign", own.add_assign(&b).map(|()| a.clone())),
        ("fused_add_relu", a.fused_add_relu(&b)),
        ("fused_mul_relu", a.fused_mul_relu(&b)),
        ("fused_affine", a.fused_affine(2.0, &b)),
        ("fused_linear_residual_relu", a.fused_linear_residual_relu(&b, &a, &a)),
        ("fused_gelu_linear", a.fused_gelu_linear(&b, &a)),
        ("matmul_with_activation", a.matmul_with_activation(&b, Activation::Gelu)),
        ("einsum", Tensor::einsum("i,i->", &[&bytes, &bytes])),
        ("avg_pool1d", f32s(&[1, 1, 2]).avg_pool1d(3)),
        ("i", a.i((&of(&[2], DType::U32), &of(&[3], DType::U32)))),
        ("cross_entropy", nn::cross_entropy(&a, &f32s(&[2]))),
    ];
    for (method, result) in rows {
        let text = result.expect_err(method).to_string();
        let rest = text.strip_prefix(method).unwrap_or_else(|| panic!("expected `{method}` first, found: {text}"));
        assert!(rest.starts_with([' ', ':']), "expected `{method}` first, found: {text}");
        assert_eq!(text.matches(&format!("{method}: {method} ")).count(), 0, "{text}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    use ErrorKind::{InvalidArgument, ShapeMismatch};
    let (a, b, x) = (f32s(&[2, 3]), f32s(&[4, 5]), f32s(&[2, 3, 4]));
    let index = of(&[2], DType::U32);
    check(vec![
        ("add", a.add(&b), ShapeMismatch, &["add", "(2, 3)", "(4, 5)", "f32", "cpu"]),
        ("where_", of(&[2, 2], DType::U8).where_(&a, &a), ShapeMismatch, &["where", "(2, 2)", "(2, 3)"]),
        ("matmul", a.matmul(&b), ShapeMismatch, &["matmul", "(2, 3)", "(4, 5)", "cpu"]),
        ("matmul of batches", x.matmul(&f32s(&[3, 4, 2])), ShapeMismatch, &["matmul", "(2, 3, 4)", "(3, 4, 2)"]),
        ("matmul of a number", f32s(&[]).matmul(&a), ShapeMismatch, &["matmul", "()", "(2, 3)"]),
        ("with activation", a.matmul_with_activation(&b, Activation::Gelu), ShapeMismatch, &["matmul", "(4, 5)"]),
        ("reshape", a.reshape((4, 2)), ShapeMismatch, &["reshape", "(2, 3)", "(4, 2)", "6", "8"]),
        ("broadcast_to", a.broadcast_to((3, 3)), ShapeMismatch, &["broadcast_to", "(2, 3)", "(3, 3)"]),
        ("squeeze", a.squeeze(0), ShapeMismatch, &["squeeze", "(2, 3)", "axis 0"]),
        ("transpose", a.transpose(0, 2), InvalidArgument, &["transpose", "2", "(2, 3)"]),
        ("permute", a.permute([0]), InvalidArgument, &["permute", "(2, 3)"]),
        ("permute twice", a.permute([0, 0]), InvalidArgument, &["permute", "(2, 3)"]),
        ("slice", a.slice(1, 1..9), InvalidArgument, &["slice", "9", "(2, 3)"]),
        ("slice_step of 0", a.slice_step(1, .., 0), InvalidArgument, &["slice", "0", "(2, 3)"]),
        ("sum", a.sum(5), InvalidArgument, &["sum", "5", "(2, 3)"]),
        ("sum_keepdim", a.sum_keepdim([1, 1]), InvalidArgument, &["sum", "1", "(2, 3)"]),
        ("max of nothing", f32s(&[0, 2]).max(0), InvalidArgument, &["max", "(0, 2)"]),
        ("argmin of nothing", f32s(&[0]).argmin_all(), InvalidArgument, &["argmin", "(0,)"]),
        ("cumsum", a.cumsum(2), InvalidArgument, &["cumsum", "2", "f32 (2, 3) on cpu"]),
        ("argsort", f32s(&[]).argsort(0, true), InvalidArgument, &["argsort", "no axis", "f32 () on cpu"]),
        ("sort", a.sort(-3, false).map(|sorted| sorted.0), InvalidArgument, &["sort", "-3", "f32 (2, 3) on cpu"]),
        (
            "topk",
            a.topk(4, 1, true).map(|top| top.0),
            InvalidArgument,
            &["topk", "at most 3", "k = 4", "f32 (2, 3) on cpu"],
        ),
        (
            "max_pool2d",
            x.max_pool2d(2),
            ShapeMismatch,
            &["max_pool2d", "(batch, channels, height, width)", "(2, 3, 4) on cpu"],
        ),
        ("max_pool1d", a.max_pool1d(2), ShapeMismatch, &["max_pool1d", "(batch, channels, length)", "(2, 3) on cpu"]),
        (
            "max_pool2d of less",
            f32s(&[1, 1, 2, 2]).max_pool2d(3),
            ShapeMismatch,
            &["max_pool2d", "[2, 2]", "[3, 3]", "f32 (1, 1, 2, 2) on cpu"],
        ),
        ("max_pool1d of a pair", x.max_pool1d((2, 3)), InvalidArgument, &["max_pool1d", "size", "(2, 3)"]),
        (
            "avg_pool1d with a pair",
            x.avg_pool1d(PoolWindow::new(2).padding((1, 0))),
            InvalidArgument,
            &["avg_pool1d", "padding", "(1, 0)"],
        ),
        ("max_pool1d of less", x.max_pool1d(9), ShapeMismatch, &["max_pool1d", "[1, 9]"]),
        (
            "max_pool2d of nothing",
            f32s(&[1, 1, 0, 4]).max_pool2d(PoolWindow::new(2).padding(1)),
            ShapeMismatch,
            &["max_pool2d", "at least one row", "(1, 1, 0, 4)"],
        ),
        ("avg_pool2d of 0", f32s(&[1, 1, 2, 2]).avg_pool2d(0), InvalidArgument, &["avg_pool2d", "at least 1"]),
        (
            "padding",
            f32s(&[1, 1, 4, 4]).max_pool2d(PoolWindow::new(2).padding(2)),
            InvalidArgument,
            &["max_pool2d", "at most half", "[2, 2]"],
        ),
        (
            "adaptive",
            f32s(&[1, 1, 4, 4]).adaptive_avg_pool2d((0, 2)),
            InvalidArgument,
            &["(0, 2)", "f32 (1, 1, 4, 4) on cpu"],
        ),
        ("softmax", a.softmax(-3), InvalidArgument, &["softmax", "-3", "(2, 3)"]),
        (
            "layer_norm",
            a.layer_norm(Some(&f32s(&[2])), None, 1e-5),
            ShapeMismatch,
            &["layer_norm", "(3,)", "(2,)", "(2, 3)"],
        ),
        ("rms_norm", a.rms_norm(Some(&f32s(&[2])), 1e-5), ShapeMismatch, &["rms_norm", "(2,)", "(2, 3)"]),
        (
            "batch_norm",
            a.batch_norm(&f32s(&[3]), &f32s(&[2]), None, None, 1e-5),
            ShapeMismatch,
            &["batch_norm", "(3,)", "(2,)"],
        ),
        ("cat", Tensor::cat(&[&a, &b], 0), ShapeMismatch, &["cat", "(2, 3)", "(4, 5)"]),
        ("cat of none", Tensor::cat::<Tensor>(&[], 0), InvalidArgument, &["cat", "none"]),
        ("stack", Tensor::stack(&[&a, &b], 0), ShapeMismatch, &["stack", "(2, 3)", "(4, 5)"]),
        ("split", a.split(&[1, 1], 1).map(|mut parts| parts.remove(0)), ShapeMismatch, &["split", "(2, 3)"]),
        ("chunk", a.chunk(0, 1).map(|mut parts| parts.remove(0)), InvalidArgument, &["chunk", "0", "(2, 3)"]),
        ("gather", a.gather(0, &index), ShapeMismatch, &["gather", "(2, 3)", "(2,)"]),
        ("scatter", a.scatter(1, &of(&[2, 2], DType::U32), &a), ShapeMismatch, &["scatter", "(2, 2)", "(2, 3)"]),
        ("index_select", a.index_select(0, &of(&[1, 1], DType::U32)), ShapeMismatch, &["index_select", "(1, 1)"]),
        ("embedding", x.embedding(&index), ShapeMismatch, &["embedding", "(2, 3, 4)"]),
        ("einsum", Tensor::einsum("ij,jk->ik", &[&a, &b]), ShapeMismatch, &["einsum", "ij,jk->ik", "(2, 3)", "(4, 5)"]),
        ("einsum without meaning", Tensor::einsum("ij->k", &[&a]), InvalidArgument, &["einsum", "ij->k"]),
        ("einsum of fewer", Tensor::einsum("ij,jk->ik", &[&a]), InvalidArgument, &["einsum", "ij,jk->ik", "2", "1"]),
        (
            "attention",
            Tensor::attention(&a, &b, &b, AttentionOptions::new()),
            ShapeMismatch,
            &["attention", "(2, 3)", "(4, 5)"],
        ),
        ("rope", a.rope(0, 1e4), ShapeMismatch, &["rope", "(2, 3)"]),
        ("tril", f32s(&[3]).tril(0), InvalidArgument, &["tril", "(3,)"]),
        (
            "from_slice",
            Tensor::from_slice(&[1.0f32; 5], (2, 3), devices::cpu()),
            ShapeMismatch,
            &["from_slice", "6", "5", "(2, 3)"],
        ),
        ("too large", f32s(&[1, 1]).broadcast_to([1 << 17, 1 << 17]), ErrorKind::TooLarge, &["broadcast_to", "131072"]),
    ]);
}

#[test]
fn dtypes_are_never_mixed_and_the_message_says_how_to_convert() {
    use ErrorKind::{InvalidArgument, Unsupported};
    let (a, half, whole) = (f32s(&[2, 3]), of(&[2, 3], DType::F16), of(&[2, 3], DType::I32));
    check(vec![
        ("add", a.add(&half), InvalidArgument, &["add", "f32", "f16", "(2, 3)", "to_dtype"]),
        ("lt", a.lt(&whole), InvalidArgument, &["lt", "f32", "i32", "to_dtype"]),
        ("where_", a.where_(&a, &a), Unsupported, &["where", "u8", "f32", "to_dtype"]),
        ("where_ of two", of(&[3], DType::U8).where_(&a, &half), InvalidArgument, &["where", "f32", "f16", "to_dtype"]),
        ("matmul", a.matmul(&half.t().unwrap()), InvalidArgument, &["matmul", "f32", "f16", "to_dtype"]),
        ("matmul of integers", whole.matmul(&whole), Unsupported, &["matmul", "i32", "to_dtype"]),
        ("exp of integers", whole.exp(), Unsupported, &["exp", "i32", "f32", "to_dtype"]),
        ("mean of integers", whole.mean_all(), Unsupported, &["mean", "i32", "to_dtype"]),
        ("softmax of integers", whole.softmax(0), Unsupported, &["softmax", "i32", "to_dtype"]),
        (
            "layer_norm",
            a.layer_norm(Some(&of(&[3], DType::F16)), None, 1e-5),
            InvalidArgument,
            &["layer_norm", "f16", "to_dtype"],
        ),
        ("cat", Tensor::cat(&[&a, &half], 0), InvalidArgument, &["cat", "f32", "f16", "to_dtype"]),
        ("stack", Tensor::stack(&[&a, &whole], 0), InvalidArgument, &["stack", "f32", "i32", "to_dtype"]),
        ("gather", a.gather(1, &a), Unsupported, &["gather", "u32", "f32", "to_dtype"]),
        ("embedding", a.embedding(&half), Unsupported, &["embedding", "u32", "f16", "to_dtype"]),
        ("index_select", a.index_select(0, &of(&[2], DType::U8)), Unsupported, &["index_select", "u8"]),
        (
            "scatter",
            a.scatter(0, &of(&[2, 3], DType::U32), &half),
            InvalidArgument,
            &["scatter", "f32", "f16", "to_dtype"],
        ),
        (
            "attention",
            Tensor::attention(&a, &half, &half, AttentionOptions::new()),
            InvalidArgument,
            &["attention", "to_dtype"],
        ),
        (
            "mask",
            Tensor::attention(&a, &a, &a, AttentionOptions::new().mask(&a)),
            Unsupported,
            &["attention", "mask", "u8"],
        ),
        ("einsum", Tensor::einsum("ij,ij->i", &[&a, &half]), InvalidArgument, &["einsum", "f32", "f16", "to_dtype"]),
        ("add_scalar", of(&[2], DType::U8).add_scalar(300.0), InvalidArgument, &["add", "300", "u8"]),
        ("add_scalar of a part", whole.add_scalar(0.5), InvalidArgument, &["add", "0.5", "i32"]),
        ("randn", Tensor::randn(3, DType::I32, devices::cpu()), InvalidArgument, &["randn", "i32"]),
    ]);
    let error = half.to_vec::<i32>().unwrap_err();
    assert!(error.to_string().contains("to_dtype"), "{error}");
}

/// Mixing devices is an error, never a silent copy; also between two devices of the same kind.
#[test]
fn devices_are_never_mixed() {
    let mut others = vec![Device::cpu_with(crate::devices::cpu_options()).unwrap()];
    others.extend(devices::gpu().cloned());
    let a = f32s(&[2, 2]);
    for other in others {
        let b = Tensor::ones((2, 2), DType::F32, &other).unwrap();
        let index = Tensor::zeros((2, 2), DType::U32, &other).unwrap();
        let results = vec![
            ("add", a.add(&b)),
            ("matmul", a.matmul(&b)),
            ("cat", Tensor::cat(&[&a, &b], 0)),
            ("stack", Tensor::stack(&[&a, &b], 0)),
            ("gather", a.gather(0, &index)),
            ("scatter", a.scatter(0, &index, &b)),
            ("where", b.to_dtype(DType::U8).unwrap().where_(&a, &a)),
            ("attention", Tensor::attention(&a, &b, &b, AttentionOptions::new())),
            ("einsum", Tensor::einsum("ij,jk->ik", &[&a, &b])),
            ("layer_norm", a.layer_norm(Some(&Tensor::ones(2, DType::F32, &other).unwrap()), None, 1e-5)),
            ("rms_norm", a.rms_norm(Some(&Tensor::ones(2, DType::F32, &other).unwrap()), 1e-5)),
        ];
        for (name, result) in results {
            let error = result.map(|tensor| tensor.shape().clone()).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            for part in [name, "device", "(2, 2)", "on cpu", &format!("on {}", other.info().id)] {
                assert!(text.contains(part), "`{part}` in {text}");
            }
        }
        let moved = a.add(&b.to_device(devices::cpu()).unwrap()).unwrap();
        assert_eq!(moved.to_vec::<f32>().unwrap(), [2.0; 4]);
    }
}

/// An index out of range is an error on read, with the index and the length; no other element is read instead.
#[test]
fn indices_out_of_range_are_errors() {
    let device = devices::cpu();
    let table = f32s(&[3, 2]);
    for index in [Tensor::from_slice(&[0u32, 3], 2, device), Tensor::from_slice(&[0i32, -4], 2, device)] {
        let index = index.unwrap();
        let rows = [
            // An embedding is a selection of rows.
            ("index_select", table.embedding(&index)),
            ("index_select", table.index_select(0, &index)),
            ("gather", table.gather(0, &index.unsqueeze(0).unwrap())),
            ("scatter", table.scatter(0, &index.unsqueeze(0).unwrap(), &f32s(&[1, 2]))),
        ];
        for (name, result) in rows {
            let error = result.and_then(|tensor| tensor.eval()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let text = error.to_string();
            let place = data_of(&index);
            for part in [name, &place, "3"] {
                assert!(text.contains(part), "{name}: `{part}` in {text}");
            }
        }
    }
}

fn data_of(index: &Tensor) -> String {
    crate::data::numbers(index).unwrap()[1].to_string()
}

/// A failed call does not change its arguments, also if it works in place.
#[test]
fn a_failed_call_changes_nothing() {
    let mut a = f32s(&[2, 3]);
    let error = a.add_assign(&f32s(&[4, 2, 3])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    assert!(error.to_string().contains("add_assign"), "{error}");
    assert!(a.mul_assign(&of(&[2, 3], DType::F16)).is_err());
    assert_eq!(a.to_vec::<f32>().unwrap(), [1.0; 6]);
}
