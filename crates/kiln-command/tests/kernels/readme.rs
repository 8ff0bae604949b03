//! The commands of the README do what it says.

use crate::support::{Workspace, fixture};
use std::fs;

const README: &str = include_str!("../../../../README.md");

#[test]
fn commands_of_the_readme_work_in_their_order() {
    let workspace = Workspace::new();
    ["x.npy", "y.npy"].iter().for_each(|name| workspace.fixture(name));
    let (_, rest) = README.split_once("```wgsl\n").unwrap();
    fs::write(workspace.path("saxpy.wgsl"), rest.split_once("```").unwrap().0).unwrap();
    let commands: Vec<&str> = README.lines().filter_map(|line| line.strip_prefix("kiln ")).collect();
    let commands: Vec<&str> =
        commands.into_iter().filter(|line| line.starts_with("run ") || line.starts_with("cache ")).collect();
    assert!(commands.len() >= 12, "{commands:?}");
    for command in commands {
        let line = command.split(" #").next().unwrap_or(command);
        workspace.text(line);
        // What is cleared at the end was there before.
        let entries = workspace.json("cache stats")["entries"].as_u64().unwrap();
        assert_eq!(entries, u64::from(line.trim() != "cache clear"), "{line}");
    }
    assert_eq!(fs::read(workspace.path("out.npy")).unwrap(), fs::read(fixture("saxpy.npy")).unwrap());
    assert!(workspace.path("ax.npy").exists());
}
