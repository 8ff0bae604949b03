//! Fixtures: a store in a temporary directory, payloads derived from keys, and child processes.

use kiln_resource_cache::store::{DiskStore, Lookup, StoreOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set for a child process: the directory of the store.
const CHILD: &str = "KILN_CACHE_TEST_STORE";

pub(crate) struct Fixture {
    _folder: tempfile::TempDir,
    pub(crate) dir: PathBuf,
    pub(crate) store: DiskStore,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(StoreOptions::new())
    }

    pub(crate) fn with(options: StoreOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("store");
        let store = DiskStore::open(&dir, options).unwrap();
        Self { _folder: folder, dir, store }
    }

    /// Opens another handle to the same directory.
    pub(crate) fn reopen(&self) -> DiskStore {
        DiskStore::open(&self.dir, self.store.options().clone()).unwrap()
    }

    /// Returns the path of an entry's file.
    pub(crate) fn file_of(&self, key: &[u8]) -> PathBuf {
        self.dir.join("entries").join(blake3::hash(key).to_hex().as_str())
    }
}

/// Returns the names of the files next to the directory of entries.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

/// Returns the number of entry files and their total length, as reported by the file system.
pub(crate) fn on_disk(dir: &Path) -> (u64, u64) {
    fs::read_dir(dir.join("entries")).unwrap().fold((0, 0), |(count, bytes), entry| {
        // Another process may remove the file meanwhile.
        entry.unwrap().metadata().map_or((count, bytes), |metadata| (count + 1, bytes + metadata.len()))
    })
}

/// Returns the expected payload of a key, up to `max` bytes long.
pub(crate) fn payload_of(key: &[u8], max: usize) -> Vec<u8> {
    let hash = blake3::hash(key);
    let len = usize::from(hash.as_bytes()[0]) * 256 + usize::from(hash.as_bytes()[1]);
    let mut payload = vec![0; len % (max + 1)];
    blake3::Hasher::new().update(key).finalize_xof().fill(&mut payload);
    payload
}

pub(crate) fn hit(payload: &[u8]) -> Lookup {
    Lookup::Hit(payload.to_vec())
}

/// A small random number generator that is the same in each run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end` (splitmix64).
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Returns the directory of the store if this process is a child.
pub(crate) fn child_dir() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Creates a command that runs one test of this program as a child, with `number` as its seed.
pub(crate) fn child(test: &str, dir: &Path, number: u64) -> Command {
    of_child(Command::new(std::env::current_exe().unwrap()), test, dir, number)
}

/// Does the same below a shell that runs `script` first, which ends with `exec "$0" "$@"`.
pub(crate) fn child_below(shell: &[&str], script: &str, test: &str, dir: &Path) -> Command {
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).arg(script).arg(std::env::current_exe().unwrap());
    of_child(command, test, dir, 0)
}

fn of_child(mut command: Command, test: &str, dir: &Path, number: u64) -> Command {
    command.args(["--exact", test, "--nocapture"]).env(CHILD, dir).env("KILN_CACHE_TEST_SEED", number.to_string());
    command.stdout(Stdio::null());
    command
}

pub(crate) fn seed() -> u64 {
    std::env::var("KILN_CACHE_TEST_SEED").unwrap().parse().unwrap()
}
