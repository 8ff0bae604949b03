//! `kiln top` without a terminal: one snapshot as text or JSON, and the error if nothing answers.

use crate::process::{Process, free_port, kiln};
use serde_json::Value;
use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

fn ran(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = kiln(args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_snapshot_shows_the_activity_of_the_process() {
    let mut process = Process::start("127.0.0.1:0");
    process.work();
    let address = process.address.clone();
    let (code, json, errors) = ran(&["top", &address, "--json"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let json_snapshot: Value = serde_json::from_str(&json).unwrap();
    let device = &json_snapshot["devices"][0];
    assert_eq!((&json_snapshot["format"], &device["id"], &device["open"]), (&1.into(), &"cpu".into(), &true.into()));
    assert!(device["pool"]["requests"].as_u64().unwrap() > 0, "{device:#}");
    let plans = device["caches"].as_array().unwrap().iter().find(|cache| cache["name"] == "plans").unwrap();
    assert!(plans["hits"].as_u64().unwrap() > 0 && plans["bytes"].as_u64().unwrap() > 0, "{device:#}");
    let kernels = device["kernels"].as_array().unwrap();
    let launches = |kernels: &[Value]| kernels.iter().map(|kernel| kernel["launches"].as_f64().unwrap()).sum::<f64>();
    assert!(launches(kernels) >= 20.0, "{device:#}");
    for args in [vec!["top", &address], vec!["top", &address, "--once"]] {
        let (code, text, errors) = ran(&args);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        for part in ["1 device", "\ndevices\n", "\npools\n", "\ncaches\n", "\nkernels\n"] {
            assert!(text.contains(part), "expected `{part}` in\n{text}");
        }
        assert!(kernels.iter().all(|kernel| text.contains(kernel["name"].as_str().unwrap())), "{text}");
    }
    process.work();
    let later: Value = serde_json::from_str(&ran(&["top", &address, "--json"]).1).unwrap();
    assert!(launches(later["devices"][0]["kernels"].as_array().unwrap()) > launches(kernels));
}

/// The file is replaced every second and at the end; `kiln top` reads it meanwhile and afterwards.
#[test]
fn a_file_is_read_like_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.json");
    let mut process = Process::start_with_file(&path);
    process.work();
    let address = process.address.clone();
    let device = || {
        let (code, json, errors) = ran(&["top", &address, "--json"]);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        serde_json::from_str::<Value>(&json).unwrap()["devices"][0].clone()
    };
    let launches = |device: &Value| {
        let kernels = device["kernels"].as_array().map_or(&[][..], Vec::as_slice);
        kernels.iter().map(|kernel| kernel["launches"].as_f64().unwrap()).sum::<f64>()
    };
    let began = Instant::now();
    let seen = loop {
        let seen = launches(&device());
        if seen >= 20.0 {
            break seen;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "never written again");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(device()["open"], true);
    process.work();
    drop(process);
    let last = device();
    assert!(launches(&last) > seen, "the last state: {last:#}");
    assert_eq!(last["open"], false);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    fs::write(&path, "kiln_info 1\n").unwrap();
    let (code, _, errors) = ran(&["top", &address]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("expected metrics of Kiln as JSON, found other data"), "{errors}");
    fs::remove_file(&path).unwrap();
    let (code, _, errors) = ran(&["top", &address]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("cannot query file:"), "{errors}");
}

#[test]
fn unreachable_metrics_are_an_error_that_says_what_to_do() {
    let address = format!("127.0.0.1:{}", free_port());
    let (code, text, errors) = ran(&["top", &address]);
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert_eq!(
        errors,
        format!("error: nothing answers at {address}; start the observed program with `KILN_METRICS={address}`\n")
    );
    for (args, message) in [
        (["top", "nowhere"], "expected an address such as `127.0.0.1:9464`, found `nowhere`"),
        (["top", "--interval=1ms"], "expected a time from `100ms` to `60m`, found `1ms`"),
    ] {
        let (code, _, errors) = ran(&args);
        assert_eq!(code, Some(2));
        assert!(errors.contains(message), "{errors}");
    }
}

/// An invalid setting is an error; an address in use is not, because another process of the same program may have it.
#[test]
fn the_setting_is_checked_by_whatever_opens_a_device() {
    let eval = |setting: &str| {
        let output = kiln(&["eval", "1+1", "--device", "cpu"]).env("KILN_METRICS", setting).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for setting in ["0.0.0.0:9464", "192.168.1.1:9464", "[::]:0"] {
        let (code, errors) = eval(setting);
        assert_eq!(code, Some(1));
        let expected = "KILN_METRICS: metrics expected a loopback address such as 127.0.0.1:";
        assert!(errors.contains(expected), "{errors}");
    }
    for setting in ["everywhere", "9464", "localhost:9464", "127.0.0.1", "127.0.0.1:99999", "file:", "metrics.prom"] {
        let (code, errors) = eval(setting);
        assert_eq!(code, Some(1));
        let expected = format!("error: KILN_METRICS: expected `127.0.0.1:PORT` or `file:PATH`, found `{setting}`\n");
        assert_eq!(errors, expected);
    }
    assert_eq!(eval(""), (Some(0), String::new()), "an empty variable is an unset one");
    let process = Process::start("127.0.0.1:0");
    let (code, errors) = eval(&process.address);
    assert_eq!(code, Some(0));
    assert!(
        errors.starts_with("warning: continuing without metrics: KILN_METRICS: cannot serve metrics at "),
        "{errors}"
    );
    let folder = tempfile::tempdir().unwrap();
    let (code, errors) = eval(&format!("file:{}", folder.path().join("missing/metrics.prom").display()));
    assert_eq!(code, Some(0));
    let expected = "warning: continuing without metrics: KILN_METRICS: cannot write metrics to ";
    assert!(errors.starts_with(expected), "{errors}");
    let (code, errors) = eval(&format!("file:{}", folder.path().display()));
    assert_eq!(code, Some(1));
    assert!(errors.contains("metrics expected a file or nothing at "), "{errors}");
    let path = folder.path().join("metrics.prom");
    assert_eq!(eval(&format!("file:{}", path.display())), (Some(0), String::new()));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("kiln_cache_requests_total{device=\"cpu\",cache=\"plans\",outcome=\"miss\"} 1\n"), "{text}");
    assert!(text.contains("kiln_device_open{device=\"cpu\"} 0\n"), "the last state: {text}");
}
