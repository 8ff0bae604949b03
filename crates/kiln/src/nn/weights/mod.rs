//! Named tensors in safetensors files, which most libraries read and write.

mod convert;
mod index;
mod save;
mod similar;
mod source;

pub use save::{save, save_tensors};

use super::Module;
use crate::{DType, Device, Error, ErrorKind, Result, Shape, Tensor};
use parking_lot::Mutex;
use source::{Entry, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of missing tensors that get a list of similar names: each list is a search over all names.
const MAX_SIMILAR_LISTS: usize = 20;

type Rename = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The tensors of one or more safetensors files, read on demand.
///
/// Files are memory-mapped: opening them reads only their headers, and a tensor that is never read costs nothing,
/// whatever its dtype. Clones, [`prefix`](Self::prefix), [`rename`](Self::rename) and [`to_dtype`](Self::to_dtype)
/// share the files. A file must not be truncated while it is mapped: on Unix, reading past the end kills the process.
/// Replace files by renaming, as [`save`] does.
///
/// # Conversion
/// Without [`to_dtype`](Self::to_dtype) a tensor keeps its stored dtype. With it, floats are rounded to nearest. All
/// other conversions are exact: an integer that the dtype cannot hold, a fraction converted to an integer, and a
/// finite number that would overflow to infinity are errors that name the tensor and the value.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{self, Linear, Weights};
/// use kiln::{DType, Tensor, bf16};
///
/// # let folder = std::env::temp_dir().join(format!("kiln-weights-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let path = folder.join("model.safetensors");
/// let tensors = [
///     ("encoder.0.weight".to_string(), Tensor::from_slice(&[bf16::ONE; 6], (2, 3), &device)?),
///     ("encoder.0.bias".to_string(), Tensor::from_slice(&[bf16::ONE; 2], 2, &device)?),
///     ("position_ids".to_string(), Tensor::from_slice(&[0u32, 1, 2], 3, &device)?),
/// ];
/// nn::save_tensors(&path, &tensors, &Default::default())?;
///
/// let weights = Weights::load(&path, &device)?;
/// let layer = Linear::new(3, 2, &device)?; // in f32
/// weights.prefix("encoder.0").load_into(&layer)?;
/// assert_eq!(weights.unused(), ["position_ids"]);
///
/// let bias = weights.to_dtype(DType::F16).get(2, "encoder.0.bias")?;
/// assert_eq!(bias.dtype(), DType::F16);
/// # std::fs::remove_dir_all(&folder).expect("it was made");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "VarBuilder")]
#[doc(alias = "state_dict")]
pub struct Weights {
    files: Arc<Files>,
    device: Device,
    dtype: Option<DType>,
    /// Empty, or layer names, each followed by a dot.
    prefix: String,
    rename: Option<Rename>,
}

/// State shared by clones.
struct Files {
    /// Used in error messages.
    name: String,
    sources: Vec<Source>,
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
    read: Mutex<BTreeSet<String>>,
}

impl Weights {
    /// Opens a file, the shards of an index (`model.safetensors.index.json`), or a directory with either. Tensors are
    /// read to `device`.
    ///
    /// See [`Weights`] for an example.
    ///
    /// # Errors
    /// Returns `Io` if a file cannot be read, and `Corrupt` if a file has another format, is truncated, has offsets
    /// that overlap or exceed the file, or if an index names tensors that are missing from their shards.
    #[doc(alias = "from_mmaped_safetensors")]
    #[doc(alias = "load_file")]
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let path = path.as_ref();
        let found = if path.is_dir() { index::in_folder(path)? } else { path.to_path_buf() };
        if found.extension().is_some_and(|extension| extension == "json") {
            let index = index::read(&found)?;
            let weights = Self::open(found.display().to_string(), &index.shards, device)?;
            index.check(&weights.files.entries, &weights.files.sources, &found)?;
            return Ok(weights);
        }
        Self::open(found.display().to_string(), &[found], device)
    }

    /// Opens several files as one set, without an index.
    ///
    /// See [`Weights`] for an example.
    ///
    /// # Errors
    /// Same as [`load`](Self::load), and `Corrupt` if two files have a tensor with the same name.
    pub fn load_all<P: AsRef<Path>>(paths: &[P], device: &Device) -> Result<Self> {
        let paths: Vec<_> = paths.iter().map(|path| path.as_ref().to_path_buf()).collect();
        let name = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        Self::open(name, &paths, device)
    }

    /// Reads a file from memory, for example from `include_bytes!`.
    ///
    /// # Errors
    /// Same as [`load`](Self::load).
    #[doc(alias = "from_buffered_safetensors")]
    pub fn from_bytes(bytes: Vec<u8>, device: &Device) -> Result<Self> {
        let name = "bytes".to_string();
        Self::new(name.clone(), vec![Source::owned(name, bytes)], device)
    }

    fn open(name: String, paths: &[std::path::PathBuf], device: &Device) -> Result<Self> {
        let sources = paths.iter().map(|path| Source::map(path)).collect::<Result<Vec<_>>>()?;
        Self::new(name, sources, device)
    }

    fn new(name: String, sources: Vec<Source>, device: &Device) -> Result<Self> {
        let (mut entries, mut metadata) = (BTreeMap::<String, Entry>::new(), BTreeMap::new());
        for (number, source) in sources.iter().enumerate() {
            let header = source.header()?;
            metadata.extend(header.metadata);
            for (name, mut entry) in header.entries {
                entry.source = number;
                // Otherwise the result would depend on the order of the files.
                if let Some(other) = entries.get(&name) {
                    let (one, other) = (&source.name, &sources[other.source].name);
                    return Err(corrupt(one, &format!("expected each tensor once, found {name} in {other} too")));
                }
                entries.insert(name, entry);
            }
        }
        let files = Files { name, sources, entries, metadata, read: Mutex::default() };
        let files = Arc::new(files);
        Ok(Self { files, device: device.clone(), dtype: None, prefix: String::new(), rename: None })
    }

    /// Returns the tensors below a prefix: `weights.prefix("encoder").get(3, "bias")` reads `encoder.bias`.
    ///
    /// See [`Weights`] for an example.
    #[doc(alias = "pp")]
    #[doc(alias = "push_prefix")]
    pub fn prefix(&self, name: impl fmt::Display) -> Self {
        Self { prefix: format!("{}{name}.", self.prefix), ..self.clone() }
    }

    /// Returns the tensors under other names: `rename` maps the requested name, with its prefix, to the name in the
    /// file. With several renames, the last added is called first.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// # fn fixed(weights: &kiln::nn::Weights) -> kiln::nn::Weights {
    /// // Checkpoints of 2018 call the weight of a layer norm `gamma`.
    /// weights.rename(|name| name.replace("LayerNorm.weight", "LayerNorm.gamma"))
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rename_f")]
    pub fn rename(&self, rename: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let renamed: Rename = match self.rename.clone() {
            None => Arc::new(rename),
            Some(before) => Arc::new(move |name| before(&rename(name))),
        };
        Self { rename: Some(renamed), ..self.clone() }
    }

    /// Returns the tensors in a dtype: [`get`](Self::get) and [`tensor`](Self::tensor) convert from the stored dtype.
    ///
    /// See [`Weights`] for an example.
    #[doc(alias = "set_dtype")]
    pub fn to_dtype(&self, dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..self.clone() }
    }

    /// Returns the tensors for another device.
    ///
    /// See [`Weights`] for an example.
    #[doc(alias = "set_device")]
    pub fn to_device(&self, device: &Device) -> Self {
        Self { device: device.clone(), ..self.clone() }
    }

    /// Reads a tensor that must have this shape.
    ///
    /// See [`Weights`] for an example.
    ///
    /// # Errors
    /// Same as [`tensor`](Self::tensor), and `ShapeMismatch` if the tensor has another shape.
    pub fn get(&self, shape: impl Into<Shape>, name: &str) -> Result<Tensor> {
        let (wanted, name) = (shape.into(), self.stored_name(name));
        let entry = self.entry(&name, Some(&wanted))?;
        if entry.shape[..] != wanted[..] {
            let message = format!("{name} expected {wanted}, found {}", entry.describe());
            return Err(Error::new(ErrorKind::ShapeMismatch, format!("{}: {message}", self.files.name)));
        }
        self.read(&name, entry, self.dtype)
    }

    /// Reads a tensor of any shape.
    ///
    /// See [`Weights`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if no tensor has this name, with similar names, or if a value does not fit the
    /// dtype, `Unsupported` if Kiln has no dtype for the stored one and no other was requested, `OutOfMemory`, and
    /// device errors.
    #[doc(alias = "get_unchecked")]
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let name = self.stored_name(name);
        self.read(&name, self.entry(&name, None)?, self.dtype)
    }

    /// Returns whether a tensor with this name exists.
    ///
    /// See [`Weights`] for an example.
    #[doc(alias = "contains_tensor")]
    pub fn contains(&self, name: &str) -> bool {
        self.files.entries.contains_key(&self.stored_name(name))
    }

    /// Returns the shape of a tensor without reading it.
    ///
    /// See [`Weights`] for an example.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.files.entries.get(&self.stored_name(name)).map(|entry| Shape::new(&entry.shape))
    }

    /// Returns the name of the stored dtype of a tensor, such as `bf16` or `i64`, without reading the tensor.
    ///
    /// See [`Weights`] for an example.
    pub fn stored_dtype(&self, name: &str) -> Option<String> {
        self.files.entries.get(&self.stored_name(name)).map(Entry::dtype_name)
    }

    /// Returns the names of all tensors in the files, sorted, ignoring the prefix.
    ///
    /// See [`Weights`] for an example.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.entries.keys().map(String::as_str)
    }

    /// Returns the names of the tensors that have not been read through this value or its clones.
    ///
    /// See [`Weights`] for an example.
    pub fn unused(&self) -> Vec<String> {
        let read = self.files.read.lock();
        self.names().filter(|name| !read.contains(*name)).map(str::to_string).collect()
    }

    /// Returns the metadata of the files.
    ///
    /// See [`Weights`] for an example.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.files.metadata
    }

    /// Sets the parameters and buffers of a module from the tensors with their names, converted to the dtypes of
    /// the parameters, on their devices. Tensors that the module does not use are ignored; see
    /// [`unused`](Self::unused).
    ///
    /// See [`Weights`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` with all names if tensors are missing or have the wrong shape; nothing is changed
    /// then. Same as [`tensor`](Self::tensor) if a value does not fit the dtype of its parameter.
    #[doc(alias = "load_state_dict")]
    pub fn load_into(&self, module: &dyn Module) -> Result<()> {
        // All names and shapes are checked before the first parameter changes, and all faults are reported together.
        let (mut all, mut faults, mut lists) = (Vec::new(), Vec::new(), 0);
        for (name, parameter) in module.parameters() {
            let (name, own) = (self.stored_name(&name), parameter.get());
            match self.files.entries.get(&name) {
                None => {
                    lists += 1;
                    let near =
                        if lists > MAX_SIMILAR_LISTS { String::new() } else { self.near(&name, Some(own.shape())) };
                    faults.push(format!("{name} is missing, expected {} {}{near}", own.dtype(), own.shape()));
                }
                Some(entry) if entry.shape[..] != own.shape()[..] => {
                    faults.push(format!("{name} expected {} {}, found {}", own.dtype(), own.shape(), entry.describe()));
                }
                Some(entry) => all.push((parameter, name, entry)),
            }
        }
        if !faults.is_empty() {
            return Err(self.wrong(&format!("does not fit the module: {}", faults.join("; "))));
        }
        // One at a time: a second copy of all parameters may not fit on the device.
        for (parameter, name, entry) in all {
            let own = parameter.get();
            let tensor = self.to_device(own.device()).read(&name, entry, Some(own.dtype()))?;
            parameter.set(&tensor)?;
        }
        Ok(())
    }

    fn stored_name(&self, name: &str) -> String {
        let name = format!("{}{name}", self.prefix);
        self.rename.as_ref().map_or_else(|| name.clone(), |rename| rename(&name))
    }

    fn entry(&self, name: &str, shape: Option<&Shape>) -> Result<&Entry> {
        self.files.entries.get(name).ok_or_else(|| {
            let wanted = shape.map(|shape| format!(", expected {shape}")).unwrap_or_default();
            self.wrong(&format!("{name} is missing{wanted}{}", self.near(name, shape)))
        })
    }

    fn read(&self, name: &str, entry: &Entry, dtype: Option<DType>) -> Result<Tensor> {
        let source = &self.files.sources[entry.source];
        let tensor = convert::read(name, entry, source, dtype, &self.device)?;
        // After the read: a tensor that could not be read stays in `unused`.
        self.files.read.lock().insert(name.to_string());
        Ok(tensor)
    }

    /// Returns similar names, as the end of an error message.
    fn near(&self, name: &str, shape: Option<&Shape>) -> String {
        let all = self.files.entries.iter().map(|(name, entry)| (name.as_str(), &entry.shape[..]));
        let near = similar::similar_names(name, shape.map(|shape| &shape[..]), all);
        if near.is_empty() { near } else { format!(" (similar names: {near})") }
    }

    fn wrong(&self, message: &str) -> Error {
        Error::new(ErrorKind::InvalidArgument, format!("{}: {message}", self.files.name))
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Weights");
        text.field("files", &self.files.name).field("tensors", &self.files.entries.len());
        text.field("prefix", &self.prefix).field("dtype", &self.dtype).finish_non_exhaustive()
    }
}

/// Sets the parameters and buffers of a module from a file, and returns the names of unused tensors.
///
/// See [`save`] for an example.
///
/// # Errors
/// Same as [`Weights::load`] and [`Weights::load_into`].
pub fn load(module: &dyn Module, path: impl AsRef<Path>) -> Result<Vec<String>> {
    // A module without parameters needs no file.
    let Some((_, first)) = module.parameters().into_iter().next() else { return Ok(Vec::new()) };
    let weights = Weights::load(path, first.get().device())?;
    weights.load_into(module)?;
    Ok(weights.unused())
}

fn corrupt(name: &str, message: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{name}: {message}"))
}
