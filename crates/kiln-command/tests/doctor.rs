//! Runs `kiln doctor` as a process: output and exit status.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const KILN: &str = env!("CARGO_BIN_EXE_kiln");

/// `kiln doctor` with an empty private cache directory, whatever the machine has.
fn doctor(args: &[&str], cache_dir: &Path) -> Command {
    let mut command = Command::new(KILN);
    command.arg("doctor").args(args).env("KILN_CACHE_DIR", cache_dir);
    command.env_remove("CLICOLOR_FORCE").env_remove("XDG_RUNTIME_DIR").env_remove("KILN_SIMD");
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check `{name}` in {report:#}"))
}

/// Every device that is listed is tested; the CPU device works, and the default device is one of the list.
#[test]
fn json_has_the_devices_and_the_cpu_device_works() {
    let dir = tempfile::tempdir().unwrap();
    let output = doctor(&["--json"], dir.path()).output().unwrap();
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(text(&output.stderr), "", "neither Kiln nor a driver complains");
    assert_eq!((&report["format"], &report["healthy"]), (&1.into(), &true.into()));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["system"]["os"], std::env::consts::OS);
    let devices = report["devices"].as_array().unwrap();
    let cpu = &devices[0];
    assert_eq!((&cpu["id"], &cpu["kind"], &cpu["test"]["works"]), (&"cpu".into(), &"cpu".into(), &true.into()));
    assert!(cpu["limits"]["threads"].as_u64().unwrap() >= 1);
    assert!(cpu["memory"]["total_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(report["simd"].as_str().is_some_and(|simd| !simd.is_empty()));
    let default = report["default"]["id"].as_str().unwrap();
    let default_device = devices.iter().find(|device| device["id"] == default).unwrap();
    assert_ne!(default_device["kind"], "software-gpu");
    assert_eq!(report["default"]["rejected"].as_array().unwrap().len(), devices.len() - 1);
    for device in devices {
        assert_eq!(check(&report, device["id"].as_str().unwrap())["section"], "devices");
    }
}

/// The SIMD level can be set, and the report says so.
#[test]
fn simd_level_is_that_of_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let set = |value: &str| {
        let output = doctor(&["--json"], dir.path()).env("KILN_SIMD", value).output().unwrap();
        (output.status.code(), json(&output))
    };
    let (code, report) = set("scalar");
    assert_eq!((code, &report["simd"], &report["simd_setting"]), (Some(0), &"scalar".into(), &"scalar".into()));
    let without_vectors = serde_json::json!(["shader-f16", "subgroups"]);
    assert_eq!(report["devices"][0]["features"], without_vectors, "what kernels can use is left");
    assert_eq!(check(&report, "SIMD")["details"], serde_json::json!(["set by KILN_SIMD"]));
    let (code, report) = set("");
    assert_eq!(
        (code, report["simd"].as_str()),
        (Some(0), Some(kiln::device::SimdLevel::detect().name())),
        "empty is unset"
    );
    assert!(report["simd_setting"].is_null() && check(&report, "SIMD")["details"] == serde_json::json!([]));
    let (code, report) = set("fast");
    assert_eq!(code, Some(1), "{report:#}");
    let error = report["devices"][0]["test"]["error"].as_str().unwrap();
    assert!(error.starts_with("KILN_SIMD: expected a SIMD level") && error.contains("`scalar`, "), "{error}");
}

#[test]
fn text_is_plain_in_a_pipe_and_says_the_verdict_last() {
    let dir = tempfile::tempdir().unwrap();
    let output = doctor(&[], dir.path()).output().unwrap();
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}");
    assert!(!out.contains('\u{1b}'), "{out:?}");
    assert!(out.starts_with(&format!("kiln {} on ", env!("CARGO_PKG_VERSION"))), "{out}");
    assert!(out.lines().any(|line| line.starts_with("  ok       cpu")), "{out}");
    assert!(out.lines().last().unwrap().starts_with("No problems found; the default device is "), "{out}");
}

#[test]
fn colours_can_be_forced_and_forbidden() {
    let dir = tempfile::tempdir().unwrap();
    for (variable, is_coloured) in [("CLICOLOR_FORCE", true), ("NO_COLOR", false)] {
        let output = doctor(&[], dir.path()).env(variable, "1").output().unwrap();
        assert_eq!(text(&output.stdout).contains("\u{1b}[32mok"), is_coloured, "{variable}");
    }
}

#[test]
fn cache_directory_is_the_one_of_the_environment_and_is_not_made() {
    let root = tempfile::tempdir().unwrap();
    let named = root.path().join("named/kiln");
    let report = json(&doctor(&["--json"], &named).output().unwrap());
    let dir = &report["cache_directory"];
    assert_eq!((dir["path"].as_str(), dir["source"].as_str()), (named.to_str(), Some("KILN_CACHE_DIR")));
    assert_eq!(dir["state"], "not-created");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[cfg(all(unix, not(target_os = "macos")))]
#[test]
fn cache_directory_without_a_variable_is_that_of_the_user() {
    let home = tempfile::tempdir().unwrap();
    let path = |xdg: Option<&Path>| {
        let mut command = Command::new(KILN);
        command.args(["doctor", "--json"]).env_remove("KILN_CACHE_DIR").env_remove("XDG_CACHE_HOME");
        // A driver may write its own cache to this path, relative to the working directory.
        command.current_dir(home.path()).env("HOME", home.path()).envs(xdg.map(|xdg| ("XDG_CACHE_HOME", xdg)));
        json(&command.output().unwrap())["cache_directory"]["path"].as_str().unwrap().to_string()
    };
    assert_eq!(Path::new(&path(None)), home.path().join(".cache/kiln"));
    assert_eq!(Path::new(&path(Some(&home.path().join("xdg")))), home.path().join("xdg/kiln"));
    assert_eq!(Path::new(&path(Some(Path::new("relative")))), home.path().join(".cache/kiln"));
}

#[test]
fn relative_cache_directory_is_a_problem() {
    let output = doctor(&["--json"], Path::new("some/where")).output().unwrap();
    let report = json(&output);
    assert_eq!((output.status.code(), &report["healthy"]), (Some(1), &false.into()));
    assert_eq!(report["cache_directory"]["state"], "invalid");
}

#[cfg(unix)]
mod permissions {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory that another user can write is refused with a clear message.
    #[test]
    fn world_writable_cache_directory_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o777);
        let output = doctor(&[], dir.path()).output().unwrap();
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{out}");
        assert!(out.contains(&format!("problem  directory  {} is refused", dir.path().display())), "{out}");
        assert!(out.contains("only its owner can write, found mode 777"), "{out}");
        assert!(out.contains(&format!("fix: chmod 700 {}", dir.path().display())), "{out}");
        assert!(out.ends_with("\n1 problem found.\n"), "{out}");
    }

    /// Root can write everywhere, so the program runs as another user if the tests run as root.
    #[test]
    fn cache_directory_that_cannot_be_written_is_a_problem() {
        const NOBODY: u32 = 65534;
        let root = tempfile::tempdir().unwrap();
        let (program, dir) = (root.path().join("kiln"), root.path().join("cache"));
        // A copy, because another user may have no access to cargo's target directory. `cp` makes it: a program that
        // is still open for writing cannot start, and a child of another test could hold it open.
        assert!(Command::new("cp").arg(KILN).arg(&program).status().unwrap().success());
        fs::create_dir(&dir).unwrap();
        set_mode(root.path(), 0o755);
        set_mode(&dir, 0o500);
        let mut command = Command::new(&program);
        if rustix::process::geteuid().is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(["doctor", "--json"]);
        for (path, verb) in [(dir.clone(), "cannot write to "), (dir.join("kiln"), "cannot create it in ")] {
            let output = command.env("KILN_CACHE_DIR", &path).output().unwrap();
            let report = json(&output);
            assert_eq!((output.status.code(), &report["cache_directory"]["state"]), (Some(1), &"unwritable".into()));
            assert!(report["cache_directory"]["fault"].as_str().unwrap().starts_with(verb), "{report:#}");
        }
    }

    #[test]
    fn cache_directory_of_somebody_else_is_refused() {
        if !rustix::process::geteuid().is_root() {
            // Only root can change the owner of a directory; `/` belongs to another user.
            let report = json(&doctor(&["--json"], Path::new("/")).output().unwrap());
            assert_eq!(report["cache_directory"]["state"], "refused");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        chown(dir.path(), Some(65534), None).unwrap();
        let output = doctor(&["--json"], dir.path()).output().unwrap();
        let report = json(&output);
        assert_eq!((output.status.code(), &report["cache_directory"]["state"]), (Some(1), &"refused".into()));
    }
}

#[test]
fn usage_errors_exit_with_2_and_write_to_standard_error() {
    for args in [&["cure"][..], &["doctor", "--yaml"], &["doctor", "extra"], &[]] {
        let output = Command::new(KILN).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert!(text(&output.stderr).contains("Usage: kiln"), "{args:?}: {}", text(&output.stderr));
    }
    let version = Command::new(KILN).arg("--version").output().unwrap();
    assert_eq!(text(&version.stdout), format!("kiln {}\n", env!("CARGO_PKG_VERSION")));
}

/// `kiln doctor | head -1`.
#[test]
fn reader_that_leaves_early_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&[][..], &["--json"]] {
        let mut child = doctor(args, dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""), "{args:?}");
    }
    let mut child = doctor(&[], dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("kiln "), "{first}");
    assert!(child.wait().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn report_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = doctor(&[], dir.path()).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error: cannot write the report: "), "{}", text(&output.stderr));
}

/// Without a usable GPU the CPU device is the default, and the report says why and what to do.
#[cfg(all(target_os = "linux", feature = "gpu"))]
#[test]
fn without_a_gpu_driver_the_cpu_device_serves() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("none.json");
    let mut command = doctor(&["--json"], dir.path());
    let output = command.env("VK_DRIVER_FILES", &nowhere).env("VK_ICD_FILENAMES", &nowhere).output().unwrap();
    let report = json(&output);
    assert_eq!((output.status.code(), &report["default"]["id"]), (Some(0), &"cpu".into()), "{report:#}");
    assert_eq!(report["devices"].as_array().unwrap().len(), 1);
    assert!(
        report["default"]["reason"].as_str().unwrap().starts_with("no GPU was found: expected a GPU"),
        "{report:#}"
    );
    let drivers = report["checks"].as_array().unwrap().iter().find(|check| check["section"] == "drivers").unwrap();
    assert_eq!(drivers["state"], "note");
    assert!(drivers["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{drivers:#}");
}

#[cfg(not(feature = "gpu"))]
#[test]
fn build_without_gpu_support_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let report = json(&doctor(&["--json"], dir.path()).output().unwrap());
    assert_eq!((&report["gpu_support"], &report["healthy"]), (&false.into(), &true.into()));
    assert_eq!(check(&report, "support")["message"], "this build has no GPU support");
}
