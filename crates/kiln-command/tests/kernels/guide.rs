//! Runs the commands of the user guide in their order. `src/guide.rs` checks that the slow ones parse.

use crate::support::{Workspace, fixture};
use std::fs;

const KERNELS: &str = include_str!("../../../../docs/guide/03-kernels-and-the-sanitizer.md");
const CACHES: &str = include_str!("../../../../docs/guide/04-caches.md");
const COMMAND_LINE: &str = include_str!("../../../../docs/guide/08-command-line.md");

/// Commands that are fast and need no other process.
const CHEAP: [&str; 8] = ["cache", "check", "completions", "eval", "help", "man", "ops", "run"];

/// Returns a workspace with the files that the guide uses: its kernels, and arrays.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    ["x.npy", "y.npy"].iter().for_each(|name| workspace.fixture(name));
    ["a.npy", "b.npy"].iter().for_each(|name| _ = fs::copy(fixture("fortran.npy"), workspace.path(name)).unwrap());
    let kernels = KERNELS.split("```wgsl\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    for (name, text) in ["saxpy.wgsl", "race.wgsl"].into_iter().zip(kernels) {
        fs::write(workspace.path(name), text).unwrap();
    }
    workspace
}

/// Returns the cheap commands of a chapter, and the exit status of each: 0 unless its comment names another.
fn commands(chapter: &'static str) -> Vec<(&'static str, i32)> {
    let lines = chapter.lines().filter_map(|line| line.strip_prefix("kiln "));
    let cheap = lines.filter(|line| CHEAP.contains(&line.split_whitespace().next().unwrap_or_default()));
    let parts = cheap.map(|line| line.split_once(" #").unwrap_or((line, "")));
    let without_redirection = |command: &'static str| command.split(" >").next().unwrap_or(command).trim_end();
    parts
        .map(|(command, comment)| (without_redirection(command), i32::from(comment.contains("exit status 1"))))
        .collect()
}

#[test]
fn kernel_commands_of_the_guide_do_what_it_says() {
    let workspace = workspace();
    let commands = commands(KERNELS);
    assert_eq!(commands.len(), 4, "{commands:?}");
    for (command, status) in commands {
        let ran = workspace.kiln(command);
        assert_eq!(ran.code, Some(status), "{command}: {}{}", ran.out, ran.err);
        assert!(status == 0 || ran.out.starts_with("race.wgsl:9:"), "{command}: {}", ran.out);
    }
    assert_eq!(fs::read(workspace.path("out.npy")).unwrap(), fs::read(fixture("saxpy.npy")).unwrap());
    assert!(workspace.path("ax.npy").exists());
}

#[test]
fn cache_commands_of_the_guide_work_in_their_order() {
    let workspace = workspace();
    let commands = commands(CACHES);
    assert!(commands.len() >= 11, "{commands:?}");
    for (command, _) in commands {
        workspace.text(command);
        // The kernel stays stored until the cache is cleared.
        let entries = workspace.json("cache stats")["entries"].as_u64().unwrap();
        assert_eq!(entries, u64::from(command != "cache clear"), "{command}");
    }
}

#[test]
fn cheap_commands_of_the_guide_succeed() {
    let workspace = workspace();
    let commands = commands(COMMAND_LINE);
    assert!(commands.len() >= 20, "{commands:?}");
    for (command, status) in commands {
        let ran = workspace.kiln(command);
        assert_eq!(ran.code, Some(status), "{command}: {}{}", ran.out, ran.err);
    }
    assert!(workspace.path("c.npy").exists());
}
