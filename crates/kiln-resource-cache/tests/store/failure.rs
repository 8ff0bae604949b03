//! Disks that are full, read-only or locked by a hanging process: puts fail, lookups continue.

use crate::fixture::{Fixture, child_below, child_dir, hit, names};
use kiln_resource_cache::MockClock;
use kiln_resource_cache::store::{DiskStore, Lookup, PutOutcome, StoreErrorKind, StoreOptions, Writing};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const IN_NAMESPACE: [&str; 4] = ["unshare", "-rm", "sh", "-ec"];

/// Returns whether this system supports mount namespaces, and prints a message if not.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "a test that is skipped must say so")]
fn has_namespaces(test: &str) -> bool {
    let works = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|output| output.status.success());
    if !works {
        println!("{test}: `unshare -rm` does not work here; the part with a file system of its own is skipped");
    }
    works
}

/// Counts warnings of one test.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicU64>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::Id, _follows: &tracing::Id) {}

    fn event(&self, _event: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _span: &tracing::Id) {}

    fn exit(&self, _span: &tracing::Id) {}
}

/// Runs the code and counts its warnings.
fn warnings_of(run: impl FnOnce()) -> u64 {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), run);
    warnings.0.load(Ordering::Relaxed)
}

fn run(mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An unwritable directory is reported once. Uses a read-only file system, which stops even root.
#[cfg(target_os = "linux")]
#[test]
fn read_only_file_system_opens_for_reading() {
    const TEST: &str = "failure::read_only_file_system_opens_for_reading";
    if let Some(dir) = child_dir() {
        expect_read_only(&dir);
        return;
    }
    let fixture = Fixture::new();
    fixture.store.put(b"key", b"payload").unwrap();
    fixture.store.put(b"bad", b"payload").unwrap();
    std::fs::write(fixture.file_of(b"bad"), "damage").unwrap();
    let script = "mount --bind \"$KILN_CACHE_TEST_STORE\" \"$KILN_CACHE_TEST_STORE\"
        mount -o remount,ro,bind \"$KILN_CACHE_TEST_STORE\"; exec \"$0\" \"$@\"";
    if has_namespaces(TEST) {
        run(child_below(&IN_NAMESPACE, script, TEST, &fixture.dir));
    } else if rustix::process::geteuid().is_root() {
        as_nobody(TEST, &fixture);
    } else {
        read_only_by_mode(&fixture.dir, || expect_read_only(&fixture.dir));
    }
    assert!(fixture.file_of(b"bad").exists(), "nothing was changed");
}

/// Without namespaces, runs the test as another user with a restrictive mode.
#[cfg(target_os = "linux")]
fn as_nobody(test: &str, fixture: &Fixture) {
    const NOBODY: u32 = 65534;
    let folder = fixture.dir.parent().unwrap();
    let program = folder.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [folder, &fixture.dir, &fixture.dir.join("entries"), &fixture.file_of(b"key"), &fixture.file_of(b"bad")]
    {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    std::fs::remove_file(fixture.dir.join("lock")).unwrap();
    let shell = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-ec"];
    let script = "shift; chmod 500 \"$KILN_CACHE_TEST_STORE\"; exec \"$(dirname \"$KILN_CACHE_TEST_STORE\")/test\" --exact \"$@\"";
    run(child_below(&shell, script, test, &fixture.dir));
}

#[cfg(target_os = "linux")]
fn read_only_by_mode(dir: &Path, test: impl FnOnce()) {
    use std::os::unix::fs::PermissionsExt;
    let set = |mode| std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::remove_file(dir.join("lock")).unwrap();
    set(0o500);
    test();
    set(0o700);
}

#[cfg(target_os = "linux")]
fn expect_read_only(dir: &Path) {
    let warnings = warnings_of(|| {
        let store = DiskStore::open(dir, StoreOptions::new()).unwrap();
        assert_eq!(store.get(b"key"), hit(b"payload"));
        assert_eq!(store.get(b"none"), Lookup::Miss);
        for _ in 0..2 {
            assert!(matches!(store.get(b"bad"), Lookup::Rejected(_)), "cannot be removed, and is not used");
            assert_eq!(store.put(b"new", b"payload").unwrap(), PutOutcome::ReadOnly);
        }
        for kind in [
            store.remove(b"key").unwrap_err().kind(),
            store.clear().unwrap_err().kind(),
            store.prune(kiln_resource_cache::store::PruneTarget::default()).unwrap_err().kind(),
            store.verify(true).unwrap_err().kind(),
        ] {
            assert_eq!(kind, StoreErrorKind::NotWritable);
        }
        let report = store.verify(false).unwrap();
        assert_eq!((report.entries, report.bad.len()), (1, 1));
        let statistics = store.statistics();
        assert_eq!((statistics.hits, statistics.puts_not_tried, statistics.entries), (1, 2, 2));
        let Writing::ReadOnly(reason) = statistics.writing else { panic!("{:?}", statistics.writing) };
        assert!(reason.starts_with("cannot open "), "{reason}");
        assert_eq!(store.entries().unwrap().len(), 1);
    });
    assert_eq!(warnings, 1, "said once");
}

/// A full disk is reported once. Uses a file system with room for a few entries.
#[cfg(target_os = "linux")]
#[test]
fn full_disk_pauses_puts_and_not_lookups() {
    const TEST: &str = "failure::full_disk_pauses_puts_and_not_lookups";
    if let Some(dir) = child_dir() {
        expect_full(&dir.join("store"), 10_000);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=128k,mode=700 none \"$KILN_CACHE_TEST_STORE\"; exec \"$0\" \"$@\"";
    if has_namespaces(TEST) {
        run(child_below(&IN_NAMESPACE, script, TEST, folder.path()));
    }
}

/// The same with a file size limit, which works everywhere.
#[cfg(unix)]
#[test]
fn file_size_limit_pauses_puts_and_not_lookups() {
    const TEST: &str = "failure::file_size_limit_pauses_puts_and_not_lookups";
    if let Some(dir) = child_dir() {
        let clock = MockClock::new();
        let store = DiskStore::open(dir.join("store"), StoreOptions::new().with_clock(clock.clone())).unwrap();
        store.put(b"small", b"payload").unwrap();
        let error = store.put(b"large", &[7; 100_000]).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::DiskFull, "{error}");
        assert_eq!(names(store.path()), ["entries", "lock"], "the file that was cut is gone");
        assert_eq!(store.put(b"more", b"payload").unwrap(), PutOutcome::Paused);
        clock.advance(Duration::from_secs(30));
        assert_eq!(store.put(b"more", b"payload").unwrap(), PutOutcome::Stored);
        assert_eq!(store.get(b"small"), hit(b"payload"));
        assert_eq!(store.get(b"large"), Lookup::Miss);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Without the trap, the signal would end the process.
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"";
    run(child_below(&["sh", "-ec"], script, TEST, folder.path()));
}

#[cfg(target_os = "linux")]
fn expect_full(dir: &Path, payload_bytes: usize) {
    let payload = vec![7; payload_bytes];
    let key = |number: u64| number.to_le_bytes();
    let warnings = warnings_of(|| {
        let clock = MockClock::new();
        let store = DiskStore::open(dir, StoreOptions::new().with_clock(clock.clone())).unwrap();
        let mut stored = 0;
        let error = loop {
            match store.put(&key(stored), &payload) {
                Ok(outcome) => assert_eq!(outcome, PutOutcome::Stored),
                Err(error) => break error,
            }
            stored += 1;
            assert!(stored < 1000, "the disk is not full after {stored} entries");
        };
        assert_eq!(error.kind(), StoreErrorKind::DiskFull, "{error}");
        assert!(stored > 2, "{stored}");
        assert_eq!(names(dir), ["entries", "lock"], "the file that was cut is gone");
        assert_eq!(store.put(b"more", &payload).unwrap(), PutOutcome::Paused);
        assert!(matches!(store.statistics().writing, Writing::Paused(_)));
        for number in 0..stored {
            assert_eq!(store.get(&key(number)), hit(&payload), "lookups go on");
        }
        assert_eq!(store.get(&key(stored)), Lookup::Miss);
        // Puts are tried again after the pause, and fail again.
        clock.advance(Duration::from_secs(30));
        assert_eq!(store.put(b"more", &payload).unwrap_err().kind(), StoreErrorKind::DiskFull);
        // Another process frees space.
        assert!(store.remove(&key(0)).unwrap() && store.remove(&key(1)).unwrap());
        assert_eq!(store.put(b"more", &payload).unwrap(), PutOutcome::Paused);
        clock.advance(Duration::from_secs(30));
        assert_eq!(store.put(b"more", &payload).unwrap(), PutOutcome::Stored);
        let statistics = store.statistics();
        assert_eq!((statistics.puts, statistics.put_failures, statistics.puts_not_tried), (stored + 1, 2, 2));
        assert_eq!((statistics.entries, statistics.writing), (stored - 1, Writing::On));
    });
    assert_eq!(warnings, 1, "said once");
}

/// A process that holds the lock and hangs does not block others forever.
#[test]
fn busy_lock_is_an_error_and_not_a_hang() {
    let clock = MockClock::new();
    let fixture = Fixture::with(StoreOptions::new().with_clock(clock.clone()));
    fixture.store.put(b"key", b"payload").unwrap();
    let lock = std::fs::File::options().write(true).open(fixture.dir.join("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(fixture.store.put(b"new", b"payload").unwrap_err().kind(), StoreErrorKind::Busy);
    assert_eq!(fixture.store.put(b"new", b"payload").unwrap(), PutOutcome::Paused);
    assert_eq!(fixture.store.get(b"key"), hit(b"payload"), "a lookup takes no lock");
    lock.unlock().unwrap();
    clock.advance(Duration::from_secs(30));
    assert_eq!(fixture.store.put(b"new", b"payload").unwrap(), PutOutcome::Stored);
}

/// An entry that cannot be read is counted as unreadable and kept. Here no file can be opened.
#[cfg(unix)]
#[test]
fn unreadable_entry_is_counted_and_stays() {
    const TEST: &str = "failure::unreadable_entry_is_counted_and_stays";
    if let Some(dir) = child_dir() {
        let store = DiskStore::open(dir.join("store"), StoreOptions::new()).unwrap();
        store.put(b"key", b"payload").unwrap();
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        assert!(matches!(store.get(b"key"), Lookup::Unreadable(_)));
        drop(files);
        assert_eq!(store.get(b"key"), hit(b"payload"));
        assert_eq!((store.statistics().unreadable, store.statistics().hits), (1, 1));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    run(child_below(&["sh", "-ec"], "ulimit -n 100; exec \"$0\" \"$@\"", TEST, folder.path()));
}

/// A directory that cannot be removed, because it contains a mount, only obstructs its own entry.
#[cfg(target_os = "linux")]
#[test]
fn obstructed_place_does_not_pause_puts() {
    const TEST: &str = "failure::obstructed_place_does_not_pause_puts";
    if let Some(dir) = child_dir() {
        let store = DiskStore::open(&dir, StoreOptions::new()).unwrap();
        store.put(b"key", b"payload").unwrap_err();
        assert_eq!(store.put(b"other", b"payload").unwrap(), PutOutcome::Stored);
        store.put(b"key", b"payload").unwrap_err();
        let statistics = store.statistics();
        assert_eq!((statistics.put_failures, statistics.entries, statistics.writing), (2, 1, Writing::On));
        assert!(!store.verify(true).unwrap().repaired);
        assert_eq!(store.clear().unwrap_err().kind(), StoreErrorKind::NotWritable);
        return;
    }
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.file_of(b"key")).unwrap();
    let script = "for place in \"$KILN_CACHE_TEST_STORE\"/entries/*; do mount -t tmpfs none \"$place\"; done
        exec \"$0\" \"$@\"";
    if has_namespaces(TEST) {
        run(child_below(&IN_NAMESPACE, script, TEST, &fixture.dir));
    }
}

#[test]
fn entries_that_cannot_be_stored_say_so() {
    let fixture = Fixture::with(StoreOptions::new().with_max_bytes(1 << 21));
    let long_key = vec![0; kiln_resource_cache::store::MAX_KEY_BYTES + 1];
    assert_eq!(fixture.store.put(&long_key, b"").unwrap(), PutOutcome::TooLarge);
    assert_eq!(fixture.store.put(&long_key[1..], b"").unwrap(), PutOutcome::Stored);
    assert_eq!(fixture.store.get(&long_key[1..]), hit(b""));
    let header_bytes = 64;
    let exact = vec![0; (1 << 21) - header_bytes - 3];
    assert_eq!(fixture.store.put(b"keys", &exact).unwrap(), PutOutcome::TooLarge);
    assert_eq!(fixture.store.put(b"key", &exact).unwrap(), PutOutcome::Stored);
    assert_eq!(fixture.store.get(b"key"), hit(&exact));
    assert_eq!(fixture.store.statistics().puts_not_tried, 2);
}
