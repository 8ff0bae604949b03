//! Saving and loading of networks and optimizers: matching files load, others give errors with names.

use crate::devices;
use kiln::nn::{self, Activation, BatchNorm, LayerNorm, Linear, Module, Parameter, Sequential, Weights};
use kiln::optim::{Adam, Optimizer, Sgd};
use kiln::{DType, ErrorKind, Tensor, bf16};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn files_that_do_not_fit_are_named() {
    let device = devices::cpu();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let net = Sequential::new().with(Linear::new(2, 3, device).unwrap()).with(Linear::new(3, 1, device).unwrap());
    nn::save(&net, &path).unwrap();
    let before = net.parameters()[0].1.get().to_vec::<f32>().unwrap();
    let other = Sequential::new().with(Linear::new(2, 4, device).unwrap()).with(LayerNorm::new(3, device).unwrap());
    let other = other.with(Linear::new(1, 1, device).unwrap());
    let kept = other.parameters()[2].1.get().to_vec::<f32>().unwrap();
    let error = nn::load(&other, &path).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in ["0.weight expected f32 (4, 2), found f32 (3, 2)", "2.weight is missing", "weights.safetensors"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(other.parameters()[2].1.get().to_vec::<f32>().unwrap(), kept, "nothing has changed");
    let extra = Sequential::new().with(Linear::new(2, 3, device).unwrap());
    assert_eq!(nn::load(&extra, &path).unwrap(), ["1.bias", "1.weight"], "unused");
    nn::load(&net, &path).unwrap();
    assert_eq!(net.parameters()[0].1.get().to_vec::<f32>().unwrap(), before);

    // A missing file, another format, and a truncated file.
    let missing = nn::load(&net, folder.path().join("nothing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Io, "{missing}");
    let bytes = std::fs::read(&path).unwrap();
    for bad in [&b"not a file of tensors"[..], &bytes[..bytes.len() - 3], &[]] {
        std::fs::write(&path, bad).unwrap();
        assert_eq!(nn::load(&net, &path).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    // If it cannot be written, the existing file stays.
    assert_eq!(nn::save(&net, folder.path().join("no/such/folder")).unwrap_err().kind(), ErrorKind::Io);

    // The state of another optimiser.
    let sgd = Optimizer::new(Sgd::new().momentum(0.9), &net).unwrap();
    sgd.save(&path).unwrap();
    let mut adam = Optimizer::new(Adam::new(), &net).unwrap();
    let error = adam.load(&path).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("8 tensors, found 4"), "{error}");
    nn::save(&net, &path).unwrap();
    assert!(adam.load(&path).unwrap_err().to_string().contains("number of steps"));
    // An optimizer without gradients, without parameters, and with a duplicate parameter.
    assert!(adam.step(0.1).unwrap_err().to_string().contains("call backward before step"));
    assert!(Optimizer::new(Sgd::new(), &Activation::Relu).unwrap_err().to_string().contains("found none"));
    let own = net.parameters().remove(0).1;
    // A parameter shared by two layers is updated once.
    let tied =
        Optimizer::of(Sgd::new().momentum(0.9), vec![("a".to_string(), own.clone()), ("b".to_string(), own)]).unwrap();
    assert_eq!(tied.state().unwrap().tensors.len(), 1);
    let half = Parameter::new(&Tensor::ones(2, DType::F16, device).unwrap()).unwrap();
    let error = Optimizer::of(Sgd::new(), vec![("h".to_string(), half)]).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("h of f16"), "{error}");
}

/// Files hold every dtype in the standard format.
#[test]
fn weights_of_every_dtype_come_back() {
    let device = devices::cpu();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let x = Tensor::from_slice(&[0.3f32, 2.9, 1.5, 0.0, 2.2, 1.0], (2, 3), device).unwrap();
    let dtypes = [DType::F16, DType::BF16, DType::F32, DType::I32, DType::U32, DType::U8];
    let tensors: Vec<(String, Tensor)> =
        dtypes.iter().map(|dtype| (dtype.name().to_string(), x.abs().unwrap().to_dtype(*dtype).unwrap())).collect();
    let notes = [("made".to_string(), "here".to_string())].into();
    nn::save_tensors(&path, &tensors, &notes).unwrap();
    let found = Weights::load(&path, device).unwrap();
    assert_eq!(found.metadata()["made"], "here");
    assert_eq!(found.names().count(), 6);
    for (name, own) in &tensors {
        let tensor = &found.tensor(name).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (own.dtype(), own.shape()));
        let wide = |tensor: &Tensor| tensor.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(wide(tensor), wide(own));
    }
    // The format: header length, header, data.
    let bytes = std::fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    assert_eq!(header["f32"]["shape"], serde_json::json!([2, 3]));
    let twice = vec![tensors[0].clone(), tensors[0].clone()];
    let error = nn::save_tensors(&path, &twice, &Default::default()).unwrap_err();
    assert!(error.to_string().contains("f16 twice"), "{error}");
}

/// The bytes of a file with these tensors: name, dtype, shape, data.
fn file(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let at = data.len();
        data.extend(bytes);
        header.insert((*name).into(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [at, data.len()] }));
    }
    whole(&Value::Object(header).to_string(), &data)
}

fn whole(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn bytes_of<const N: usize, T: Copy>(numbers: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| bytes(number)).collect()
}

/// A tensor that is never read may have any dtype; the others are converted on request, exactly or with an error.
#[test]
fn stored_dtypes_are_converted_on_request() {
    let device = devices::cpu();
    let numbers = [-3i64, 0, 100];
    let stored: [(&str, &str, Vec<u8>); 11] = [
        ("f64", "F64", bytes_of(&numbers, |x| (x as f64).to_le_bytes())),
        ("f32", "F32", bytes_of(&numbers, |x| (x as f32).to_le_bytes())),
        ("f16", "F16", bytes_of(&numbers, |x| kiln::f16::from_f64(x as f64).to_le_bytes())),
        ("bf16", "BF16", bytes_of(&numbers, |x| bf16::from_f64(x as f64).to_le_bytes())),
        ("f8_e5m2", "F8_E5M2", vec![0xc2, 0x00, 0x56]), // 100 is between 96 and 112
        ("f8_e4m3", "F8_E4M3", vec![0xc4, 0x00, 0x6c]), // 96
        ("i64", "I64", bytes_of(&numbers, i64::to_le_bytes)),
        ("i32", "I32", bytes_of(&numbers, |x| (x as i32).to_le_bytes())),
        ("i16", "I16", bytes_of(&numbers, |x| (x as i16).to_le_bytes())),
        ("i8", "I8", bytes_of(&numbers, |x| (x as i8).to_le_bytes())),
        ("bool", "BOOL", vec![1, 0, 1]),
    ];
    let tensors: Vec<_> = stored.iter().map(|(name, dtype, bytes)| (*name, *dtype, &[3][..], bytes.clone())).collect();
    let weights = Weights::from_bytes(file(&tensors), device).unwrap();
    for (name, ..) in &stored {
        let wanted = match *name {
            "f8_e5m2" | "f8_e4m3" => [-3.0, 0.0, 96.0],
            "bool" => [1.0, 0.0, 1.0],
            _ => [-3.0, 0.0, 100.0],
        };
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
            let tensor = weights.to_dtype(dtype).get(3, name).unwrap();
            assert_eq!(tensor.dtype(), dtype, "{name}");
            assert_eq!(tensor.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap(), wanted, "{name} as {dtype}");
        }
        assert_eq!(weights.stored_dtype(name).unwrap(), *name);
        if name == &"bool" {
            continue;
        }
        let error = weights.to_dtype(DType::U8).get(3, name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = format!("{name} expected numbers that u8 can hold, found -3 at element 0 of {name} (3");
        assert!(error.to_string().contains(&text), "{error}");
    }
    let error = weights.tensor("i16").unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("Weights::to_dtype"), "{error}");
    for (name, dtype) in [("bool", DType::Bool), ("i64", DType::I64), ("f64", DType::F64), ("i8", DType::I8)] {
        assert_eq!(weights.tensor(name).unwrap().dtype(), dtype);
    }

    let odd: Vec<(&str, &str, &[usize], Vec<u8>)> = vec![
        ("large", "I64", &[2], bytes_of(&[1, (1i64 << 40) + 1], i64::to_le_bytes)),
        ("huge", "U64", &[1], bytes_of(&[u64::MAX], u64::to_le_bytes)),
        ("wide", "F64", &[2], bytes_of(&[0.1, 1e300], f64::to_le_bytes)),
        ("half", "F32", &[1], bytes_of(&[0.5f32], f32::to_le_bytes)),
        ("special", "F64", &[3], bytes_of(&[f64::NAN, f64::INFINITY, -0.0], f64::to_le_bytes)),
        ("four_bits", "F4", &[2], vec![0]),
        ("empty", "I64", &[0, 3], Vec::new()),
        ("scalar", "I64", &[], 7i64.to_le_bytes().to_vec()),
    ];
    let weights = Weights::from_bytes(file(&odd), device).unwrap();
    let faults = [
        ("large", DType::I32, "1099511627777 at element 1"),
        ("large", DType::F32, "1099511627777 at element 1"),
        ("huge", DType::U32, "18446744073709551615"),
        ("wide", DType::F32, "at element 1 of f64"),
        ("half", DType::I32, "found 0.5"),
        ("special", DType::I32, "found NaN"),
        ("four_bits", DType::F32, "numbers of 8 bits or more, found f4 (2"),
    ];
    for (name, dtype, part) in faults {
        let error = weights.to_dtype(dtype).tensor(name).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(name), "{error}");
    }
    let special = weights.to_dtype(DType::F16).tensor("special").unwrap().to_vec::<f32>().unwrap();
    assert!(special[0].is_nan() && special[1] == f32::INFINITY && special[2].is_sign_negative());
    assert_eq!(weights.to_dtype(DType::F32).tensor("empty").unwrap().shape()[..], [0, 3]);
    assert_eq!(weights.to_dtype(DType::U8).tensor("scalar").unwrap().to_scalar::<u8>().unwrap(), 7);
    assert_eq!(weights.unused(), ["four_bits", "half", "huge", "large", "wide"]);
}

/// A bf16 checkpoint into layers of f32 and f16, on every device, with unused tensors.
#[test]
fn checkpoints_load_into_layers_of_other_dtypes() {
    let ones = |count: usize| bytes_of(&vec![1.5f32; count], |x| bf16::from_f32(x).to_le_bytes());
    let bytes = file(&[
        ("encoder.0.weight", "BF16", &[2, 3], ones(6)),
        ("encoder.0.bias", "BF16", &[2], ones(2)),
        ("embeddings.position_ids", "I64", &[1, 512], vec![0; 4096]),
    ]);
    for subject in devices::all() {
        for dtype in [DType::F32, DType::F16] {
            let weights = Weights::from_bytes(bytes.clone(), devices::cpu()).unwrap();
            let layer = Linear::new(3, 2, (dtype, &subject.device)).unwrap();
            weights.prefix("encoder").prefix(0).load_into(&layer).unwrap();
            let own = layer.weight.get();
            assert!(own.dtype() == dtype && own.device().is_same(&subject.device), "{}", subject.name);
            assert_eq!(own.to_vec::<f32>().unwrap(), [1.5; 6], "{}", subject.name);
            assert_eq!(weights.unused(), ["embeddings.position_ids"]);
        }
    }
}

#[test]
fn missing_tensors_are_named_with_shapes_and_near_names() {
    let device = devices::cpu();
    let f32s = |count: usize| vec![0; 4 * count];
    let bytes = file(&[
        ("bert.0.weight", "F32", &[2, 3], f32s(6)),
        ("bert.0.bias", "F32", &[2], f32s(2)),
        ("bert.1.gamma", "F32", &[2], f32s(2)),
        ("bert.1.beta", "F32", &[2], f32s(2)),
        ("bert.1.num_batches_tracked", "I64", &[], vec![0; 8]),
    ]);
    let weights = Weights::from_bytes(bytes, device).unwrap();
    let net = Sequential::new().with(Linear::new(3, 2, device).unwrap()).with(BatchNorm::new(2, device).unwrap());
    let error = weights.load_into(&net).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in [
        "0.weight is missing, expected f32 (2, 3) (similar names: bert.0.weight)",
        "0.bias is missing, expected f32 (2,) (similar names: bert.0.bias",
        "1.running_mean is missing, expected f32 (2,)",
        "1.running_var is missing",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let named = weights.prefix("bert").rename(|name| {
        let name = name.replace("1.weight", "1.gamma").replace("1.bias", "1.beta");
        name.replace("1.running_mean", "1.beta").replace("1.running_var", "1.gamma")
    });
    assert!(named.contains("0.weight") && !named.contains("bert.0.weight") && !weights.contains("0.weight"));
    assert_eq!(named.shape("1.weight").unwrap()[..], [2]);
    named.load_into(&net).unwrap();
    assert_eq!(weights.unused(), ["bert.1.num_batches_tracked"]);
    // The last renaming receives the requested name.
    let twice = weights.rename(|name| format!("bert.{name}")).rename(|name| name.replace("first", "0"));
    assert_eq!(twice.get((2, 3), "first.weight").unwrap().shape()[..], [2, 3]);

    let error = weights.get((3, 2), "bert.0.weight").unwrap_err();
    assert!(error.kind() == ErrorKind::ShapeMismatch, "{error}");
    assert!(error.to_string().contains("bert.0.weight expected (3, 2), found f32 (2, 3)"), "{error}");
    let error = weights.get(2, "bert.1.gama").unwrap_err().to_string();
    assert!(error.contains("bert.1.gama is missing, expected (2,) (similar names: bert.1.gamma"), "{error}");
}

#[test]
fn shards_and_their_index() {
    let device = devices::cpu();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let index = |map: Value| {
        let text = json!({ "metadata": { "total_size": 16 }, "weight_map": map }).to_string();
        std::fs::write(at("model.safetensors.index.json"), text).unwrap();
    };
    let one = |name: &'static str, value: f32| file(&[(name, "F32", &[1], value.to_le_bytes().to_vec())]);
    let error = Weights::load(folder.path(), device).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("model.safetensors.index.json"), "{error}");
    std::fs::write(at("a.safetensors"), one("x", 1.0)).unwrap();
    std::fs::write(at("b.safetensors"), one("y", 2.0)).unwrap();
    index(json!({ "x": "a.safetensors", "y": "b.safetensors" }));
    for path in [folder.path(), &at("model.safetensors.index.json")] {
        let weights = Weights::load(path, device).unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(weights.get(1, "y").unwrap().to_vec::<f32>().unwrap(), [2.0]);
        assert_eq!(weights.unused(), ["x"]);
    }
    let both = Weights::load_all(&[at("a.safetensors"), at("b.safetensors")], device).unwrap();
    assert_eq!(both.get(1, "x").unwrap().to_vec::<f32>().unwrap(), [1.0]);

    let faults: [(Value, ErrorKind, &str); 7] = [
        (json!({ "x": "b.safetensors", "z": "a.safetensors" }), ErrorKind::Corrupt, "x in"),
        (json!({ "x": "c.safetensors" }), ErrorKind::Io, "c.safetensors"),
        (json!({ "x": "../a.safetensors" }), ErrorKind::Corrupt, "not a plain file name"),
        (json!({ "x": "/etc/passwd" }), ErrorKind::Corrupt, "not a plain file name"),
        (json!({ "x": ".." }), ErrorKind::Corrupt, "not a plain file name"),
        (json!({ "x": 3 }), ErrorKind::Corrupt, "3 as the file of x"),
        (json!([]), ErrorKind::Corrupt, "no `weight_map`"),
    ];
    for (map, kind, part) in faults {
        index(map.clone());
        let error = Weights::load(folder.path(), device).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{map}: {error}");
    }
    std::fs::write(at("model.safetensors.index.json"), "[".repeat(100_000)).unwrap();
    assert_eq!(Weights::load(folder.path(), device).unwrap_err().kind(), ErrorKind::Corrupt);
    std::fs::write(at("b.safetensors"), one("x", 2.0)).unwrap();
    let error = Weights::load_all(&[at("a.safetensors"), at("b.safetensors")], device).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("found x in"), "{error}");
    // A single file takes precedence over an index.
    std::fs::write(at("model.safetensors"), one("z", 3.0)).unwrap();
    assert!(Weights::load(folder.path(), device).unwrap().contains("z"));
}

/// Opens a file and reads everything: an error or tensors, never a panic or more memory than a few times the file size.
fn read_all(bytes: &[u8]) -> Result<(), kiln::Error> {
    let weights = Weights::from_bytes(bytes.to_vec(), devices::cpu())?;
    let names: Vec<String> = weights.names().map(str::to_string).collect();
    names
        .iter()
        .try_for_each(|name| weights.tensor(name).or_else(|_| weights.to_dtype(DType::F32).tensor(name)).map(drop))
}

#[test]
fn lying_headers_are_refused() {
    let entry =
        |shape: &str, offsets: &str| format!(r#"{{"x":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
    let data = [0; 8];
    let cases: [(&str, Vec<u8>); 14] = [
        ("nothing", Vec::new()),
        ("a length without a header", 9u64.to_le_bytes().to_vec()),
        ("a header beyond the file", [&u64::MAX.to_le_bytes()[..], b"{}"].concat()),
        ("no JSON", whole("not JSON", &[])),
        ("a huge shape", whole(&entry("[4611686018427387904,2]", "[0,8]"), &data)),
        ("a shape that overflows", whole(&entry("[18446744073709551615,18446744073709551615]", "[0,8]"), &data)),
        ("a zero with lengths that overflow", whole(&entry("[0,18446744073709551615,3]", "[0,0]"), &[])),
        ("more elements than bytes", whole(&entry("[1000000000000]", "[0,4000000000000]"), &data)),
        ("fewer elements than bytes", whole(&entry("[1]", "[0,8]"), &data)),
        ("offsets in the wrong order", whole(&entry("[2]", "[8,0]"), &data)),
        ("a gap", whole(&entry("[1]", "[4,8]"), &data)),
        ("bytes of no tensor", whole(&entry("[1]", "[0,4]"), &data)),
        ("a negative length", whole(&entry("[-1]", "[0,8]"), &data)),
        (
            "tensors that overlap",
            whole(
                r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
                &data,
            ),
        ),
    ];
    for (name, bytes) in cases {
        let error = read_all(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        assert!(error.to_string().contains("expected a safetensors file"), "{name}: {error}");
    }
    // Three tensors whose sizes are each in range, and whose sum is not.
    let large = (0..9u64).map(|number| {
        let (from, to) = (number << 61, (number + 1) << 61);
        format!(r#""{number}":{{"dtype":"U8","shape":[{}],"data_offsets":[{from},{}]}}"#, 1u64 << 61, to.max(from))
    });
    let bytes = whole(&format!("{{{}}}", large.collect::<Vec<_>>().join(",")), &data);
    assert_eq!(read_all(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Every byte changed in several ways, and every truncation: an error, or the tensors of a still valid file.
#[test]
fn damaged_files_are_errors_and_no_panics() {
    let numbers = bytes_of(&[1.5f32; 6], f32::to_le_bytes);
    let good = file(&[
        ("layer.weight", "F32", &[2, 3], numbers),
        ("layer.bias", "BF16", &[2], vec![0; 4]),
        ("position_ids", "I64", &[2], bytes_of(&[0, 1], i64::to_le_bytes)),
    ]);
    read_all(&good).unwrap();
    let data = good.len() - 44;
    for (index, flip) in (0..good.len()).flat_map(|index| [0x01, 0x04, 0x10, 0x80, 0xff].map(|flip| (index, flip))) {
        let mut bytes = good.clone();
        bytes[index] ^= flip;
        let what = format!("{flip:#x} at {index}");
        match read_all(&bytes).map_err(|error| error.kind()) {
            Ok(()) => assert!(index >= 8, "{what}: another length of the header"),
            // A header with another dtype of the same size, or an integer that f32 cannot hold.
            Err(ErrorKind::Unsupported | ErrorKind::InvalidArgument) => assert!(index >= 8, "{what}"),
            Err(kind) => assert!(kind == ErrorKind::Corrupt && index < data, "{what}: {kind:?}"),
        }
    }
    for length in 0..good.len() {
        assert_eq!(read_all(&good[..length]).unwrap_err().kind(), ErrorKind::Corrupt, "{length}");
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(read_all(&longer).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// A mapped file: the same checks, and a file truncated after it was mapped.
#[test]
fn files_are_mapped_and_read_when_they_are_asked_for() {
    let device = devices::cpu();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let count = 100_003; // more than a chunk, and not a multiple of one
    let numbers: Vec<f32> = (0..count).map(|number| number as f32).collect();
    std::fs::write(&path, file(&[("x", "F64", &[count], bytes_of(&numbers, |x| f64::from(x).to_le_bytes()))])).unwrap();
    let weights = Weights::load(&path, device).unwrap().to_dtype(DType::F32);
    assert_eq!(weights.get(count, "x").unwrap().to_vec::<f32>().unwrap(), numbers);
    // A replaced file keeps its contents for those that have it open.
    nn::save_tensors(&path, &[("y".to_string(), Tensor::ones(1, DType::F32, device).unwrap())], &Default::default())
        .unwrap();
    assert_eq!(weights.get(count, "x").unwrap().to_vec::<f32>().unwrap(), numbers);
    let weights = Weights::load(&path, device).unwrap();
    if cfg!(unix) {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        let error = weights.tensor("y").unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("it was truncated"), "{error}");
    }
    assert_eq!(Weights::load(Path::new("/no/such/file"), device).unwrap_err().kind(), ErrorKind::Io);
    std::fs::write(&path, []).unwrap();
    assert_eq!(Weights::load(&path, device).unwrap_err().kind(), ErrorKind::Corrupt);
}
