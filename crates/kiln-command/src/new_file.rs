//! Files that appear whole or not at all: written under another name, then renamed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Links that are followed one after the other before they count as a ring.
const MAX_LINKS: u32 = 40;

/// A file in the making. Dropping it without [`commit`](Self::commit) leaves no trace.
#[derive(Debug)]
pub(crate) struct NewFile {
    temporary: NamedTempFile,
    place: PathBuf,
}

impl NewFile {
    /// Begins a file for this place, where nothing, or a file that it will replace, may be.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()));
        let old = match fs::metadata(path) {
            // A rename would not ask.
            Ok(metadata) if metadata.is_file() && metadata.permissions().readonly() => {
                return Err(named(io::Error::new(io::ErrorKind::PermissionDenied, "the file there is read-only")));
            }
            Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
            // A rename would put a file in the place of a device or a pipe.
            Ok(_) => return Err(named(io::Error::other("expected a file or nothing there, found something else"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(named(error)),
        };
        // Behind a link, what it leads to is replaced, as if it were written.
        let place = resolve(path).map_err(named)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kiln-").suffix(".tmp");
        let temporary = begin(&mut builder, folder_of(&place), old.as_ref()).map_err(named)?;
        Ok(Self { temporary, place })
    }

    /// Puts the file in its place.
    pub(crate) fn commit(self) -> io::Result<()> {
        let named = |error: &io::Error| format!("cannot write {}: {error}", self.place.display());
        match self.temporary.persist(&self.place) {
            Ok(_) => Ok(()),
            Err(fault) => Err(io::Error::new(fault.error.kind(), named(&fault.error))),
        }
    }
}

/// Makes the temporary file. Those who can read it are those who can read what it replaces.
#[cfg(unix)]
fn begin(
    builder: &mut tempfile::Builder<'_, '_>,
    folder: &Path,
    old: Option<&fs::Permissions>,
) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let Some(old) = old else {
        // As for any new file: the user's mask decides who can read it.
        return builder.permissions(fs::Permissions::from_mode(0o666)).tempfile_in(folder);
    };
    let same = fs::Permissions::from_mode(old.mode() & 0o777);
    // From the start, so that nobody opens it before; again, because the user's mask takes a part of it away.
    let temporary = builder.permissions(same.clone()).tempfile_in(folder)?;
    temporary.as_file().set_permissions(same)?;
    Ok(temporary)
}

#[cfg(not(unix))]
fn begin(
    builder: &mut tempfile::Builder<'_, '_>,
    folder: &Path,
    _old: Option<&fs::Permissions>,
) -> io::Result<NamedTempFile> {
    builder.tempfile_in(folder)
}

/// The one place that a path stands for, with links followed. Nothing has to be there, but its folder does.
pub(crate) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Some(name) = place.file_name() else { return fs::canonicalize(&place) };
        let folder = fs::canonicalize(folder_of(&place))?;
        place = folder.join(name);
        match fs::read_link(&place) {
            Ok(target) => place = folder.join(target),
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::other("expected links that lead somewhere, found a ring of them"))
}

fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
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
    fn replaced_file_keeps_who_can_read_it() {
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
