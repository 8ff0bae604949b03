//! Tests that need a separate process: start-up time, threads, resident memory.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(target_os = "linux")]
mod memory;
mod start;
#[cfg(target_os = "linux")]
mod threads;

use std::process::Command;

/// The environment variable with the role of a child process.
const ROLE: &str = "KILN_CPU_TEST_ROLE";

/// Returns the role of this process if it is a child.
fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Starts this test binary as a child process that runs `test` in `role`.
fn child(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// Runs `body` in a child process that runs only `test`.
#[cfg(target_os = "linux")]
fn in_own_process(test: &str, body: impl FnOnce()) {
    if role().is_some() {
        return body();
    }
    let output = child(test, "alone").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}
