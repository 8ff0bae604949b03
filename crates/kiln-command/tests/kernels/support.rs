//! Runs the program in a temporary directory with its own kernel cache.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A working directory and a kernel cache, which is created on first use.
pub(crate) struct Workspace {
    root: TempDir,
    /// The device that kernels run on; `None` for the default.
    device: Option<&'static str>,
}

/// The result of a command.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self::on(None)
    }

    fn on(device: Option<&'static str>) -> Self {
        Self { root: tempfile::tempdir().unwrap(), device }
    }

    /// Returns a workspace for each device: the CPU device, and a GPU if there is one, including software GPUs.
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    pub(crate) fn on_each_device() -> impl Iterator<Item = Self> {
        static HAS_GPU: OnceLock<bool> = OnceLock::new();
        let has_gpu = *HAS_GPU.get_or_init(|| kiln::Device::list().len() > 1);
        let must_be_there = std::env::var_os("CI").is_some() && cfg!(feature = "gpu");
        assert!(has_gpu || !must_be_there, "no GPU although `CI` is set");
        if !has_gpu {
            println!("skipped on the GPU: there is none");
        }
        ["cpu", "gpu:0"].into_iter().filter(move |id| has_gpu || *id == "cpu").map(|id| Self::on(Some(id)))
    }

    /// Creates another workspace for the same device.
    pub(crate) fn another(&self) -> Self {
        Self::on(self.device)
    }

    /// Returns the id of the device.
    pub(crate) fn device(&self) -> &'static str {
        self.device.expect("a workspace for a device")
    }

    /// Returns a path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Copies a fixture into the directory.
    pub(crate) fn fixture(&self, name: &str) {
        fs::copy(fixture(name), self.path(name)).unwrap();
    }

    /// Returns the cache directory.
    pub(crate) fn cache_dir(&self) -> PathBuf {
        self.path("cache")
    }

    /// Returns the program as a command, in the directory and on the device of the workspace.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let takes_device = ["run ", "cache warm ", "cache explain "].iter().any(|start| line.starts_with(start));
        let device = self.device.filter(|_| takes_device).map(|device| ["--device", device]);
        command
            .args(words(line))
            .args(device.iter().flatten())
            .current_dir(self.root.path())
            .env("KILN_CACHE_DIR", self.cache_dir());
        command.env_remove("CLICOLOR_FORCE").env_remove("XDG_RUNTIME_DIR");
        command
    }

    /// Runs the program with these arguments.
    pub(crate) fn kiln(&self, line: &str) -> Ran {
        Ran::of(&self.command(line).output().unwrap())
    }

    /// Runs the program, which must succeed, and returns its JSON output.
    pub(crate) fn json(&self, line: &str) -> Value {
        let ran = self.kiln(&format!("{line} --json"));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{line}: {}", ran.out);
        ran.json()
    }

    /// Runs the program, which must succeed, and returns its output.
    pub(crate) fn text(&self, line: &str) -> String {
        let ran = self.kiln(line);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{line}: {}", ran.out);
        ran.out
    }

    /// Runs the program, which must exit with status 1 and an empty standard output, and returns the error message.
    pub(crate) fn error(&self, line: &str) -> String {
        let ran = self.kiln(line);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{line}: {}", ran.err);
        ran.err
    }
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    pub(crate) fn json(&self) -> Value {
        let value: Value = serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out));
        assert_eq!(value["format"], 1);
        value
    }
}

/// Splits a line like a shell: at spaces outside of double quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(character),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the path of a fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}
