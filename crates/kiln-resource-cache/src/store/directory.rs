//! Whether a directory can be trusted with what reaches a driver: nobody else may be able to write there.

use super::error::{StoreError, StoreErrorKind};
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

/// What [`check_directory`] found in a directory that can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedDirectory {
    /// Whether other users can read it; `None` where that is not known.
    pub others_can_read: Option<bool>,
}

/// Why a directory cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryFault {
    /// The kind of what is wrong.
    pub kind: DirectoryFaultKind,
    /// What was expected and what was found.
    pub fault: String,
    /// The command that puts it right; `None` where only another directory helps.
    pub fix: Option<String>,
}

/// The kinds of [`DirectoryFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DirectoryFaultKind {
    /// Nothing is there.
    Missing,
    /// A symbolic link is there: whoever can change it chooses the directory.
    Link,
    /// Something else than a directory is there, or nothing that can be looked at.
    NotADirectory,
    /// It belongs to another user.
    OtherOwner,
    /// Its mode lets other users write to it.
    OthersCanWrite,
}

/// Looks whether a directory is one that only this user can change. Changes nothing.
///
/// It must be a directory and no link to one, belong to the effective user, and have a mode without write permission
/// for group and others. The folders above it are not looked at: whoever can write there can put another directory in
/// its place. On systems other than Unix only existence and type are looked at; the default place for caches is private
/// there.
///
/// ```
/// use kiln_resource_cache::store::{DirectoryFaultKind, check_directory};
///
/// let fault = check_directory("/no/such/directory").unwrap_err();
/// assert_eq!(fault.kind, DirectoryFaultKind::Missing);
/// ```
pub fn check_directory(path: impl AsRef<Path>) -> Result<TrustedDirectory, DirectoryFault> {
    let path = path.as_ref();
    let fault = |kind, fault: String, fix| Err(DirectoryFault { kind, fault, fix });
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            let missing = error.kind() == io::ErrorKind::NotFound;
            let kind = if missing { DirectoryFaultKind::Missing } else { DirectoryFaultKind::NotADirectory };
            return fault(kind, format!("expected a directory, found: {}: {error}", path.display()), None);
        }
    };
    if metadata.is_symlink() {
        let target = fs::read_link(path).map_or_else(|_| "?".to_string(), |target| target.display().to_string());
        let found = format!("expected a directory, found a symbolic link: {} -> {target}", path.display());
        return fault(DirectoryFaultKind::Link, found, Some(format!("rm {}", quoted(path))));
    }
    if !metadata.is_dir() {
        let found = format!("expected a directory, found a file: {}", path.display());
        return fault(DirectoryFaultKind::NotADirectory, found, None);
    }
    check_owner(path, &metadata)
}

/// Makes the directory and those above it, for this user alone.
pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| StoreError::of_io("make the directory", path, &error))
}

/// As [`check_directory`], as an error of the store.
pub(super) fn require_trusted(path: &Path) -> Result<(), StoreError> {
    let Err(DirectoryFault { kind, fault, fix }) = check_directory(path) else { return Ok(()) };
    let kind = match kind {
        DirectoryFaultKind::Missing | DirectoryFaultKind::NotADirectory => StoreErrorKind::Io,
        _ => StoreErrorKind::Untrusted,
    };
    let fix = fix.map_or_else(|| "use another directory".to_string(), |fix| format!("to put it right: {fix}"));
    Err(StoreError::new(kind, format!("cannot use {} for a store: {fault}; {fix}", path.display())))
}

/// The command for a POSIX shell that leaves a directory to its owner.
pub fn make_private_command(path: impl AsRef<Path>) -> String {
    format!("chmod 700 {}", quoted(path.as_ref()))
}

#[cfg(unix)]
fn check_owner(path: &Path, metadata: &Metadata) -> Result<TrustedDirectory, DirectoryFault> {
    use std::os::unix::fs::MetadataExt;
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own {
        let fault = format!("expected a directory of this user (id {own}), found one of user id {owner}");
        return Err(DirectoryFault { kind: DirectoryFaultKind::OtherOwner, fault, fix: None });
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o022 != 0 {
        let fault = format!("expected a directory that only its owner can write, found mode {mode:03o}");
        let fix = Some(make_private_command(path));
        return Err(DirectoryFault { kind: DirectoryFaultKind::OthersCanWrite, fault, fix });
    }
    Ok(TrustedDirectory { others_can_read: Some(mode & 0o055 != 0) })
}

/// Access lists are not read on this system.
#[cfg(not(unix))]
fn check_owner(_path: &Path, _metadata: &Metadata) -> Result<TrustedDirectory, DirectoryFault> {
    Ok(TrustedDirectory { others_can_read: None })
}

/// A path as one word of a POSIX shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().all(|c| c.is_alphanumeric() || "/._-+".contains(c)) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
