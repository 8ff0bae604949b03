//! Runs `kiln eval` as a process: output, files and exit status.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A directory with arrays, in which the program runs.
struct Workspace(TempDir);

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Workspace {
    /// Creates `a` and `b`, with two rows and three columns.
    fn new() -> Self {
        let workspace = Self(tempfile::tempdir().unwrap());
        workspace.write("a.npy", "<f4", "(2, 3)", &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes).concat());
        workspace.write("b.npy", "<f4", "(2, 3)", &[1.0f32, 0.0, -1.0, 2.0, -2.0, 0.5].map(f32::to_le_bytes).concat());
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, descr: &str, shape: &str, data: &[u8]) {
        fs::write(self.path(name), npy(descr, "False", shape, data)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.arg("eval").args(arguments).current_dir(self.0.path());
        command
            .env("KILN_CACHE_DIR", self.path("cache"))
            .env_remove("KILN_VERIFY")
            .env_remove("KILN_SIMD")
            .env_remove("XDG_RUNTIME_DIR");
        command
    }

    fn eval(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(arguments))
    }

    /// Returns the JSON output for a valid expression, on the CPU device.
    fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.eval(&[arguments, &["--json", "--device", "cpu"]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}: {}", ran.out);
        serde_json::from_str(&ran.out).unwrap()
    }

    /// Returns the error message of a command that fails. It writes nothing else.
    fn error(&self, arguments: &[&str]) -> String {
        let ran = self.eval(&[arguments, &["--device", "cpu"]].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{arguments:?}: {}", ran.err);
        ran.err
    }
}

impl Ran {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// Returns a file as NumPy writes it.
fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    [b"\x93NUMPY\x01\0\x76\0", format!("{header:117}\n").as_bytes(), data].concat()
}

const IN: [&str; 4] = ["--in", "a=a.npy", "--in", "b=b.npy"];

/// Returns the names of this machine's devices: the CPU device, and a GPU if there is one.
fn devices() -> Vec<&'static str> {
    let has_gpu = kiln::Device::list().len() > 1;
    assert!(has_gpu || std::env::var_os("CI").is_none() || cfg!(not(feature = "gpu")), "no GPU although `CI` is set");
    if has_gpu { vec!["cpu", "gpu"] } else { vec!["cpu"] }
}

/// The first example of the user guide's chapter on the command line, on every device: one kernel, and the file that NumPy would write.
#[test]
fn expression_on_files_writes_a_file() {
    let workspace = Workspace::new();
    for device in devices() {
        let ran = workspace
            .eval(&[&["relu(a*b+1).sum(1)"], &IN[..], &["--out", "c.npy", "--explain", "--device", device]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
        let expected = npy("<f4", "False", "(2,)", &[3.0f32, 13.0].map(f32::to_le_bytes).concat());
        assert_eq!(fs::read(workspace.path("c.npy")).unwrap(), expected, "{device}");
        assert!(ran.out.contains("\nf32  (2,)  c.npy\nran in "), "{}", ran.out);
        assert!(ran.out.contains(&format!("on {device}")) && ran.out.contains("1 kernel"), "{}", ran.out);
        let names: Vec<String> = fs::read_dir(workspace.path(""))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
    }
}

/// Without an output file, standard output has the result and nothing else.
#[test]
fn result_is_shown_where_there_is_no_file() {
    let workspace = Workspace::new();
    for device in devices() {
        let ran = workspace.eval(&[&["a @ b.T"], &IN[..], &["--explain", "--device", device]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        for text in ["-2.0", "-0.5", "(2, 2)", "f32", device] {
            assert!(ran.out.contains(text), "{text}: {}", ran.out);
        }
        assert!(ran.err.contains("matmul") && !ran.out.contains("matmul"), "{}", ran.err);
    }
}

#[test]
fn json_has_shape_dtype_and_data() {
    let workspace = Workspace::new();
    let report = workspace.json(&[&["a[:, :2] * 0.5"], &IN[..2]].concat());
    assert_eq!(report["format"], 1);
    assert_eq!((&report["shape"], &report["dtype"], &report["device"]), (&json!([2, 2]), &json!("f32"), &json!("cpu")));
    assert_eq!(report["data"], json!([0.5, 1.0, 2.0, 2.5]));
    assert!(report["run_us"].is_u64() && report.get("file").is_none() && report.get("explain").is_none());
    assert_eq!(workspace.json(&["zeros(0, 2)"])["data"], json!([]));
    assert_eq!(workspace.json(&["1 / 0"])["data"], json!([null]), "JSON has no infinity");
    assert_eq!(workspace.json(&["-2 * 3"])["data"], json!([-6.0]), "an expression may begin with a sign");
    assert_eq!(
        workspace.json(&["--seed", "1", "rand(2)"])["data"],
        workspace.json(&["rand(2)", "--seed", "1"])["data"]
    );
    assert_ne!(
        workspace.json(&["--seed", "1", "rand(2)"])["data"],
        workspace.json(&["rand(2)", "--seed", "2"])["data"]
    );
    let report = workspace.json(&["ones(2)", "--out", "c.npy", "--explain"]);
    assert_eq!((&report["file"], report.get("data")), (&json!("c.npy"), None));
    assert!(report["explain"].is_string(), "{report}");
}

/// Every dtype that a file can have, in row-major and column-major order.
#[test]
fn files_of_every_kind_are_read() {
    let workspace = Workspace::new();
    let table: [(&str, &str, Vec<u8>, &str, Value); 9] = [
        ("<f2", "(2,)", vec![0x00, 0x3c, 0x00, 0xc0], "f16", json!([1.0, -2.0])),
        ("<f4", "()", 1.5f32.to_le_bytes().to_vec(), "f32", json!([1.5])),
        ("<f8", "(1, 1)", 0.25f64.to_le_bytes().to_vec(), "f32", json!([0.25])),
        ("<i4", "(1,)", (-3i32).to_le_bytes().to_vec(), "i32", json!([-3])),
        ("<i8", "(1,)", (-3i64).to_le_bytes().to_vec(), "i32", json!([-3])),
        ("<u4", "(1,)", u32::MAX.to_le_bytes().to_vec(), "u32", json!([u32::MAX])),
        ("|u1", "(0, 3)", vec![], "u8", json!([])),
        ("|b1", "(2,)", vec![1, 0], "bool", json!([true, false])),
        ("|i1", "(2,)", vec![1, 0xff], "i8", json!([1, -1])),
    ];
    for (descr, shape, data, dtype, expected) in table {
        workspace.write("x.npy", descr, shape, &data);
        let ran = workspace.eval(&["x", "--in", "x=x.npy", "--json", "--device", "cpu"]);
        assert_eq!(ran.code, Some(0), "{descr}: {}", ran.err);
        let is_converted = descr.ends_with('8');
        let note = format!("warning: input `x`: x.npy: {}64 is read as {dtype}\n", &descr[1..2]);
        assert_eq!(ran.err, if is_converted { note } else { String::new() });
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((&report["dtype"], &report["data"]), (&json!(dtype), &expected), "{descr}");
        if !is_converted {
            // An unchanged array is written with identical bytes.
            workspace.eval(&["x", "--in", "x=x.npy", "--out", "y.npy", "--device", "cpu"]);
            assert_eq!(
                fs::read(workspace.path("y.npy")).unwrap(),
                fs::read(workspace.path("x.npy")).unwrap(),
                "{descr}"
            );
        }
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let fortran = format!("x={}", fixtures.join("fortran.npy").display());
    assert_eq!(workspace.json(&["x", "--in", &fortran])["data"], json!([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
}

/// An input file may also be the output file; a failed command does not change it.
#[test]
fn result_may_replace_an_input() {
    let workspace = Workspace::new();
    let before = fs::read(workspace.path("a.npy")).unwrap();
    workspace.error(&["a + c", "--in", "a=a.npy", "--out", "a.npy"]);
    assert_eq!(fs::read(workspace.path("a.npy")).unwrap(), before);
    workspace.json(&["a + 1", "--in", "a=a.npy", "--out", "a.npy"]);
    assert_eq!(workspace.json(&["a", "--in", "a=a.npy"])["data"], json!([2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
}

/// A failed evaluation exits with status 1 and says where and why; an invalid command line exits with status 2.
#[test]
fn errors_name_what_is_wrong() {
    let workspace = Workspace::new();
    workspace.write("long.npy", "<i8", "(1,)", &(1i64 << 40).to_le_bytes());
    fs::write(workspace.path("bad.npy"), "PK").unwrap();
    let lines: &[&[&str]] = &[
        &["relu(a*)", "--in", "a=a.npy"],
        &["a +\n  b[0, :2]", "--in", "a=a.npy", "--in", "b=b.npy"],
        &["relu(a) + c", "--in", "a=a.npy"],
        &[""],
        &["a", "--in", "a=nowhere.npy"],
        &["a", "--in", "a=bad.npy"],
        &["a", "--in", "a=long.npy"],
        &["a", "--in", "a=a.npy", "--in", "a=b.npy"],
        &["a", "--in", "f32=a.npy"],
        &["a", "--in", "a.b=a.npy"],
        &["ones(2).to(bf16)", "--out", "c.npy"],
        &["ones(2)", "--out", "nowhere/c.npy"],
    ];
    let mut shown = String::new();
    for line in lines {
        shown += &format!("$ kiln eval {}\n{}\n", line.join(" "), workspace.error(line));
    }
    insta::assert_snapshot!("errors", shown);
    assert!(!workspace.path("c.npy").exists());
    let usage: &[&[&str]] =
        &[&[], &["a", "b"], &["a", "--in", "a"], &["a", "--seed", "x"], &["a", "--nonsense"], &["a", "--out"]];
    for line in usage {
        let ran = workspace.eval(line);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{line:?}: {}", ran.err);
    }
    let ran = workspace.eval(&["1", "--device", "npu"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.starts_with("error: expected the name of a device, `cpu`, `gpu` or `gpu:N`, found `npu`"),
        "{}",
        ran.err
    );
}

/// `--verify` and `KILN_VERIFY=1` compare three runs, on every device.
#[test]
fn verify_is_an_option_and_a_variable() {
    let workspace = Workspace::new();
    for device in devices() {
        let line = [&["softmax(a*b).sum(1)"], &IN[..], &["--json", "--device", device]].concat();
        let report = |ran: Ran| -> Value {
            assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
            serde_json::from_str(&ran.out).unwrap()
        };
        let plain = report(workspace.eval(&line));
        let option = report(workspace.eval(&[&line[..], &["--verify"]].concat()));
        let variable = report(Ran::of(workspace.command(&line).env("KILN_VERIFY", "1")));
        let off = report(Ran::of(workspace.command(&line).env("KILN_VERIFY", "0")));
        assert!(plain["verify"].is_null() && off["verify"].is_null());
        for verified in [option, variable] {
            assert!(verified["verify"].as_str().unwrap().contains("ops"), "{verified}");
            assert_eq!(verified["data"], plain["data"]);
        }
    }
}

#[test]
fn functions_are_listed() {
    let workspace = Workspace::new();
    let ran = workspace.eval(&["--functions"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    for op in kiln::ir::op::all() {
        let name = op.name.trim_end_matches('_');
        assert!(ran.out.lines().any(|line| line.starts_with(&format!("{name}(")) && line.ends_with(op.doc)), "{name}");
    }
    assert!(ran.out.contains("\nsoftmax(x, axis=-1)  "), "{}", ran.out);
    let ran = workspace.eval(&["--functions", "--json"]);
    let list: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(list["functions"][0]["signature"], "add(a, b)");
}

/// The SIMD level can be set; the error for an invalid level lists the valid ones.
#[test]
fn simd_level_is_that_of_the_environment() {
    let workspace = Workspace::new();
    let set =
        |value: &str| Ran::of(workspace.command(&["ones(3).exp().sum()", "--device", "cpu"]).env("KILN_SIMD", value));
    let ran = set("scalar");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    let ran = set("sse");
    let names = "`scalar`, `neon`, `neon-f16`, `avx2`, `avx512`";
    let expected = format!("error: KILN_SIMD: expected a SIMD level, one of {names}, found `sse`\n");
    assert_eq!((ran.code, ran.out.as_str(), ran.err), (Some(1), "", expected));
}
