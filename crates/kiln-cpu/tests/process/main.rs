//! What only a process of its own can show: how fast it starts, which threads it has, how much memory is resident.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(target_os = "linux")]
mod memory;
mod start;
#[cfg(target_os = "linux")]
mod threads;

use std::process::Command;

/// Set for a child: what it does.
const ROLE: &str = "KILN_CPU_TEST_ROLE";

/// The role of this process, where it is a child.
fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// This test binary again, as a child that runs `test` in `role`.
fn child(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// Runs `body` in a process of its own, which `test` becomes when it is run again.
#[cfg(target_os = "linux")]
fn in_own_process(test: &str, body: impl FnOnce()) {
    if role().is_some() {
        return body();
    }
    let output = child(test, "alone").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}
