//! The file: whole at every moment, with the last state at the end.

use crate::{cpu, value, work};
use kiln::ErrorKind;
use kiln::metrics::{Exporter, Target};
use std::fs;
use std::time::{Duration, Instant};

const MISSES: &str = "kiln_cache_requests_total{device=\"cpu\",cache=\"plans\",outcome=\"miss\"}";

/// The device goes before the exporter, as in a program whose `main` began with the exporter.
#[test]
fn the_last_state_is_in_the_file_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.prom");
    let exporter = Exporter::start(&Target::File(path.clone())).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("kiln_info"), "from the beginning");
    assert_eq!(exporter.address(), None);
    let device = cpu();
    exporter.watch().add(&device);
    work(&device).unwrap();
    drop(device);
    exporter.finish().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(value(&text, MISSES), Some(1.0));
    assert_eq!(value(&text, "kiln_device_open{device=\"cpu\"}"), Some(0.0));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["metrics.prom"], "nothing is left beside it");
}

#[test]
fn the_file_follows_what_happens_and_is_whole_at_every_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.prom");
    let exporter = Exporter::start(&format!("file:{}", path.display()).parse::<Target>().unwrap()).unwrap();
    let device = cpu();
    exporter.watch().add(&device);
    work(&device).unwrap();
    let began = Instant::now();
    loop {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# HELP kiln_info") && text.ends_with('\n'), "{text}");
        if value(&text, MISSES) == Some(1.0) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "never written again");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = Exporter::start(&Target::File(folder.path().join("missing/metrics.prom"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with("cannot write metrics to "), "{error}");
    let error = Exporter::start(&Target::File(folder.path().to_path_buf())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let path = folder.path().join("below");
    fs::create_dir(&path).unwrap();
    let exporter = Exporter::start(&Target::File(path.join("metrics.prom"))).unwrap();
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(exporter.finish().unwrap_err().kind(), ErrorKind::Io, "the last state is not there");
}
