//! Tensors in files of the format safetensors, which most libraries read and write.

use super::Module;
use crate::{DType, Device, Element, Error, ErrorKind, Result, Tensor, bf16, f16};
use kiln_resource_cache::new_file::NewFile;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

/// Tensors with their names, and notes: what a file has.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, nn::Weights};
///
/// # let folder = std::env::temp_dir().join(format!("kiln-weights-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let path = folder.join("weights.safetensors");
/// let tensors = vec![("bias".to_string(), Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?)];
/// Weights { tensors, notes: Default::default() }.save(&path)?;
/// let weights = Weights::load(&path, &device)?;
/// assert_eq!(weights.tensors[0].1.to_vec::<f32>()?, [1.0, 2.0]);
/// # std::fs::remove_dir_all(&folder).expect("it was made");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// The tensors, in the order of their names where they come from a file.
    pub tensors: Vec<(String, Tensor)>,
    /// What else there is to say about them.
    pub notes: BTreeMap<String, String>,
}

impl Weights {
    /// Writes them to a file. A file that was there is replaced at once when the new one is whole.
    ///
    /// # Errors
    /// `Io` where the file cannot be written; `InvalidArgument` where two tensors have one name; as [`Tensor::eval`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut names: Vec<&str> = self.tensors.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(path, format!("expected a name for each tensor, found {} twice", pair[0])));
        }
        let bytes = self.tensors.iter().map(|(_, tensor)| bytes(tensor)).collect::<Result<Vec<_>>>()?;
        let mut views = Vec::new();
        for ((name, tensor), bytes) in self.tensors.iter().zip(&bytes) {
            let view = TensorView::new(stored(tensor.dtype()), tensor.shape().to_vec(), bytes);
            views.push((name.as_str(), view.map_err(|error| wrong(path, error.to_string()))?));
        }
        let notes: HashMap<String, String> = self.notes.clone().into_iter().collect();
        let notes = (!notes.is_empty()).then_some(notes);
        let file = safetensors::serialize(views, notes).map_err(|error| wrong(path, error.to_string()))?;
        let write = || {
            let mut new = NewFile::create(path)?;
            new.write_all(&file)?;
            new.sync_all()?;
            new.commit()
        };
        write().map_err(|error: io::Error| Error::new(ErrorKind::Io, error.to_string()).with_source(error))
    }

    /// Reads a file, and brings its tensors to a device.
    ///
    /// # Errors
    /// `Io` where the file cannot be read; `Corrupt` where it is no whole file of this format; `Unsupported` where a tensor has a dtype that Kiln does
    /// not have; `OutOfMemory`.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let bytes =
            std::fs::read(path).map_err(|error| fault(ErrorKind::Io, path, format!("cannot be read: {error}")))?;
        let no_file = |error: &dyn Display| {
            fault(ErrorKind::Corrupt, path, format!("expected a file of safetensors, found: {error}"))
        };
        let file = SafeTensors::deserialize(&bytes).map_err(|error| no_file(&error))?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| no_file(&error))?;
        let notes = metadata.metadata().clone().unwrap_or_default().into_iter().collect();
        let mut tensors = Vec::new();
        for (name, view) in file.tensors() {
            let tensor = match view.dtype() {
                Dtype::F16 => made::<f16>(&view, device),
                Dtype::BF16 => made::<bf16>(&view, device),
                Dtype::F32 => made::<f32>(&view, device),
                Dtype::I32 => made::<i32>(&view, device),
                Dtype::U32 => made::<u32>(&view, device),
                Dtype::U8 | Dtype::BOOL => made::<u8>(&view, device),
                other => {
                    let message =
                        format!("{name} of {other:?} in {}: expected f16, bf16, f32, i32, u32 or u8", path.display());
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            };
            tensors.push((name, tensor?));
        }
        tensors.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(Self { tensors, notes })
    }
}

/// Writes the parameters and statistics of a module to a file.
///
/// # Errors
/// As [`Weights::save`].
pub fn save(module: &dyn Module, path: &Path) -> Result<()> {
    let own = module.parameters().into_iter().map(|(name, parameter)| (name, parameter.get().detach()));
    Weights { tensors: own.collect(), notes: BTreeMap::new() }.save(path)
}

/// Sets the parameters and statistics of a module to those of a file. One without parameters needs no file.
///
/// # Errors
/// As [`Weights::load`]; `InvalidArgument` where a tensor is missing, is one too many, or has another shape or dtype: all of them are named, and
/// nothing has changed.
pub fn load(module: &dyn Module, path: &Path) -> Result<()> {
    let parameters = module.parameters();
    let Some((_, first)) = parameters.first() else { return Ok(()) };
    let mut found: BTreeMap<String, Tensor> = Weights::load(path, first.get().device())?.tensors.into_iter().collect();
    let mut faults = Vec::new();
    let mut all = Vec::new();
    for (name, parameter) in &parameters {
        let own = parameter.get();
        match found.remove(name) {
            None => faults.push(format!("{name} is missing")),
            Some(tensor) if tensor.shape() != own.shape() || tensor.dtype() != own.dtype() => {
                let (wanted, shape) = (own.dtype(), own.shape());
                faults.push(format!("{name} expected {wanted} {shape}, found {} {}", tensor.dtype(), tensor.shape()));
            }
            Some(tensor) => all.push((parameter, tensor.to_device(own.device())?)),
        }
    }
    faults.extend(found.into_keys().map(|name| format!("{name} belongs to no parameter")));
    if !faults.is_empty() {
        return Err(wrong(path, format!("does not fit the module: {}", faults.join("; "))));
    }
    all.into_iter().try_for_each(|(parameter, tensor)| parameter.set(&tensor))
}

fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::U8 => Dtype::U8,
    }
}

fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    fn of<T: Element>(tensor: &Tensor) -> Result<Vec<u8>> {
        Ok(bytemuck::cast_slice(&tensor.to_vec::<T>()?).to_vec())
    }
    match tensor.dtype() {
        DType::F16 => of::<f16>(tensor),
        DType::BF16 => of::<bf16>(tensor),
        DType::F32 => of::<f32>(tensor),
        DType::I32 => of::<i32>(tensor),
        DType::U32 => of::<u32>(tensor),
        DType::U8 => of::<u8>(tensor),
    }
}

fn made<T: Element>(view: &TensorView<'_>, device: &Device) -> Result<Tensor> {
    // Bytes of a file lie anywhere.
    let mut elements = vec![T::zeroed(); view.data().len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut elements).copy_from_slice(view.data());
    Tensor::from_slice(&elements, view.shape(), device)
}

fn wrong(path: &Path, message: impl Display) -> Error {
    fault(ErrorKind::InvalidArgument, path, message)
}

fn fault(kind: ErrorKind, path: &Path, message: impl Display) -> Error {
    Error::new(kind, format!("{}: {message}", path.display()))
}
