//! No event is lost however a process ends. Each test runs itself again as a child process that ends abnormally.

use crate::record::{ask, key_of_line, quiet_cache};
use kiln_resource_cache::events::JsonlSink;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Set for a child: the file for its events.
const EVENT_FILE: &str = "KILN_CACHE_TEST_EVENT_FILE";
const EVENTS: u64 = 1000;

#[test]
fn nothing_is_lost_at_exit() {
    if let Some(path) = event_file() {
        emit_events(&path);
        std::process::exit(7);
    }
    let (status, keys) = run_as_child("process_end::nothing_is_lost_at_exit");
    assert_eq!(status.code(), Some(7));
    assert_eq!(keys, (0..EVENTS).collect::<Vec<_>>());
}

#[test]
fn nothing_is_lost_at_abort() {
    if let Some(path) = event_file() {
        emit_events(&path);
        std::process::abort();
    }
    let (status, keys) = run_as_child("process_end::nothing_is_lost_at_abort");
    assert!(!status.success() && status.code() != Some(101), "{status}: expected an abort, not a failed test");
    assert_eq!(keys, (0..EVENTS).collect::<Vec<_>>());
}

/// Returns the file for events if this process is a child.
fn event_file() -> Option<PathBuf> {
    std::env::var_os(EVENT_FILE).map(PathBuf::from)
}

/// Emits events of a cache that is never dropped.
fn emit_events(path: &Path) {
    let cache = quiet_cache(JsonlSink::new(File::create(path).unwrap()));
    ask(&cache, 0..EVENTS);
    std::mem::forget(cache);
}

/// Runs a test of this program as a child. Returns its exit status and the keys that it wrote as complete lines.
fn run_as_child(test: &str) -> (ExitStatus, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let status = run(Command::new(std::env::current_exe().unwrap()), &path, test);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.ends_with('\n'));
    (status, text.lines().filter_map(key_of_line).collect())
}

/// Runs the command, which wraps this program, for one test. Core dumps are disabled.
fn run(mut command: Command, path: &Path, test: &str) -> ExitStatus {
    command.args(["--exact", test]).env(EVENT_FILE, path).current_dir(path.parent().unwrap());
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
}
