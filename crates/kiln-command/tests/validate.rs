//! Runs `kiln validate` as a process: output and exit status. It uses the claims about counts, which noise
//! cannot change; a build without the features `events` and `gpu` has fewer of them.

#![cfg(all(feature = "events", feature = "gpu"))]
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn validate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["validate", "--quick"]).args(args).env_remove("KILN_SIMD");
    command.output().unwrap()
}

/// Runs the claims about counts on the CPU device, with additional arguments.
fn counts(args: &[&str]) -> Output {
    validate(&[&["--device", "cpu", "--only", "fusion-launches,pool-reduction"], args].concat())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_json_form_has_machine_limits_and_claims_with_all_their_fields() {
    let output = counts(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["machine"]["threads"].as_u64().unwrap() > 0 && report["machine"]["noise"]["spread"].is_number());
    for limit in ["peak_flops_per_s", "read_bytes_per_s", "copy_bytes_per_s", "thread_start_s", "timer_resolution_s"] {
        assert!(report["limits"][limit].as_f64().unwrap() > 0.0, "{limit}");
    }
    let claims = report["claims"].as_array().unwrap();
    let ids: Vec<&str> = claims.iter().map(|claim| claim["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["fusion-launches", "pool-reduction"]);
    let fields = [
        "id",
        "title",
        "device",
        "value",
        "unit",
        "target",
        "comparison",
        "ratio",
        "status",
        "reason",
        "median",
        "spread",
        "samples",
        "checks",
    ];
    for claim in claims {
        assert!(fields.iter().all(|field| claim.get(field).is_some()), "{claim}");
        assert_eq!((&claim["status"], &claim["device"]), (&json!("shown"), &json!("cpu")));
        assert!(claim["checks"].as_array().unwrap().iter().all(|check| check["passed"] == true));
    }
    assert_eq!(claims[0]["ratio"], 8.0);
    assert_eq!(report["summary"], json!({"shown": 2, "failed": 0, "not_shown": 0}));
}

#[test]
fn the_score_card_is_on_standard_output_and_progress_on_standard_error() {
    let output = counts(&[]);
    let (card, progress) = (text(&output.stdout), text(&output.stderr));
    assert!(card.starts_with("kiln ") && card.contains("noise: ") && !card.contains('\x1b'), "{card}");
    assert!(card.contains("\n  shown      fusion-launches  8.00 "), "{card}");
    assert!(card.contains("\n2 of 2 claims shown, 0 failed, 0 not shown, in "), "{card}");
    assert!(progress.contains("1 of 4: machine limits\n") && progress.contains("fusion-launches on cpu"), "{progress}");
}

#[test]
fn claims_are_listed_without_running_them() {
    let listed: Value = serde_json::from_slice(&validate(&["--list", "--json"]).stdout).unwrap();
    let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|claim| claim["id"].as_str().unwrap()).collect();
    let quick: Vec<&str> =
        kiln_validate::claims().iter().filter(|claim| claim.in_quick).map(|claim| claim.id).collect();
    assert_eq!(ids, quick);
    let output = validate(&["--list", "--only", "fusion"]);
    assert_eq!(text(&output.stdout).matches("measures: ").count(), 3, "{}", text(&output.stdout));
}

#[test]
fn invalid_arguments_exit_with_status_2() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.json");
    fs::write(&broken, "{\"claims\": 7}").unwrap();
    let table: [(&[&str], &str); 6] = [
        (
            &["--only", "fusion-launch"],
            "`--only` expected the name of a claim, found `fusion-launch`; similar: fusion-launches",
        ),
        (&["--device", "gpu:99", "--only", "fusion-launches"], "gpu:99"),
        (&["--baseline", "/nonexistent/ratios.json"], "cannot read the baseline /nonexistent/ratios.json"),
        (&["--baseline", path(&broken)], "expected a baseline of `kiln validate`"),
        (&["--history", path(&broken)], "broken.json:1: expected a run"),
        (&["--max-regression", "ten"], "expected a share such as `10%` or `0.1`, found `ten`"),
    ];
    for (args, expected) in table {
        let output = validate(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(expected), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn a_ratio_below_the_baseline_is_a_regression() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ratios.json");
    assert_eq!(counts(&["--write-baseline", path(&file)]).status.code(), Some(0));
    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(written["claims"][0], json!({"id": "fusion-launches", "device": "cpu", "ratio": 8.0}));
    let against = |args: &[&str]| counts(&[&["--baseline", path(&file)], args].concat());
    assert_eq!(against(&[]).status.code(), Some(0));

    let better = text(&fs::read(&file).unwrap()).replace("\"ratio\": 8.0", "\"ratio\": 10.0");
    fs::write(&file, better).unwrap();
    for fail_on in ["regression", "failed", "not-shown"] {
        let output = against(&["--fail-on", fail_on]);
        assert_eq!(output.status.code(), Some(1), "{fail_on}");
        assert!(text(&output.stdout).contains("regression: fusion-launches on cpu: fell from 10.000 to 8.000"));
    }
    let output = against(&["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["regressions"][0]["before"], &found["regressions"][0]["now"]), (&json!(10.0), &json!(8.0)));
    assert_eq!(against(&["--max-regression", "25%"]).status.code(), Some(0));
}

/// `--json` writes a baseline too.
#[test]
fn a_report_is_a_baseline() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    fs::write(&file, counts(&["--json"]).stdout).unwrap();
    let output = counts(&["--baseline", path(&file)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_history_grows_by_a_line_and_reports_changes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("history.jsonl");
    let first = counts(&["--history", path(&file)]);
    assert!(!text(&first.stdout).contains("moved"), "nothing to compare with");
    let line = fs::read_to_string(&file).unwrap();
    assert_eq!(line.lines().count(), 1);
    fs::write(&file, line.replace("\"ratio\":8.0", "\"ratio\":4.0")).unwrap();
    let second = counts(&["--history", path(&file)]);
    let changed = "changed: fusion-launches on cpu: 8.00 now, 4.00 in the median of 1 earlier run\n";
    assert!(text(&second.stdout).contains(changed), "{}", text(&second.stdout));
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
    fs::write(&file, line.replace("\"ratio\":8.0", "\"ratio\":4.0")).unwrap();
    let third = counts(&["--history", path(&file), "--json"]);
    let found: Value = serde_json::from_slice(&third.stdout).unwrap();
    let expected = json!({"id": "fusion-launches", "device": "cpu", "before": 4.0, "now": 8.0, "runs": 1});
    assert!(found["trends"].as_array().unwrap().contains(&expected), "{}", found["trends"]);
}

/// On every device: claims about the software GPU of the tests are measured too.
#[test]
fn all_devices_are_validated() {
    let output = validate(&["--device", "all", "--only", "fusion-launches,fusion-bytes", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices: Vec<&str> =
        report["machine"]["devices"].as_array().unwrap().iter().map(|device| device["id"].as_str().unwrap()).collect();
    let has_gpu = kiln::Device::list().iter().any(|info| info.kind != kiln::DeviceKind::Cpu);
    assert_eq!(devices, if has_gpu { &["cpu", "gpu:0"][..] } else { &["cpu"] });
    assert_eq!(report["claims"].as_array().unwrap().len(), 2 * devices.len());
    assert!(has_gpu || std::env::var_os("CI").is_none(), "expected a Vulkan device under CI, found none");
}
