//! The live view in a real terminal: keys, resizing, a lost connection that comes back, and quitting.

use crate::process::{KILN, Process, free_port};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A terminal with a shell, on a separate tmux server that ends when this is dropped.
struct Screen {
    folder: TempDir,
}

impl Screen {
    /// `None` without tmux.
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn new(width: u16, height: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "no tmux although `CI` is set");
            println!("skipped: there is no tmux");
            return None;
        }
        let screen = Self { folder: tempfile::tempdir().unwrap() };
        let (width, height) = (width.to_string(), height.to_string());
        screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, "env PS1='ready> ' sh"]);
        screen.wait_for("ready>");
        Some(screen)
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.folder.path().join("socket")).args(args);
        for name in ["TMUX", "KILN_METRICS", "NO_COLOR", "ENV"] {
            command.env_remove(name);
        }
        let output = command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.key("Enter");
    }

    fn key(&self, name: &str) {
        self.tmux(&["send-keys", name]);
    }

    fn resize(&self, width: u16, height: u16) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    fn text(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// Returns the screen with its colour escape sequences.
    fn coloured_text(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p", "-e"]).stdout).unwrap()
    }

    /// Waits until the screen contains this text, and returns the screen.
    fn wait_for(&self, part: &str) -> String {
        self.wait_until(part, |text| text.contains(part))
    }

    fn wait_until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let text = self.text();
            if is_there(&text) {
                return text;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "expected {what}, found\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.folder.path().join("socket")).arg("kill-server").output();
    }
}

#[test]
fn the_live_view_in_a_terminal() {
    let Some(screen) = Screen::new(80, 24) else { return };
    let mut process = Process::start("127.0.0.1:0");
    process.work();
    screen.type_line(&format!("{KILN} top {} --interval 250ms; echo status=$?", process.address));
    let text = screen.wait_for("4 Kernels");
    for part in ["kiln top", &process.address, "1 Devices", "2 Pools", "3 Caches", "cpu", "plans", "every 250 ms"] {
        assert!(text.contains(part), "expected `{part}` in\n{text}");
    }
    assert!(!text.contains("ready>"), "the shell's screen is visible:\n{text}");
    let kernel = screen.wait_until("a kernel with a rate", |text| text.contains("/s"));
    assert!(kernel.contains("matmul"), "{kernel}");
    process.work();

    screen.key("s");
    screen.wait_for("by launches");
    screen.key("p");
    screen.wait_for("paused");
    screen.key("p");
    screen.wait_for("every");
    screen.key("+");
    screen.wait_for("every 500 ms");
    screen.key("?");
    screen.wait_for("select a pane");
    screen.key("x");
    screen.wait_until("no help", |text| !text.contains("choose a part"));

    screen.resize(120, 40);
    screen.wait_until("a wide screen", |text| text.lines().any(|line| line.chars().count() > 100));
    screen.resize(40, 10);
    let small = screen.wait_until("one part", |text| text.contains("3 Caches") && !text.contains("hit rate"));
    assert!(small.lines().all(|line| line.chars().count() <= 40), "{small}");
    screen.key("2");
    screen.wait_for("in use");
    screen.resize(30, 8);
    screen.wait_for("kiln top needs 40 x 10");
    screen.resize(80, 24);
    screen.wait_for("1 Devices");

    screen.key("q");
    let text = screen.wait_for("status=0");
    assert!(text.contains("ready>") && !text.contains("1 Devices"), "the shell's screen is back:\n{text}");
    // Echo and line endings of the terminal are restored.
    screen.type_line("echo back-$((40 + 2))");
    screen.wait_for("\nback-42\n");
}

/// Returns the parameters of all colour escape sequences on the screen.
fn colours(text: &str) -> Vec<u32> {
    let signs = text.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m'));
    let numbers = signs.flat_map(|(sign, _)| sign.split(';').filter_map(|number| number.parse().ok()));
    numbers.filter(|number| matches!(number, 30..=38 | 40..=48 | 90..=97 | 100..=107)).collect()
}

/// Colours are used if the terminal supports them and `NO_COLOR` is not set; the text is the same without.
#[test]
fn colours_are_those_that_the_user_wants() {
    let Some(screen) = Screen::new(80, 24) else { return };
    let mut process = Process::start("127.0.0.1:0");
    process.work();
    let table = [("", true), ("NO_COLOR=1 ", false), ("NO_COLOR= ", true)];
    for (run, (setting, is_coloured)) in table.into_iter().enumerate() {
        screen.type_line(&format!("{setting}{KILN} top {}; echo status-{run}=$?", process.address));
        let text = screen.wait_for("4 Kernels");
        assert!(text.contains("1 Devices") && text.contains("matmul"), "{text}");
        let found = screen.coloured_text();
        assert_eq!(!colours(&found).is_empty(), is_coloured, "{setting}: {found:?}");
        assert!(found.contains("\x1b["), "bold and reversed stay: {found:?}");
        screen.key("q");
        screen.wait_for(&format!("status-{run}=0"));
    }
}

#[test]
fn a_lost_connection_is_shown_and_comes_back() {
    let Some(screen) = Screen::new(80, 24) else { return };
    let address = format!("127.0.0.1:{}", free_port());
    let process = Process::start(&address);
    screen.type_line(&format!("{KILN} top {address} --interval 100ms; echo status=$?"));
    screen.wait_for("1 Devices");
    drop(process);
    let text = screen.wait_for("connection lost, retrying: nothing answers at");
    assert!(text.contains("2 Pools"), "what was seen last stays:\n{text}");
    let process = Process::start(&address);
    screen.wait_until("the process again", |text| text.contains("1 Devices") && !text.contains("connection lost"));
    drop(process);
    screen.wait_for("connection lost");
    screen.key("C-c");
    let text = screen.wait_for("status=0");
    assert!(text.contains("ready>") && !text.contains("connection lost"), "{text}");
}
