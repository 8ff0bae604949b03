//! Runs `kiln ops`, `kiln bench OP --shape …`, `kiln completions` and `kiln man` as processes.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn kiln(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(args).env_remove("KILN_SIMD").output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Returns the output of a command that succeeds.
fn out(args: &[&str]) -> String {
    let output = kiln(args);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{args:?}");
    text(&output.stdout).to_string()
}

#[test]
fn ops_are_listed_with_what_is_known_about_them() {
    insta::assert_snapshot!("ops", out(&["ops"]));
}

#[test]
fn ops_for_programs_have_dtypes_and_bounds() {
    let report: Value = serde_json::from_str(&out(&["ops", "add", "matmul", "tan", "--json"])).unwrap();
    assert_eq!(report["format"], 1);
    let [add, matmul, tan] = &report["ops"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(add["dtypes"], serde_json::json!(["f16", "bf16", "f32", "f64", "i8", "i32", "i64", "u8", "u32"]));
    assert_eq!((&matmul["kind"], &matmul["gradient"]), (&"kernel".into(), &"yes".into()));
    assert!(matmul["accuracy"]["at-length64"]["absolute"].as_f64().unwrap() > 1e-5, "{matmul}");
    assert_eq!(tan["accuracy"]["ulps"]["ulps"], 8.0);
}

#[test]
fn an_op_is_checked_and_measured() {
    let line = out(&["bench", "matmul", "--shape", "8x16", "--shape", "16x4", "--quick", "--json"]);
    let report: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&report["op"], &report["dtype"], &report["kernels"]), (&"matmul".into(), &"f32".into(), &1.into()));
    assert_eq!(report["output_shape"], serde_json::json!([8, 4]));
    assert_eq!((&report["bytes_read"], &report["bytes_written"]), (&(4 * 192).into(), &(4 * 32).into()));
    assert_eq!((&report["flops"], &report["checked"]["elements"]), (&(2 * 8 * 16 * 4).into(), &32.into()));
    for number in
        [&report["timing"]["median"], &report["gflops_per_s"], &report["gbytes_per_s"], &report["share_of_limit"]]
    {
        assert!(number.as_f64().unwrap() > 0.0, "{report}");
    }
    let shown = out(&["bench", "softmax", "--shape", "4x64", "--dtype", "f16", "--quick"]);
    assert!(shown.starts_with("op softmax: f16 (4, 64) -> f16 (4, 64) on cpu"), "{shown}");
    assert!(shown.contains("output checked: 256 of 256 elements"), "{shown}");
}

#[test]
fn elementwise_ops_of_every_signature_are_measured() {
    let table: [(&[&str], &str); 5] = [
        (&["add", "--shape", "64x1", "--shape", "32"], "f32 (64, 1), (32,) -> f32 (64, 32)"),
        (&["lt", "--shape", "100", "--dtype", "i32"], "i32 (100,), (100,) -> u8 (100,)"),
        (&["where", "--shape", "100"], "f32 (100,), (100,), (100,) -> f32 (100,)"),
        (&["shift_left", "--shape", "100"], "u32 (100,), (100,) -> u32 (100,)"),
        (&["normal", "--shape", "100"], "u32 (100,), (100,) -> f32 (100,)"),
    ];
    for (args, expected) in table {
        let shown = out(&[&["bench", "--quick"], args].concat());
        assert!(shown.contains(expected), "{args:?}: {shown}");
    }
}

/// For a name of both a workload and an op, the output says which one is used.
#[test]
fn a_name_that_is_both_says_which_it_is() {
    let output = kiln(&["bench", "softmax", "--list"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let output = kiln(&["bench", "sum", "--quick", "--threads", "1"]);
    assert_eq!(text(&output.stderr), "note: `sum` selects workloads; add `--shape` to benchmark the op\n");
    assert!(text(&output.stdout).starts_with("sum-1m"), "{}", text(&output.stdout));
}

#[test]
fn invalid_requests_are_errors() {
    let table: [(&[&str], i32, &str); 13] = [
        (&["ops", "sotfmax"], 1, "error: expected the name of an op, found `sotfmax`; similar: softmax"),
        (&["ops", "frobnicate"], 1, "found `frobnicate`; `kiln ops` lists them"),
        (&["bench", "tanhh", "--shape", "4"], 1, "expected the name of an op, found `tanhh`; similar: tanh"),
        (&["bench", "tanh"], 1, "it is an op: use `kiln bench tanh --shape 1024x1024`"),
        (&["bench", "gather", "--shape", "4x4"], 1, "`gather` has no reference to check its output against"),
        (
            &["bench", "add", "--shape", "4", "--shape", "4", "--shape", "4"],
            1,
            "add expected one `--shape`, or 2, found 3",
        ),
        (&["bench", "exp", "--shape", "4", "--shape", "4"], 1, "exp expected one `--shape`, found 2"),
        (&["bench", "add", "--shape", "4", "--shape", "5"], 1, "add expected shapes that broadcast together"),
        (&["bench", "matmul", "--shape", "4x5"], 1, "matmul expected"),
        (&["bench", "exp", "--shape", "4", "--dtype", "i32"], 1, "exp expected a dtype of f16, bf16, f32"),
        (&["bench", "exp", "--shape", "0x4"], 1, "`--shape` expected at least one element"),
        (&["bench", "exp", "--shape", "4y4"], 2, "expected lengths such as `1000` or `64x32`, found `4y4`"),
        (&["bench", "add-1m", "--dtype", "i32"], 1, "workloads expected `f32` or `f16`, found `i32`"),
    ];
    for (args, code, message) in table {
        let output = kiln(args);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{args:?}");
        assert!(text(&output.stderr).contains(message), "{args:?}: {}", text(&output.stderr));
    }
}

/// The scripts are tested in their module; this tests that a shell accepts one.
#[test]
fn completions_of_bash_are_accepted_by_bash() {
    let script = out(&["completions", "bash"]);
    let checked = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // Not every machine has bash.
    let Ok(mut bash) = checked else { return };
    std::io::Write::write_all(&mut bash.stdin.take().unwrap(), script.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn manual_pages_are_rendered_without_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let shown = out(&["man", "--dir", dir.path().to_str().unwrap()]);
    assert!(shown.starts_with("wrote ") && shown.contains(" pages to "), "{shown}");
    let mut pages: Vec<_> = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 15, "{pages:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("kiln.1")).unwrap(), out(&["man"]));
    for page in pages {
        check_page(&page);
    }
    let no_dir = dir.path().join("kiln.1/below");
    let output = kiln(&["man", "--dir", no_dir.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    assert!(text(&output.stderr).starts_with("error: cannot create the directory "), "{}", text(&output.stderr));
}

fn check_page(page: &Path) {
    let text_of_page = std::fs::read_to_string(page).unwrap();
    for section in [".SH NAME", ".SH SYNOPSIS", ".SH \"EXAMPLES\"", ".SH \"EXIT STATUS\""] {
        assert!(text_of_page.contains(section), "{}: {section}", page.display());
    }
    // Not every machine has groff.
    let Ok(output) = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(page).output() else { return };
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {}", page.display(), text(&output.stderr));
}
