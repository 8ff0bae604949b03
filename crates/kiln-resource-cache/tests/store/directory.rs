//! The directory: created private, and rejected if other users can change it.
#![cfg(unix)]

use crate::fixture::{Fixture, child, child_dir, on_disk};
use kiln_resource_cache::store::{DirectoryFaultKind, DiskStore, StoreErrorKind, StoreOptions, check_directory};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

fn refusal(path: &Path) -> (StoreErrorKind, String) {
    let error = DiskStore::open(path, StoreOptions::new()).unwrap_err();
    (error.kind(), error.to_string())
}

/// Everything that the store creates is accessible to its owner only.
#[test]
fn directory_and_files_are_private() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/b/store");
    let store = DiskStore::open(&dir, StoreOptions::new()).unwrap();
    store.put(b"key", b"payload").unwrap();
    store.get(b"key");
    drop(store);
    for path in [root.path().join("a"), root.path().join("a/b"), dir.clone(), dir.join("entries")] {
        assert_eq!(mode(&path), 0o700, "{}", path.display());
    }
    let entry = fs::read_dir(dir.join("entries")).unwrap().next().unwrap().unwrap().path();
    for path in [dir.join("lock"), dir.join("usage"), entry] {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// A directory that another user can write is rejected with a clear message.
#[test]
fn directory_that_others_can_write_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("it's here");
    fs::create_dir(&dir).unwrap();
    for bad in [0o777, 0o770, 0o702, 0o720, 0o1777] {
        fs::set_permissions(&dir, Permissions::from_mode(bad)).unwrap();
        let (kind, message) = refusal(&dir);
        assert_eq!(kind, StoreErrorKind::Untrusted);
        let found = format!("expected a directory that only its owner can write, found mode {:03o}", bad & 0o777);
        assert!(message.contains(&found), "{message}");
        let chmod = format!(r"chmod 700 '{}/it'\''s here'", root.path().display());
        assert!(message.ends_with(&chmod), "{message}");
        assert_eq!(check_directory(&dir).unwrap_err().fix, Some(chmod));
    }
    for (good, others_can_read) in [(0o700, false), (0o755, true), (0o710, true)] {
        fs::set_permissions(&dir, Permissions::from_mode(good)).unwrap();
        DiskStore::open(&dir, StoreOptions::new()).unwrap();
        assert_eq!(check_directory(&dir).unwrap().others_can_read, Some(others_can_read));
    }
}

/// The directory of entries is checked too, because whoever can write there can add entries.
#[test]
fn folder_of_entries_that_others_can_write_is_refused() {
    let fixture = Fixture::new();
    let entries = fixture.dir.join("entries");
    fs::set_permissions(&entries, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(refusal(&fixture.dir).0, StoreErrorKind::Untrusted);
    fs::remove_dir(&entries).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), &entries).unwrap();
    assert_eq!(refusal(&fixture.dir).0, StoreErrorKind::Untrusted);
}

/// Whoever can change a link chooses the directory.
#[test]
fn symbolic_link_in_its_place_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (link, good) = (root.path().join("link"), root.path().join("good"));
    DiskStore::open(&good, StoreOptions::new()).unwrap();
    for target in [good.clone(), root.path().join("nowhere")] {
        symlink(&target, &link).unwrap();
        let (kind, message) = refusal(&link);
        assert_eq!(kind, StoreErrorKind::Untrusted, "{message}");
        assert!(message.contains(&format!("found a symbolic link: {} -> {}", link.display(), target.display())));
        assert!(message.ends_with(&format!("to fix it: rm {}", link.display())), "{message}");
        fs::remove_file(&link).unwrap();
    }
    assert!(!root.path().join("nowhere").exists(), "nothing is created through a link");
}

#[test]
fn directory_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Only root can give a directory away; other users test with a directory of root.
    let path = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
        dir.path()
    } else {
        Path::new("/")
    };
    let fault = check_directory(path).unwrap_err();
    assert_eq!((fault.kind, fault.fix), (DirectoryFaultKind::OtherOwner, None));
    let (kind, message) = refusal(path);
    assert_eq!(kind, StoreErrorKind::Untrusted);
    assert!(message.contains("found one of user id ") && message.ends_with("use another directory"), "{message}");
}

#[test]
fn a_path_that_is_not_a_directory_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("store")] {
        assert_eq!(refusal(&path).0, StoreErrorKind::Io, "{}", path.display());
    }
    assert_eq!(check_directory(root.path().join("none")).unwrap_err().kind, DirectoryFaultKind::Missing);
}

/// A user may remove the directory while programs run.
#[test]
fn directory_that_is_removed_meanwhile_is_made_again() {
    let fixture = Fixture::new();
    fixture.store.put(b"key", b"payload").unwrap();
    fs::remove_dir_all(&fixture.dir).unwrap();
    assert_eq!(fixture.store.get(b"key").into_payload(), None);
    fixture.store.put(b"key", b"payload").unwrap();
    assert_eq!(mode(&fixture.dir), 0o700);
    let other = fixture.reopen();
    assert!(other.get(b"key").into_payload().is_some());
    for key in [b"1", b"2", b"3"] {
        other.put(key, b"payload").unwrap();
    }
    for store in [&fixture.store, &other] {
        assert_eq!(store.statistics().entries, 4, "both have one lock and one count");
    }
}

/// A lock file that was moved, alone or with its directory, excludes no other process; the store must open the new one.
#[test]
fn a_moved_lock_file_is_opened_again() {
    for moved in ["", "lock"] {
        let fixture = Fixture::with(StoreOptions::new().with_max_entries(4));
        fixture.store.put(b"key", b"payload").unwrap();
        fs::rename(fixture.dir.join(moved), fixture.dir.with_extension("moved")).unwrap();
        let other = fixture.reopen();
        for key in 0..4_u8 {
            other.put(&[key], b"payload").unwrap();
        }
        for key in 10..14_u8 {
            fixture.store.put(&[key], b"payload").unwrap();
            let (entries, _) = on_disk(&fixture.dir);
            assert!(entries <= 4, "{entries}");
            assert_eq!((fixture.store.statistics().entries, other.statistics().entries), (entries, entries));
        }
    }
}

/// A relative path is resolved when the store is opened.
#[test]
fn relative_path_does_not_follow_the_working_directory() {
    const TEST: &str = "directory::relative_path_does_not_follow_the_working_directory";
    if let Some(dir) = child_dir() {
        std::env::set_current_dir(&dir).unwrap();
        let store = DiskStore::open("store", StoreOptions::new()).unwrap();
        store.put(b"key", b"payload").unwrap();
        let elsewhere = dir.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::env::set_current_dir(&elsewhere).unwrap();
        assert!(store.get(b"key").into_payload().is_some());
        store.put(b"other", b"payload").unwrap();
        assert_eq!((on_disk(&dir.join("store")).0, fs::read_dir(&elsewhere).unwrap().count()), (2, 0));
        return;
    }
    let root = tempfile::tempdir().unwrap();
    assert!(child(TEST, root.path(), 0).status().unwrap().success());
}
