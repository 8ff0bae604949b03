//! Lines of JSON: intact, in order, and written before the operation continues.

use crate::record::{ask, key_of_line, quiet_cache};
use kiln_resource_cache::events::{JsonlSink, LineOutput};
use std::fs::{self, File};
use std::io::{self, Write};

#[test]
fn four_threads_write_whole_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let cache = quiet_cache(JsonlSink::new(File::create(&path).unwrap()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || ask(cache, (0..500).map(|at| at * 4 + thread)));
        }
    });
    let mut keys: Vec<u64> = fs::read_to_string(&path).unwrap().lines().filter_map(key_of_line).collect();
    for thread in 0..4 {
        assert!(keys.iter().filter(|key| **key % 4 == thread).is_sorted(), "each thread's events are in order");
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..2000).collect::<Vec<_>>());
    assert_eq!(cache.sink_failures(), 0);
}

#[test]
fn a_line_is_in_the_file_before_the_lookup_returns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let cache = quiet_cache(JsonlSink::new(File::create(&path).unwrap()));
    for key in 0..20 {
        ask(&cache, [key]);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter_map(key_of_line).next_back(), Some(key));
    }
}

/// Accepts a limited number of bytes in each call, and fails at selected calls.
struct FailingWriter {
    written: Vec<u8>,
    per_call: usize,
    /// The indices of the calls that fail, from 0.
    failing: Vec<usize>,
    calls: usize,
}

impl Write for FailingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.failing.contains(&(self.calls - 1)) {
            return Err(io::Error::other("no room"));
        }
        let count = bytes.len().min(self.per_call);
        self.written.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A partial line is ended before the next one, unless nothing was written.
#[test]
fn a_failed_write_damages_one_line_at_most() {
    let table = [
        (100, vec![1], "one\nthree\n"),
        (2, vec![3], "one\ntw\nthree\n"),
        (2, vec![2], "one\nthree\n"),
        // The line break after the partial line fails too, and is written with the next line.
        (2, vec![3, 4], "one\ntw\n"),
    ];
    for (per_call, failing, expected) in table {
        let mut written = FailingWriter { written: Vec::new(), per_call, failing: failing.clone(), calls: 0 };
        let mut output = LineOutput::new(&mut written);
        let failures = ["one\n", "two\n", "three\n"].iter().filter(|line| output.write_lines(line).is_err()).count();
        assert_eq!(failures, failing.len());
        if failing.len() == 2 {
            output.write_lines("").unwrap();
        }
        assert_eq!(String::from_utf8(written.written).unwrap(), expected);
    }
}
