//! Runs `kiln bench` as a process: output and exit status.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("bench").args(args).env_remove("KILN_SIMD");
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn workloads_are_listed_with_their_inputs() {
    let listed = lines(&bench(&["--list", "--json"]).output().unwrap());
    assert_eq!(listed.len(), kiln_bench::workloads().len());
    let matmul = listed.iter().find(|line| line["workload"] == "matmul-128").unwrap();
    assert_eq!(matmul["op"], serde_json::json!({"op": "matmul", "m": 128, "k": 128, "n": 128}));
    assert_eq!(matmul["inputs"][1]["shape"], serde_json::json!([128, 128]));
    assert_eq!((&matmul["inputs"][1]["seed"], &matmul["output_shape"][0]), (&2.into(), &128.into()));
    let output = bench(&["--list", "softmax"]).output().unwrap();
    assert_eq!(text(&output.stdout), format!("{:26}(1024, 1024) -> (1024, 1024)\n", "softmax-1024"));
}

#[test]
fn a_workload_is_timed_and_checked() {
    for dtype in ["f32", "f16"] {
        let args = ["mlp-1x64x64", "--quick", "--threads", "2", "--dtype", dtype];
        let output = bench(&[&args[..], &["--json"]].concat()).output().unwrap();
        let [report] = &lines(&output)[..] else { panic!("{}", text(&output.stdout)) };
        assert_eq!(
            (&report["workload"], &report["dtype"], &report["threads"]),
            (&args[0].into(), &dtype.into(), &2.into())
        );
        assert!(report["timing"]["median"].as_f64().unwrap() > 0.0 && report["fault"].is_null(), "{report}");
        assert!(report["limit"]["compute"].as_f64().unwrap() > 0.0, "{report}");
        let output = bench(&args).output().unwrap();
        let out = text(&output.stdout);
        assert!(out.starts_with("mlp-1x64x64") && out.ends_with("output checked\n"), "{out}");
        assert_eq!((out.lines().count(), text(&output.stderr)), (1, ""));
    }
}

#[test]
fn requests_are_answered_one_by_one() {
    let mut child = bench(&["--serve", "--threads", "1"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut requests, mut answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut ask = |request: &str| -> Value {
        writeln!(requests, "{request}").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let version = env!("CARGO_PKG_VERSION");
    let started = serde_json::json!({"version": version, "device": "cpu", "threads": 1});
    assert_eq!(ask(r#"{"do":"start"}"#), started);
    assert!(ask(r#"{"do":"sample","runs":1}"#)["error"].is_string());
    assert_eq!(ask(r#"{"do":"prepare","workload":"mlp-1x64x64","dtype":"f32"}"#)["workload"], "mlp-1x64x64");
    assert!(ask(r#"{"do":"sample","runs":2}"#)["ns"].as_u64().unwrap() > 0);
    drop(requests);
    assert_eq!(child.wait().unwrap().code(), Some(0), "it ends with its input");
}

#[test]
fn invalid_arguments_are_errors() {
    let table: [(&[&str], i32, &str); 6] = [
        (&["matmul-1023"], 1, "error: expected the name of a workload, found `matmul-1023`; similar: matmul-1024"),
        (&["add-1m", "--threads", "0"], 1, "expected at least one thread, found 0"),
        (&["add-1m", "--threads", "2", "--device", "gpu"], 1, "error: `--threads` expected the device `cpu`"),
        (&["add-1m", "--dtype", "f64"], 1, "workloads expected `f32` or `f16`, found `f64`"),
        (&["add-1m", "--dtype", "f128"], 2, "expected `f32` or `f16`, found `f128`"),
        (&["add-1m", "--serve"], 2, "cannot be used with"),
    ];
    for (args, code, message) in table {
        let output = bench(args).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{args:?}");
        assert!(text(&output.stderr).contains(message), "{args:?}: {}", text(&output.stderr));
    }
}
