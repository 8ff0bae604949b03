//! Metrics in a file: Prometheus text or JSON, replaced atomically.

use crate::{cpu, value, work};
use kiln::ErrorKind;
use kiln::metrics::Watch;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

const MISSES: &str = "kiln_cache_requests_total{device=\"cpu\",cache=\"plans\",outcome=\"miss\"}";

/// The device is dropped before the watch, as in a program whose `main` creates the watch first.
#[test]
fn the_name_says_whether_the_file_is_text_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let (text, json) = (folder.path().join("metrics.prom"), folder.path().join("metrics.json"));
    let watch = Watch::new();
    watch.write_file(&text).unwrap();
    assert!(fs::read_to_string(&text).unwrap().contains("kiln_info"), "without a device");
    let device = cpu();
    watch.add(&device);
    work(&device).unwrap();
    drop(device);
    watch.write_file(&text).unwrap();
    watch.write_file(&json).unwrap();
    let found = fs::read_to_string(&text).unwrap();
    assert_eq!(value(&found, MISSES), Some(1.0));
    assert_eq!(value(&found, "kiln_device_open{device=\"cpu\"}"), Some(0.0));
    let found: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let open = found["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == "kiln_device_open").unwrap();
    assert_eq!(open["samples"], serde_json::json!([{ "labels": { "device": "cpu" }, "value": 0.0 }]));
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["metrics.json", "metrics.prom"], "no temporary file is left");
}

#[test]
fn the_file_is_whole_at_every_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.prom");
    let watch = Watch::new();
    watch.write_file(&path).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let device = cpu();
            watch.add(&device);
            for _ in 0..200 {
                watch.write_file(&path).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("# HELP kiln_info") && text.ends_with('\n'), "{text}");
        }
    });
}

#[test]
fn a_path_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = Watch::new().write_file(folder.path().join("missing/metrics.prom")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with("cannot write metrics to "), "{error}");
    let error = Watch::new().write_file(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}
