//! The directory for data that Kiln keeps between runs (compiled kernels): its location, and whether it can be trusted.
//!
//! Its contents are passed to a driver, so no other user may be able to write there.

use kiln::cache::store::{DirectoryFaultKind, check_directory, make_private_command};
use serde::{Serialize, Serializer};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The variable that overrides the directory.
pub(crate) const VARIABLE: &str = "KILN_CACHE_DIR";

/// Maximum number of counted files, because the variable may name anything, even `/`.
const MAX_FILES_COUNTED: u64 = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CacheDir {
    /// Path; `None` if the system has no cache directory.
    #[serde(serialize_with = "lossy")]
    pub(crate) path: Option<PathBuf>,
    /// `KILN_CACHE_DIR`, or `default`.
    pub(crate) source: &'static str,
    pub(crate) state: CacheDirState,
    /// Description of the fault; `None` if the state is `ready` or `not-created`.
    pub(crate) fault: Option<String>,
    /// How to fix it or keep it private: a command, or a setting to change.
    pub(crate) fix: Option<String>,
    /// Whether other users can read it; `None` if unknown.
    pub(crate) others_can_read: Option<bool>,
    /// Contents; `None` if it was not scanned.
    pub(crate) contents: Option<Contents>,
    /// Free space for this user on its file system; `None` if the system does not report it.
    pub(crate) free_bytes: Option<u64>,
}

/// Whether the cache directory can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CacheDirState {
    /// It exists and belongs to this user alone.
    Ready,
    /// It does not exist; the first use can create it.
    NotCreated,
    /// Another user can modify its contents.
    Refused,
    /// It cannot be written or created, which only [`CacheDir::measured`] detects.
    Unwritable,
    /// The path is not a directory, or there is no path.
    Invalid,
}

/// Contents of the cache directory, including subdirectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Contents {
    pub(crate) files: u64,
    /// Total length of the files.
    pub(crate) bytes: u64,
    /// Whether everything was counted.
    pub(crate) complete: bool,
}

impl CacheDir {
    /// Returns the directory of the environment and whether it can be trusted. Takes constant time, independent of its
    /// contents; [`measured`](Self::measured) fills in the rest.
    pub(crate) fn of_environment() -> Self {
        Self::of(std::env::var_os(VARIABLE).as_deref(), kiln::cache::cache_dir())
    }

    /// Returns the directory for a value of the variable and the system's default cache directory.
    fn of(variable: Option<&OsStr>, default: Option<PathBuf>) -> Self {
        // An empty variable counts as unset, as for every other variable that names a directory.
        match (variable.filter(|value| !value.is_empty()), default) {
            (Some(value), _) if Path::new(value).is_absolute() => Self::check(Path::new(value), VARIABLE),
            (Some(value), _) => {
                let fault = format!("{VARIABLE} expected an absolute path, found `{}`", value.to_string_lossy());
                let fix = format!("set {VARIABLE} to an absolute path, or unset it");
                Self::new(Some(value.into()), VARIABLE, CacheDirState::Invalid).with_fault(fault, fix)
            }
            (None, Some(path)) => Self::check(&path, "default"),
            (None, None) => {
                let fault = "expected a home directory, found none".to_string();
                let fix = format!("set HOME, or set {VARIABLE} to an absolute path");
                Self::new(None, "default", CacheDirState::Invalid).with_fault(fault, fix)
            }
        }
    }

    fn new(path: Option<PathBuf>, source: &'static str, state: CacheDirState) -> Self {
        Self { path, source, state, fault: None, fix: None, others_can_read: None, contents: None, free_bytes: None }
    }

    fn with_fault(mut self, fault: String, fix: String) -> Self {
        (self.fault, self.fix) = (Some(fault), Some(fix));
        self
    }

    fn check(path: &Path, source: &'static str) -> Self {
        let dir = |state| Self::new(Some(path.to_path_buf()), source, state);
        let invalid = |fault: String| dir(CacheDirState::Invalid).with_fault(fault, elsewhere());
        let Some(nearest) = nearest(path) else { return invalid("expected a path that can be reached".to_string()) };
        match fs::metadata(nearest) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return invalid(format!("expected a directory, found a file: {}", nearest.display())),
            Err(error) => return invalid(format!("expected a directory, found: {}: {error}", nearest.display())),
        }
        let exists = nearest == path;
        // The same check as when a store is opened, so the report agrees with what a program will do.
        let others_can_read = match exists.then(|| check_directory(path)) {
            Some(Ok(trusted)) => trusted.others_can_read,
            Some(Err(fault)) => {
                let own = || format!("set {VARIABLE} to a directory of your own");
                // The user may want the target of the link, so the fix does not remove the link.
                let fix = match fault.kind {
                    DirectoryFaultKind::Link => Some(format!("set {VARIABLE} to the directory itself")),
                    _ => fault.fix,
                };
                return dir(CacheDirState::Refused).with_fault(fault.fault, fix.unwrap_or_else(own));
            }
            None => None,
        };
        let state = if exists { CacheDirState::Ready } else { CacheDirState::NotCreated };
        let fix = (others_can_read == Some(true)).then(|| make_private_command(path));
        Self { fix, others_can_read, ..dir(state) }
    }

    /// Adds whether it can be written, its contents, and the free space. Creates and changes nothing.
    pub(crate) fn measured(self) -> Self {
        let exists = match self.state {
            CacheDirState::Ready => true,
            CacheDirState::NotCreated => false,
            _ => return self,
        };
        let Some((path, nearest)) = self.path.as_deref().and_then(|path| Some((path, nearest(path)?))) else {
            return self;
        };
        if let Err(error) = probe(nearest) {
            let verb = if exists { "write to" } else { "create it in" };
            let fault = format!("cannot {verb} {}: {error}", nearest.display());
            return Self::new(self.path, self.source, CacheDirState::Unwritable).with_fault(fault, elsewhere());
        }
        let (contents, free_bytes) = (exists.then(|| count(path)), free_bytes(nearest));
        Self { contents, free_bytes, ..self }
    }
}

/// Returns the directory itself, or the nearest existing ancestor. A dangling link counts as existing.
fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors().find(|ancestor| fs::symlink_metadata(ancestor).is_ok())
}

fn elsewhere() -> String {
    format!("set {VARIABLE} to a directory that you can write")
}

/// Serializes a path as text: JSON cannot represent other paths.
fn lossy<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}

/// Writes to an unnamed file: permissions alone do not reveal a read-only or full file system.
fn probe(dir: &Path) -> io::Result<()> {
    tempfile::tempfile_in(dir)?.write_all(b"kiln doctor")
}

fn count(dir: &Path) -> Contents {
    let mut contents = Contents { complete: true, ..Contents::default() };
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            contents.complete = false;
            continue;
        };
        for entry in entries.flatten() {
            // Does not follow links, so that cycles are impossible.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                contents.files += 1;
                contents.bytes += metadata.len();
            }
        }
        // Between folders only: a folder is always counted as a whole.
        if contents.files >= MAX_FILES_COUNTED {
            contents.complete = false;
            break;
        }
    }
    contents
}

#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn of(path: &Path) -> CacheDir {
        CacheDir::of(Some(path.as_os_str()), None)
    }

    #[test]
    fn variable_comes_before_the_default_unless_it_is_empty() {
        let (named, default) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let table = [
            (Some(named.path().as_os_str()), named.path(), VARIABLE),
            (Some(OsStr::new("")), default.path(), "default"),
            (None, default.path(), "default"),
        ];
        for (variable, path, source) in table {
            let dir = CacheDir::of(variable, Some(default.path().to_path_buf()));
            assert_eq!((dir.path.as_deref(), dir.source), (Some(path), source));
            assert_eq!(dir.state, CacheDirState::Ready);
        }
    }

    #[test]
    fn names_that_are_no_directory_are_invalid() {
        let root = tempfile::tempdir().unwrap();
        let (file, link) = (root.path().join("file"), root.path().join("link"));
        fs::write(&file, "x").unwrap();
        symlink(root.path().join("nowhere"), &link).unwrap();
        let table = [
            (CacheDir::of(Some(OsStr::new("a/b")), None), "KILN_CACHE_DIR expected an absolute path, found `a/b`"),
            (CacheDir::of(None, None), "expected a home directory, found none"),
            (of(&file), "expected a directory, found a file: "),
            (of(&file.join("kiln")), "expected a directory, found a file: "),
            (of(&link), "expected a directory, found: "),
            (of(&link.join("kiln")), "expected a directory, found: "),
        ];
        for (dir, fault) in table {
            assert_eq!(dir.state, CacheDirState::Invalid, "{dir:?}");
            assert!(dir.fault.as_deref().unwrap().starts_with(fault), "{dir:?}");
            assert!(dir.fix.is_some(), "{dir:?}");
        }
    }

    /// A directory that another user can write is refused with a clear message.
    #[test]
    fn directory_that_others_can_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("it's here");
        fs::create_dir(&path).unwrap();
        for (mode, state) in [
            (0o700, CacheDirState::Ready),
            (0o755, CacheDirState::Ready),
            (0o770, CacheDirState::Refused),
            (0o702, CacheDirState::Refused),
            (0o1777, CacheDirState::Refused),
        ] {
            set_mode(&path, mode);
            let dir = of(&path);
            assert_eq!(dir.state, state, "{mode:o}");
            let is_refused = state == CacheDirState::Refused;
            let chmod = format!(r"chmod 700 '{}/it'\''s here'", root.path().display());
            assert_eq!(dir.fix, (mode != 0o700).then_some(chmod), "{mode:o}");
            assert_eq!(dir.others_can_read, (!is_refused).then_some(mode == 0o755), "{mode:o}");
        }
        if !rustix::process::geteuid().is_root() {
            assert!(of(Path::new("/")).fault.is_some_and(|fault| fault.ends_with("found one of user id 0")));
        }
    }

    /// A link in place of the directory is refused, even one to a valid directory.
    #[test]
    fn link_in_its_place_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let (link, good) = (root.path().join("link"), root.path().join("good"));
        fs::create_dir(&good).unwrap();
        set_mode(&good, 0o700);
        symlink(&good, &link).unwrap();
        let dir = of(&link);
        assert_eq!(dir.state, CacheDirState::Refused);
        assert!(dir.fault.unwrap().starts_with("expected a directory, found a symbolic link: "));
        assert_eq!(dir.fix.as_deref(), Some("set KILN_CACHE_DIR to the directory itself"));
        assert_eq!(of(&link.join("kiln")).state, CacheDirState::NotCreated, "only the last name may not be a link");
    }

    #[test]
    fn missing_directory_is_not_made() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        let dir = of(&path).measured();
        assert_eq!((dir.state, dir.fault, dir.contents), (CacheDirState::NotCreated, None, None));
        assert!(dir.free_bytes.is_some_and(|bytes| bytes > 0));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "no files remain");
    }

    #[test]
    fn contents_are_counted_with_folders_below_and_without_links() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        fs::write(root.path().join("one"), [0; 10]).unwrap();
        fs::write(root.path().join("a/two"), [0; 100]).unwrap();
        symlink(root.path(), root.path().join("a/loop")).unwrap();
        let dir = of(root.path());
        assert_eq!((dir.contents, dir.free_bytes), (None, None), "only the doctor waits for them");
        let contents = dir.measured().contents.unwrap();
        assert_eq!((contents.files, contents.complete), (3, true));
        assert!(contents.bytes >= 110, "{contents:?}");
    }
}
