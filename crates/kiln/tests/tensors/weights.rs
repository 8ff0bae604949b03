//! What is saved of networks and optimisers: files that fit come back, others are named.

use crate::devices;
use kiln::nn::{self, LayerNorm, Linear, Module, Parameter, Sequential};
use kiln::optim::{Adam, Optimizer, Sgd};
use kiln::{Activation, DType, ErrorKind, Tensor};

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
    assert!(nn::load(&extra, &path).unwrap_err().to_string().contains("1.weight belongs to no parameter"));
    nn::load(&net, &path).unwrap();
    assert_eq!(net.parameters()[0].1.get().to_vec::<f32>().unwrap(), before);

    // No file, not this format, and one that was cut off.
    let missing = nn::load(&net, &folder.path().join("nothing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Io, "{missing}");
    let bytes = std::fs::read(&path).unwrap();
    for bad in [&b"not a file of tensors"[..], &bytes[..bytes.len() - 3], &[]] {
        std::fs::write(&path, bad).unwrap();
        assert_eq!(nn::load(&net, &path).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    // Where it cannot be written, the file that was there stays.
    assert_eq!(nn::save(&net, &folder.path().join("no/such/folder")).unwrap_err().kind(), ErrorKind::Io);

    // The state of another optimiser.
    let sgd = Optimizer::new(Sgd::new().momentum(0.9), &net).unwrap();
    sgd.save(&path).unwrap();
    let mut adam = Optimizer::new(Adam::new(), &net).unwrap();
    let error = adam.load(&path).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("8 tensors, found 4"), "{error}");
    nn::save(&net, &path).unwrap();
    assert!(adam.load(&path).unwrap_err().to_string().contains("number of steps"));
    // An optimiser without gradients, without parameters, with one twice.
    assert!(adam.step(0.1).unwrap_err().to_string().contains("backward comes before step"));
    assert!(Optimizer::new(Sgd::new(), &Activation::Relu).unwrap_err().to_string().contains("found none"));
    let own = net.parameters().remove(0).1;
    // One that two layers share moves once.
    let tied =
        Optimizer::of(Sgd::new().momentum(0.9), vec![("a".to_string(), own.clone()), ("b".to_string(), own)]).unwrap();
    assert_eq!(tied.state().unwrap().tensors.len(), 1);
    let half = Parameter::new(&Tensor::ones(2, DType::F16, device).unwrap()).unwrap();
    let error = Optimizer::of(Sgd::new(), vec![("h".to_string(), half)]).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("h of f16"), "{error}");
}

/// Files have every dtype, and are those that other programs read.
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
    nn::Weights { tensors: tensors.clone(), notes }.save(&path).unwrap();
    let found = nn::Weights::load(&path, device).unwrap();
    assert_eq!(found.notes["made"], "here");
    assert_eq!(found.tensors.len(), 6);
    for (name, tensor) in &found.tensors {
        let own = &tensors.iter().find(|(own, _)| own == name).unwrap().1;
        assert_eq!((tensor.dtype(), tensor.shape()), (own.dtype(), own.shape()));
        let wide = |tensor: &Tensor| tensor.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(wide(tensor), wide(own));
    }
    // As the format says: the length of the header, the header, the bytes.
    let bytes = std::fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    assert_eq!(header["f32"]["shape"], serde_json::json!([2, 3]));
    let twice = vec![tensors[0].clone(), tensors[0].clone()];
    let error = nn::Weights { tensors: twice, notes: Default::default() }.save(&path).unwrap_err();
    assert!(error.to_string().contains("f16 twice"), "{error}");
}
