//! Files that appear whole or not at all: written under another name, then renamed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

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
        let place = match fs::metadata(path) {
            // A rename would put a file in the place of a device or a pipe.
            Ok(metadata) if !metadata.is_file() => {
                return Err(named(io::Error::other("expected a file or nothing there, found something else")));
            }
            // Behind a link, what it leads to is replaced, as if it were written.
            Ok(_) => fs::canonicalize(path).map_err(named)?,
            Err(_) => path.to_path_buf(),
        };
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Asked for by itself, so that the error is not about the temporary file.
        fs::metadata(folder).map_err(named)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kiln-").suffix(".tmp");
        // As for any new file: the user's mask decides who can read it.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let temporary = builder.tempfile_in(folder).map_err(named)?;
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
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&file), mode(&plain), "as for any new file");
        for path in [folder.path(), Path::new("/dev/null"), Path::new("/nonexistent/a")] {
            let error = NewFile::create(path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        }
    }
}
