//! The file sink: rotation loses and splits nothing, and keeps to its bounds.

use crate::record::{ask, generations, key_of_line, keys_in_files, quiet_cache};
use kiln_resource_cache::events::{CacheEvent, EventSink, JsonlSink, LineFile};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[test]
fn rotation_loses_and_splits_no_line() {
    let (_folder, path) = new_file();
    let cache = quiet_cache(JsonlSink::with_limits(&path, 4096, 1000).unwrap());
    // Numbers of one to twenty digits: lines of many lengths meet the limit in many ways.
    let keys: Vec<u64> = (0..5000).map(|at| u64::MAX >> (at % 64)).collect();
    for key in &keys {
        ask(&cache, [*key]);
    }
    assert!(generations(&path).len() > 50, "{} files", generations(&path).len());
    assert_eq!(keys_in_files(&path), keys);
    assert_eq!(cache.sink_failures(), 0);
}

#[test]
fn files_and_their_sizes_stay_bounded_at_every_moment() {
    for (max_file_bytes, max_files) in [(500, 4), (100, 2), (700, 1)] {
        let (folder, path) = new_file();
        let cache = quiet_cache(JsonlSink::with_limits(&path, max_file_bytes, max_files).unwrap());
        for key in 0..200 {
            ask(&cache, [key]);
            let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(files.len() <= max_files, "{files:?}");
            assert_eq!(files.len(), generations(&path).len(), "{files:?}");
            for file in &files {
                assert!(fs::metadata(file).unwrap().len() <= max_file_bytes, "{}", file.display());
            }
            let kept = keys_in_files(&path);
            let expected: Vec<u64> = (key + 1 - kept.len() as u64..=key).collect();
            assert_eq!(kept, expected, "what is kept is the latest, without a gap");
        }
        assert_eq!(generations(&path).len(), max_files);
        assert_eq!(cache.sink_failures(), 0);
    }
}

#[test]
fn a_file_is_filled_to_its_limit_before_the_next_begins() {
    let (_folder, path) = new_file();
    let line_bytes = line(1).len() as u64 + 1;
    let sink = JsonlSink::with_limits(&path, 3 * line_bytes, 9).unwrap();
    for key in 1..=7 {
        sink.record(&event(key)).unwrap();
    }
    let lengths: Vec<u64> =
        generations(&path).iter().map(|path| fs::metadata(path).unwrap().len() / line_bytes).collect();
    assert_eq!(lengths, [1, 3, 3], "newest first");
}

#[test]
fn a_line_longer_than_a_file_has_a_file_to_itself() {
    let (_folder, path) = new_file();
    let sink = JsonlSink::with_limits(&path, 10, 9).unwrap();
    for key in 1..=3 {
        sink.record(&event(key)).unwrap();
    }
    let texts: Vec<String> = generations(&path).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert_eq!(texts, [3, 2, 1].map(|key| line(key) + "\n"));
}

#[test]
fn limits_of_zero_are_refused_and_make_no_file() {
    let (_folder, path) = new_file();
    for (max_file_bytes, max_files) in [(0, 4), (100, 0), (0, 0)] {
        let error = JsonlSink::with_limits(&path, max_file_bytes, max_files).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let expected = format!("{max_files} files of {max_file_bytes} bytes, expected at least 1 of each");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
    assert!(!path.exists());
}

#[test]
fn a_path_that_cannot_be_opened_is_an_error_at_the_start() {
    let (folder, _) = new_file();
    assert_eq!(JsonlSink::open(folder.path().join("missing/events.jsonl")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_new_sink_goes_on_where_the_last_one_ended() {
    let (_folder, path) = new_file();
    let line_bytes = line(1).len() as u64 + 1;
    for key in 1..=5 {
        JsonlSink::with_limits(&path, 2 * line_bytes, 9).unwrap().record(&event(key)).unwrap();
    }
    assert_eq!(keys_in_files(&path), [1, 2, 3, 4, 5]);
    assert_eq!(generations(&path).len(), 3, "the length of a file that was there counts");
}

#[test]
fn a_line_torn_by_a_crash_is_ended_before_the_next_one() {
    let (_folder, path) = new_file();
    let torn = &line(2)[..20];
    fs::write(&path, format!("{}\n{torn}", line(1))).unwrap();
    let sink = JsonlSink::open(&path).unwrap();
    sink.record(&event(3)).unwrap();
    sink.record(&event(4)).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n{torn}\n{}\n{}\n", line(1), line(3), line(4)));
}

#[test]
fn four_threads_write_whole_lines_across_rotations() {
    let (_folder, path) = new_file();
    let cache = quiet_cache(JsonlSink::with_limits(&path, 2000, 1000).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || ask(cache, (0..500).map(|at| at * 4 + thread)));
        }
    });
    let mut keys = keys_in_files(&path);
    for thread in 0..4 {
        assert!(keys.iter().filter(|key| **key % 4 == thread).is_sorted(), "each thread's events are in order");
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_line_is_in_the_file_before_the_lookup_returns() {
    let (_folder, path) = new_file();
    let cache = quiet_cache(JsonlSink::open(&path).unwrap());
    for key in 0..20 {
        ask(&cache, [key]);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter_map(key_of_line).next_back(), Some(key));
    }
}

/// A folder that deletes itself and the path of a file to be in it.
fn new_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = Path::join(folder.path(), "events.jsonl");
    (folder, path)
}

fn event(key: u64) -> CacheEvent {
    CacheEvent::ResourceCacheAccess { cache_key: format!("plans:{key}"), hit: true, bytes: 8 }
}

fn line(key: u64) -> String {
    event(key).to_json_line().unwrap()
}

#[test]
fn writers_of_one_name_have_a_file_each_until_they_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let claim = || LineFile::claim(&path, 10, 2).unwrap();
    let name = |file: &LineFile| file.path().file_name().unwrap().to_string_lossy().into_owned();
    let (mut first, mut second, third) = (claim(), claim(), claim());
    assert_eq!([name(&first), name(&second), name(&third)], ["events.jsonl", "events.2.jsonl", "events.3.jsonl"]);
    // Both rotate, and stay who they are.
    for line in ["one", "two", "three", "four"] {
        first.append(line).unwrap();
        second.append_lines(&format!("{line}\nagain\n")).unwrap();
    }
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!([text("events.jsonl.1"), text("events.jsonl")], ["three\n", "four\n"].map(String::from), "{first:?}");
    assert_eq!(
        [text("events.2.jsonl.1"), text("events.2.jsonl")],
        ["three\nagain\n", "four\nagain\n"].map(String::from)
    );
    drop((first, third));
    let next = claim();
    assert_eq!(name(&next), "events.jsonl", "free again");
    assert_eq!(name(&claim()), "events.3.jsonl");
}
