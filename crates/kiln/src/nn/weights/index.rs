//! The index of a sharded checkpoint: maps each tensor to its file.

use super::corrupt;
use super::source::{Entry, Source};
use crate::{Error, ErrorKind, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Maximum size of an index, the same as of a header.
const MAX_INDEX_BYTES: u64 = 100_000_000;
const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

pub(super) struct Index {
    /// The shard files, without duplicates.
    pub(super) shards: Vec<PathBuf>,
    /// The file of each tensor.
    tensors: BTreeMap<String, PathBuf>,
}

/// Finds the file or the index in a directory.
pub(super) fn in_folder(folder: &Path) -> Result<PathBuf> {
    [FILE, INDEX].map(|name| folder.join(name)).into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let message = format!("{}: expected {FILE} or {INDEX} in the folder, found neither", folder.display());
        Error::new(ErrorKind::Io, message)
    })
}

/// Reads an index.
///
/// # Errors
/// Returns `Io` if the file cannot be read, and `Corrupt` if it is not an index or names files outside its directory.
pub(super) fn read(path: &Path) -> Result<Index> {
    let name = path.display().to_string();
    let io = |error: std::io::Error| Error::new(ErrorKind::Io, format!("{name}: cannot be read: {error}"));
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() || metadata.len() > MAX_INDEX_BYTES {
        let message = format!("expected a file of at most {MAX_INDEX_BYTES} bytes, found {} bytes", metadata.len());
        return Err(corrupt(&name, &message));
    }
    let wrong = |what: &str| corrupt(&name, &format!("expected a safetensors index, found {what}"));
    let text = std::fs::read(path).map_err(io)?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
    let map = value["weight_map"].as_object().ok_or_else(|| wrong("no `weight_map`"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut tensors = BTreeMap::new();
    for (tensor, shard) in map {
        let shard = shard.as_str().ok_or_else(|| wrong(&format!("{shard} as the file of {tensor}")))?;
        // An untrusted index must not open files outside its directory.
        let mut parts = Path::new(shard).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(wrong(&format!("`{shard}` as the file of {tensor}, which is not a plain file name")));
        }
        tensors.insert(tensor.clone(), folder.join(shard));
    }
    // Many tensors share a shard; each shard is opened once.
    let shards: BTreeSet<PathBuf> = tensors.values().cloned().collect();
    Ok(Index { shards: shards.into_iter().collect(), tensors })
}

impl Index {
    /// Checks the index against the contents of its files.
    ///
    /// # Errors
    /// Returns `Corrupt` with the names of all tensors that are missing from the shard the index gives for them.
    pub(super) fn check(&self, entries: &BTreeMap<String, Entry>, sources: &[Source], path: &Path) -> Result<()> {
        let is_there = |name: &str, shard: &Path| {
            entries.get(name).is_some_and(|entry| sources[entry.source].name == shard.display().to_string())
        };
        let missing = self.tensors.iter().filter(|(name, shard)| !is_there(name, shard));
        let missing: Vec<String> = missing.map(|(name, shard)| format!("{name} in {}", shard.display())).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("expected all tensors of the index, missing are {}", missing.join("; "));
        Err(corrupt(&path.display().to_string(), &message))
    }
}
