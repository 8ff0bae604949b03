//! Runs `kiln profile` as a process: output and exit status.

#![cfg(feature = "events")]
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const KILN: &str = env!("CARGO_BIN_EXE_kiln");

/// A directory for the timeline, and the result of a profile.
struct Run {
    _folder: tempfile::TempDir,
    out: PathBuf,
    output: Output,
}

fn profile(options: &[&str], command: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("trace.json");
    let mut profile = Command::new(KILN);
    profile.arg("profile").args(options).arg("--out").arg(&out).arg("--").args(command);
    profile.env_remove("KILN_EVENTS").env_remove("KILN_SIMD").env("KILN_CACHE_DIR", folder.path());
    let output = profile.output().unwrap();
    Run { output, out, _folder: folder }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn trace(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the devices under test, including a software GPU.
fn devices() -> Vec<&'static str> {
    let has_gpu = cfg!(feature = "gpu") && kiln::Device::list().len() > 1;
    assert!(has_gpu || !cfg!(feature = "gpu") || std::env::var_os("CI").is_none(), "no GPU although `CI` is set");
    if has_gpu { vec!["cpu", "gpu"] } else { vec!["cpu"] }
}

#[test]
fn a_command_is_reported_as_a_table_and_as_a_timeline() {
    for device in devices() {
        let run = profile(&["--no-limits"], &["eval", "ones(64, 64) @ ones(64, 64)", "--device", device]);
        let (out, error) = (text(&run.output.stdout), text(&run.output.stderr));
        assert!(run.output.status.success(), "{error}");
        assert!(out.contains("64") && out.contains("\nunattributed: "), "{out}");
        let matmul = out.lines().find(|line| line.starts_with("matmul")).unwrap_or_else(|| panic!("{out}"));
        assert_eq!(matmul.split_whitespace().nth(1), Some("1"), "{matmul}");
        let trace = trace(&run.out);
        let names: Vec<&str> =
            trace["traceEvents"].as_array().unwrap().iter().filter_map(|e| e["name"].as_str()).collect();
        assert!(names.iter().any(|name| name.starts_with("matmul")) && names.contains(&"unattributed"), "{names:?}");
        let sums = &trace["otherData"]["devices"][0];
        let sum = |name: &str| sums[name].as_u64().unwrap();
        assert_eq!(sum("kernels_ns") + sum("unattributed_ns"), sum("window_ns"));
    }
}

#[test]
fn json_has_rates_and_the_share_of_a_limit_and_leaves_standard_output_alone() {
    let run = profile(&["--json"], &["bench", "matmul-128", "--quick", "--threads", "1"]);
    let error = text(&run.output.stderr);
    assert!(run.output.status.success() && error.contains("output checked"), "{error}");
    let report: Value = serde_json::from_slice(&run.output.stdout).unwrap();
    assert_eq!((&report["exit_status"], &report["devices"][0]["device"]), (&0.into(), &"cpu".into()));
    let kernel = &report["devices"][0]["kernels"][0];
    assert_eq!(kernel["name"], "matmul");
    let of = |name: &str| kernel[name].as_f64().unwrap();
    assert!((of("flops") / of("launches") - 2.0 * 128f64.powi(3)).abs() < 0.5, "{kernel}");
    assert!((of("gflops_per_s") - of("timed_flops") / of("total_ns")).abs() < 1e-6 * of("gflops_per_s"), "{kernel}");
    assert!(kernel["limit"]["share"].as_f64().unwrap() > 0.0 && kernel["limit"]["of"] == "fma", "{kernel}");
}

/// A failing program is still profiled, and its failure is reported.
#[test]
fn the_fault_of_the_program_is_passed_on() {
    let run = profile(&["--no-limits"], &["eval", "ones(2) +"]);
    assert_eq!(run.output.status.code(), Some(1));
    let error = text(&run.output.stderr);
    assert!(error.contains("warning: `kiln eval ones(2) +` exited with status 1"), "{error}");
    let run = profile(&[], &["doctor", "--nonsense"]);
    assert_eq!(run.output.status.code(), Some(2), "the status of the command itself");
}

#[test]
fn a_program_without_events_is_an_error_that_says_what_to_call() {
    let run = profile(&[], &["cache", "--help"]);
    let error = text(&run.output.stderr);
    assert_eq!(run.output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("wrote no events") && error.contains("kiln::observe::watch_from_settings(&device"),
        "{error}"
    );
    assert!(text(&run.output.stdout).contains("Usage:"), "what the program writes passes through");
    assert!(!run.out.exists(), "no timeline of nothing");
}

#[test]
fn a_command_that_cannot_start_is_named() {
    let run = profile(&[], &["/nonexistent/program", "--fast"]);
    let error = text(&run.output.stderr);
    assert_eq!(run.output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot start `/nonexistent/program --fast`") && error.contains("eval, "), "{error}");
}

/// Any program can be profiled, here this one by its absolute path.
#[test]
fn a_program_is_profiled_like_a_command() {
    let run = profile(&["--no-limits"], &[KILN, "eval", "ones(8) + 1", "--device", "cpu"]);
    assert!(run.output.status.success(), "{}", text(&run.output.stderr));
    assert!(text(&run.output.stdout).contains("\nkernel "), "{}", text(&run.output.stdout));
}

#[test]
fn a_file_for_events_that_cannot_be_written_is_an_error() {
    let mut eval = Command::new(KILN);
    eval.args(["eval", "ones(2)", "--device", "cpu"]).env("KILN_EVENTS", "/nonexistent/events.jsonl");
    let output = eval.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("KILN_EVENTS expected a file for events"), "{}", text(&output.stderr));
}
