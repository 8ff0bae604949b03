//! Runs `kiln validate --report` as a process.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The cheapest claim, which counts bytes.
fn validate(report: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["validate", "--quick", "--device", "cpu", "--only", "fusion-bytes", "--report"]).arg(report);
    command.args(more).env_remove("CLICOLOR_FORCE").env_remove("KILN_SIMD").output().unwrap()
}

#[test]
fn report_is_written_in_addition_to_the_score_card_and_its_path_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let output = validate(&path, &["--json"]);
    let (stderr, found) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains(&format!("report: {}", path.display())), "{stderr}");
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["summary"]["shown"], 1);
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    for part in ["1 of 1 claim shown", "id=\"cpu-fusion-bytes\"", "kiln validate --only memory-plateau"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn unwritable_report_path_is_an_error_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let output = validate(&folder.path().join("none/report.html"), &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: cannot write "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
