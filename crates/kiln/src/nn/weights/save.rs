//! Writes tensors to safetensors files.

use crate::nn::Module;
use crate::{DType, Error, ErrorKind, Result, Tensor};
use kiln_ir::with_element;
use kiln_resource_cache::new_file::NewFile;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

/// Writes the parameters and buffers of a module to a file.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{self, Linear};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.safetensors");
/// let layer = Linear::new(3, 2, &device)?;
/// nn::save(&layer, &path)?;
/// nn::load(&layer, &path)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`save_tensors`].
pub fn save(module: &dyn Module, path: impl AsRef<Path>) -> Result<()> {
    let own = module.parameters().into_iter().map(|(name, parameter)| (name, parameter.get().detach()));
    save_tensors(path, &own.collect::<Vec<_>>(), &BTreeMap::new())
}

/// Writes named tensors and metadata to a file. An existing file is replaced atomically after the new one is
/// complete.
///
/// See [`Weights`](super::Weights) for an example.
///
/// # Errors
/// Returns `Io` if the file cannot be written, `InvalidArgument` if two tensors have the same name, and the errors of
/// [`Tensor::eval`].
#[doc(alias = "save_file")]
pub fn save_tensors(
    path: impl AsRef<Path>,
    tensors: &[(String, Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let path = path.as_ref();
    let mut names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(wrong(path, format!("expected distinct tensor names, found {} twice", pair[0])));
    }
    let bytes = tensors.iter().map(|(_, tensor)| bytes(tensor)).collect::<Result<Vec<_>>>()?;
    let mut views = Vec::new();
    for ((name, tensor), bytes) in tensors.iter().zip(&bytes) {
        let view = TensorView::new(stored(tensor.dtype()), tensor.shape().to_vec(), bytes);
        views.push((name.as_str(), view.map_err(|error| wrong(path, error))?));
    }
    let metadata: HashMap<String, String> = metadata.clone().into_iter().collect();
    let metadata = (!metadata.is_empty()).then_some(metadata);
    let file = safetensors::serialize(views, metadata).map_err(|error| wrong(path, error))?;
    let write = || {
        let mut new = NewFile::create(path)?;
        new.write_all(&file)?;
        // Synced before the rename: after a crash, the path holds the old file or the complete new one.
        new.sync_all()?;
        new.commit()
    };
    write().map_err(|error: io::Error| Error::new(ErrorKind::Io, error.to_string()).with_source(error))
}

fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::I8 => Dtype::I8,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U32 => Dtype::U32,
        DType::Bool => Dtype::BOOL,
    }
}

fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    with_element!(tensor.dtype(), T => Ok(bytemuck::cast_slice(&tensor.to_vec::<T>()?).to_vec()))
}

fn wrong(path: &Path, message: impl Display) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{}: {message}", path.display()))
}
