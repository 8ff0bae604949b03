//! Atomic replacement of files: writes to a temporary file, then renames it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The maximum number of symbolic links that are followed.
const MAX_LINKS: u32 = 40;

/// A file that replaces another one when it is committed. Dropping it without [`commit`](Self::commit) removes it.
///
/// Symbolic links are followed, the permissions of a replaced file are kept, and a read-only file is not replaced.
/// Errors contain the path.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use std::io::Write;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report");
/// let mut file = kiln_resource_cache::new_file::NewFile::create(&path)?;
/// file.write_all(b"all of it")?;
/// file.sync_all()?; // only if it must survive a power loss
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NewFile {
    temporary: NamedTempFile,
    place: PathBuf,
}

impl NewFile {
    /// Creates a temporary file in the directory of `path`.
    ///
    /// # Errors
    /// Returns `PermissionDenied` if `path` is a read-only file, `Other` if it exists and is not a file, and the errors
    /// of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let with_path = |error: io::Error| with_path(path, &error);
        let old = match fs::metadata(path) {
            // A rename ignores the permissions of the file that it replaces.
            Ok(metadata) if metadata.is_file() && metadata.permissions().readonly() => {
                return Err(with_path(io::Error::new(io::ErrorKind::PermissionDenied, "the file there is read-only")));
            }
            Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
            // A rename would replace a device or a pipe by a file.
            Ok(_) => {
                return Err(with_path(io::Error::other("expected a regular file or no file, found something else")));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(with_path(error)),
        };
        // The target of a link is replaced, not the link.
        let place = resolve(path).map_err(with_path)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kiln-").suffix(".tmp");
        // In the directory of the target, because a rename cannot cross file systems.
        let temporary = create_temporary(&mut builder, parent_of(&place), old.as_ref()).map_err(with_path)?;
        Ok(Self { temporary, place })
    }

    /// Waits until the content is on disk, so that it survives a power loss after [`commit`](Self::commit).
    ///
    /// # Errors
    /// Returns the errors of the system.
    pub fn sync_all(&self) -> io::Result<()> {
        self.temporary.as_file().sync_all().map_err(|error| with_path(&self.place, &error))
    }

    /// Renames the file to its path.
    ///
    /// # Errors
    /// Returns the errors of the system. The existing file is then unchanged.
    pub fn commit(self) -> io::Result<()> {
        self.temporary.persist(&self.place).map(drop).map_err(|fault| with_path(&self.place, &fault.error))
    }
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

/// Creates the temporary file, with the permissions of the file that it replaces.
#[cfg(unix)]
fn create_temporary(
    builder: &mut tempfile::Builder<'_, '_>,
    folder: &Path,
    old: Option<&fs::Permissions>,
) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let Some(old) = old else {
        // The umask applies, as for any new file.
        return builder.permissions(fs::Permissions::from_mode(0o666)).tempfile_in(folder);
    };
    let same = fs::Permissions::from_mode(old.mode() & 0o777);
    // Set at creation, so that no other user can open it before; and again, because the umask applies at creation.
    let temporary = builder.permissions(same.clone()).tempfile_in(folder)?;
    temporary.as_file().set_permissions(same)?;
    Ok(temporary)
}

#[cfg(not(unix))]
fn create_temporary(
    builder: &mut tempfile::Builder<'_, '_>,
    folder: &Path,
    _old: Option<&fs::Permissions>,
) -> io::Result<NamedTempFile> {
    builder.tempfile_in(folder)
}

/// Resolves the symbolic links in a path. The file need not exist, but its directory must.
///
/// [`NewFile::create`] resolves its path with it; see [`NewFile`] for an example.
///
/// # Errors
/// Returns the errors of the system, and `Other` for a cycle of links.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Some(name) = place.file_name() else { return fs::canonicalize(&place) };
        let folder = fs::canonicalize(parent_of(&place))?;
        place = folder.join(name);
        match fs::read_link(&place) {
            // An absolute target replaces `folder`; a relative one starts at the directory of the link.
            Ok(target) => place = folder.join(target),
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::other("expected symbolic links that resolve, found a cycle"))
}

fn parent_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.as_file_mut().write(bytes).map_err(|error| with_path(&self.place, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.as_file_mut().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn file_is_there_only_after_commit_and_nothing_else_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for content in ["one", "two"] {
            let mut file = NewFile::create(&path).unwrap();
            file.write_all(b"never seen").unwrap();
            drop(file);
            let mut file = NewFile::create(&path).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            assert_ne!(fs::read_to_string(&path).unwrap_or_default(), content);
            file.commit().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(names(folder.path()), ["a"]);
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_to_the_file_and_folders_are_not_replaced() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        let mut new = NewFile::create(&link).unwrap();
        new.write_all(b"new").unwrap();
        new.commit().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        let guarded = folder.path().join("guarded");
        fs::write(&guarded, "kept").unwrap();
        fs::set_permissions(&guarded, fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(NewFile::create(&guarded).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::set_permissions(&guarded, fs::Permissions::from_mode(0o644)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&file), mode(&plain), "as for any new file");
        for path in [folder.path(), Path::new("/dev/null"), Path::new("/nonexistent/a")] {
            let error = NewFile::create(path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        for mode in [0o600, 0o640, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let new = NewFile::create(&path).unwrap();
            assert_eq!(
                new.temporary.as_file().metadata().unwrap().permissions().mode() & 0o777,
                mode,
                "before the end"
            );
            new.commit().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[cfg(unix)]
    #[test]
    fn link_that_leads_to_nothing_is_written_through() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("below")).unwrap();
        symlink("below/second", at("first")).unwrap();
        symlink("file", at("below/second")).unwrap();
        let mut new = NewFile::create(&at("first")).unwrap();
        new.write_all(b"new").unwrap();
        new.commit().unwrap();
        assert!(fs::symlink_metadata(at("first")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("below/file")).unwrap(), "new");
        symlink("ring", at("ring")).unwrap();
        let error = NewFile::create(&at("ring")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}: ", at("ring").display())), "{error}");
    }
}
