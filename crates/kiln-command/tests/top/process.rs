//! A Kiln process that exports metrics.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) const KILN: &str = env!("CARGO_BIN_EXE_kiln");

/// Returns the program as a command, without Kiln's environment variables of the test.
pub(crate) fn kiln(args: &[&str]) -> Command {
    let mut command = Command::new(KILN);
    command.args(args);
    for name in ["KILN_METRICS", "KILN_SIMD", "CLICOLOR_FORCE", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

/// Returns a free port.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `kiln bench --serve`, which runs workloads on request, with its metrics at an address or in a file. It ends when this is dropped.
pub(crate) struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Process {
    /// Starts it with its metrics in a file, which exists once it has answered a request.
    pub(crate) fn start_with_file(path: &Path) -> Self {
        let mut command = kiln(&["bench", "--serve", "--threads", "1"]);
        let target = format!("file:{}", path.display());
        command.env("KILN_METRICS", &target).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (requests, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, requests, answers, address: target }
    }

    /// Starts it at this address, and waits until it prints the address that it serves.
    pub(crate) fn start(address: &str) -> Self {
        let mut command = kiln(&["bench", "--serve", "--threads", "1"]);
        command.env("KILN_METRICS", address).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut stderr).unwrap();
        let address =
            stderr.trim_end().strip_prefix("note: metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("expected an address, found `{stderr}`")).to_string();
        let (requests, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, requests, answers, address }
    }

    fn ask(&mut self, request: &str) -> String {
        writeln!(self.requests.as_mut().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(!line.contains("error"), "{line}");
        line
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Runs some kernels.
    pub(crate) fn work(&mut self) {
        self.ask(r#"{"do":"prepare","workload":"mlp-1x64x64","dtype":"f32"}"#);
        self.ask(r#"{"do":"sample","runs":20}"#);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.child.wait();
    }
}
