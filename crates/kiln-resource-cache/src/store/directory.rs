//! Checks that only this user can write to a directory, because its content reaches a driver or the processor.

use super::error::{StoreError, StoreErrorKind};
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

/// The properties of a directory that [`check_directory`] accepts.
///
/// See [`check_directory`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedDirectory {
    /// Whether other users can read it; `None` if unknown.
    pub others_can_read: Option<bool>,
}

/// Why a directory cannot be used.
///
/// Returned by [`check_directory`]; see there for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryFault {
    /// The kind of fault.
    pub kind: DirectoryFaultKind,
    /// What was expected and what was found.
    pub fault: String,
    /// The command that fixes it; `None` if only another directory helps.
    pub fix: Option<String>,
}

/// The kinds of [`DirectoryFault`].
///
/// See [`check_directory`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DirectoryFaultKind {
    /// The directory does not exist.
    Missing,
    /// The path is a symbolic link: whoever can change it chooses the directory.
    Link,
    /// The path is not a directory, or cannot be examined.
    NotADirectory,
    /// The directory belongs to another user.
    OtherOwner,
    /// The mode lets other users write to the directory.
    OthersCanWrite,
}

/// Checks that only this user can change a directory. Changes nothing.
///
/// It must be a directory and not a link to one, belong to the effective user, and not be writable for group and
/// others. The directories above it are not checked, although whoever can write there can replace it. On systems other
/// than Unix only existence and type are checked; the default location of caches is private there.
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
    // Not `metadata`, which would follow a link.
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

/// Creates the directory and its parents, accessible to this user only.
pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| StoreError::from_io("create the directory", path, &error))
}

/// Does the same as [`check_directory`], but returns a `StoreError`.
pub(super) fn require_trusted(path: &Path) -> Result<(), StoreError> {
    let Err(DirectoryFault { kind, fault, fix }) = check_directory(path) else { return Ok(()) };
    let kind = match kind {
        DirectoryFaultKind::Missing | DirectoryFaultKind::NotADirectory => StoreErrorKind::Io,
        _ => StoreErrorKind::Untrusted,
    };
    let fix = fix.map_or_else(|| "use another directory".to_string(), |fix| format!("to fix it: {fix}"));
    Err(StoreError::new(kind, format!("cannot use {} for a store: {fault}; {fix}", path.display())))
}

/// Returns the shell command that makes a directory accessible to its owner only.
///
/// ```
/// use kiln_resource_cache::store::make_private_command;
///
/// assert_eq!(make_private_command("/var/cache/kiln"), "chmod 700 /var/cache/kiln");
/// ```
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
    // Write permission of group or others.
    if mode & 0o022 != 0 {
        let fault = format!("expected a directory that only its owner can write, found mode {mode:03o}");
        let fix = Some(make_private_command(path));
        return Err(DirectoryFault { kind: DirectoryFaultKind::OthersCanWrite, fault, fix });
    }
    // Read or search permission of group or others.
    Ok(TrustedDirectory { others_can_read: Some(mode & 0o055 != 0) })
}

/// Access control lists are not read on this system.
#[cfg(not(unix))]
fn check_owner(_path: &Path, _metadata: &Metadata) -> Result<TrustedDirectory, DirectoryFault> {
    Ok(TrustedDirectory { others_can_read: None })
}

/// Quotes a path for a POSIX shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().all(|c| c.is_alphanumeric() || "/._-+".contains(c)) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
