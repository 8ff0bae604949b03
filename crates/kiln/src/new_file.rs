//! Files that appear whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// What a file survives once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The end of the process.
    #[cfg(feature = "events")]
    Process,
    /// A loss of power.
    Disk,
}

/// Writes beside the file, and puts it in its place when it is whole.
pub(crate) fn write(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.{:?}.new", std::process::id(), std::thread::current().id()));
    let beside = Path::new(&beside);
    // What a process of the same number left is removed; a link in its place is not followed.
    let _ = fs::remove_file(beside);
    let created = fs::OpenOptions::new().write(true).create_new(true).open(beside);
    let written = created.and_then(|mut file| {
        file.write_all(bytes)?;
        if durability == Durability::Disk { file.sync_all() } else { Ok(()) }
    });
    let done = written.and_then(|()| fs::rename(beside, path));
    if done.is_err() {
        // What is half written is of no use; that it cannot be removed is not what went wrong.
        let _ = fs::remove_file(beside);
    }
    done
}
