//! File operations of the store: files are opened without following links or blocking, and written under a temporary
//! name and renamed.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::{PathPersistError, TempPath};

/// The prefix of temporary files.
const TEMPORARY_PREFIX: &str = "tmp-";
/// On file systems without locks, temporary files of this age are considered abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Opens a regular file for reading. Returns `None` if the path is something else; never follows a link or blocks on a
/// pipe.
pub(super) fn open_to_read(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let mut options = OpenOptions::new();
    options.read(true);
    // On Windows, read access alone does not allow setting the time of last use.
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::access_mode(&mut options, GENERIC_READ | FILE_WRITE_ATTRIBUTES);
    open_regular(path, &mut options)
}

#[cfg(windows)]
const GENERIC_READ: u32 = 0x8000_0000;
#[cfg(windows)]
const FILE_WRITE_ATTRIBUTES: u32 = 0x0100;

/// Opens or creates a file that all users of the store lock and write.
pub(super) fn open_shared(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let not_a_file = || io::Error::other("expected a regular file, found something else");
    open_regular(path, &mut options)?.map(|(file, _)| file).ok_or_else(not_a_file)
}

#[cfg(unix)]
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<Option<(File, Metadata)>> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    // Without `NONBLOCK`, opening a pipe would wait for a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.custom_flags(flags.bits().cast_signed());
    open_checked(path, options)
}

#[cfg(not(unix))]
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<Option<(File, Metadata)>> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(None);
    }
    open_checked(path, options)
}

fn open_checked(path: &Path, options: &OpenOptions) -> io::Result<Option<(File, Metadata)>> {
    match options.open(path) {
        Ok(file) => {
            // Checked on the open file, so that the path cannot be replaced in between.
            let metadata = file.metadata()?;
            Ok(metadata.is_file().then_some((file, metadata)))
        }
        // A link or a socket; on some systems also a directory.
        Err(_) if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file, or a directory with its content, without following links. Returns false if it did not exist.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).map(|()| true),
            _ => Err(error),
        },
    }
}

/// A temporary file of the store, accessible to this user only. It is removed on drop unless it was renamed.
///
/// It is locked while its writer is alive: a temporary file that can be locked was abandoned and may be removed.
pub(super) struct Temporary {
    pub(super) file: File,
    path: TempPath,
}

impl Temporary {
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        let (file, path) = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(dir)?.into_parts();
        // If locks are unsupported, or a cleanup removed the file before it was locked, the rename fails later.
        let _ = file.try_lock();
        Ok(Self { file, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to `place`, replacing what is there.
    pub(super) fn rename(self, place: &Path) -> io::Result<()> {
        // A rename is atomic: readers see the old file or the complete new one.
        self.path.persist(place).or_else(|PathPersistError { error, path }| match fs::symlink_metadata(place) {
            // A rename replaces anything except a directory.
            Ok(metadata) if metadata.is_dir() => remove(place).and_then(|_| Ok(path.persist(place)?)),
            _ => Err(error),
        })
    }
}

/// Returns the temporary files in a directory whose writers are gone.
pub(super) fn abandoned_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_temporary = entry.file_name().to_str().is_some_and(|name| name.starts_with(TEMPORARY_PREFIX));
        if is_temporary && is_abandoned(&entry.path()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Removes the temporary files whose writers are gone and returns their number.
pub(super) fn remove_abandoned_files(dir: &Path) -> io::Result<u64> {
    Ok(abandoned_files(dir)?.iter().map(|path| u64::from(remove(path).unwrap_or_default())).sum())
}

fn is_abandoned(path: &Path) -> bool {
    let Ok(Some((file, metadata))) = open_regular(path, OpenOptions::new().read(true).write(true)) else {
        return false;
    };
    match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        // The file system has no locks, so only the age tells whether the writer is still alive.
        Err(TryLockError::Error(_)) => {
            let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            age.is_some_and(|age| age > ABANDONED_AFTER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Temporary files of live writers are kept; those of dead writers are removed, and no other files.
    #[test]
    fn only_temporary_files_without_a_writer_are_abandoned() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join("tmp-1-dead");
        for path in [&dead, &dir.path().join("other")] {
            fs::write(path, "x").unwrap();
        }
        fs::create_dir(dir.path().join("tmp-folder")).unwrap();
        let alive = Temporary::create(dir.path()).unwrap();
        assert_eq!(abandoned_files(dir.path()).unwrap(), [dead]);
        assert_eq!(remove_abandoned_files(dir.path()).unwrap(), 1);
        assert!(alive.path().exists());
        let place = dir.path().join("place");
        alive.rename(&place).unwrap();
        assert!(place.exists());
        let dropped = Temporary::create(dir.path()).unwrap();
        let path = dropped.path().to_path_buf();
        drop(dropped);
        assert!(!path.exists());
    }
}
