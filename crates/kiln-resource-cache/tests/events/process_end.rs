//! Nothing is lost however a process ends. Each test runs itself again as a child process, which ends badly.

use crate::record::{ask, key_of_line, keys_in_files, quiet_cache};
use kiln_resource_cache::events::JsonlSink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Set for a child: the file that it writes its events to.
const EVENT_FILE: &str = "KILN_CACHE_TEST_EVENT_FILE";
const EVENTS: u64 = 1000;

#[test]
fn nothing_is_lost_at_exit() {
    if let Some(path) = event_file() {
        tell_events(&path);
        std::process::exit(7);
    }
    let (status, keys) = run_as_child("process_end::nothing_is_lost_at_exit");
    assert_eq!(status.code(), Some(7));
    assert_eq!(keys, (0..EVENTS).collect::<Vec<_>>());
}

#[test]
fn nothing_is_lost_at_abort() {
    if let Some(path) = event_file() {
        tell_events(&path);
        std::process::abort();
    }
    let (status, keys) = run_as_child("process_end::nothing_is_lost_at_abort");
    assert!(!status.success() && status.code() != Some(101), "{status}: expected an abort, not a failed test");
    assert_eq!(keys, (0..EVENTS).collect::<Vec<_>>());
}

#[cfg(target_os = "linux")]
#[test]
fn a_line_that_the_disk_took_half_of_is_taken_back() {
    if let Some(path) = event_file() {
        let cache = quiet_cache(JsonlSink::open(&path).unwrap());
        ask(&cache, 0..100);
        assert_eq!(cache.metrics().size, 100, "lookups go on");
        let written = std::fs::read_to_string(&path).unwrap().lines().count() as u64;
        assert!((1..100).contains(&written), "{written} lines fit under the limit");
        assert_eq!(written + cache.sink_failures(), 100);
        return;
    }
    // The shell makes every write beyond one block fail half way, as a disk does that runs full, and not with a signal.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let status = run(command, &path, "process_end::a_line_that_the_disk_took_half_of_is_taken_back");
    assert!(status.success(), "{status}");
    let written = std::fs::read_to_string(&path).unwrap().len();
    assert!(
        written > 400 && !written.is_multiple_of(512),
        "{written} bytes: the line at the limit was cut, then taken back"
    );
    // With room again, the file goes on with whole lines.
    ask(&quiet_cache(JsonlSink::open(&path).unwrap()), [500]);
    let keys = keys_in_files(&path);
    let before = keys.len() as u64 - 1;
    assert_eq!(keys, (0..before).chain([500]).collect::<Vec<_>>());
}

/// The file for events, if this process is a child.
fn event_file() -> Option<PathBuf> {
    std::env::var_os(EVENT_FILE).map(PathBuf::from)
}

/// Tells events of a cache that is never dropped.
fn tell_events(path: &Path) {
    let cache = quiet_cache(JsonlSink::open(path).unwrap());
    ask(&cache, 0..EVENTS);
    std::mem::forget(cache);
}

/// Runs one test of this program as a child. Returns how it ended and the keys that it told, which are whole lines.
fn run_as_child(test: &str) -> (ExitStatus, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let status = run(Command::new(std::env::current_exe().unwrap()), &path, test);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.ends_with('\n'));
    (status, text.lines().filter_map(key_of_line).collect())
}

/// Runs the command, which is this program however wrapped, for one test. A core dump would land beside the file.
fn run(mut command: Command, path: &Path, test: &str) -> ExitStatus {
    command.args(["--exact", test]).env(EVENT_FILE, path).current_dir(path.parent().unwrap());
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
}
