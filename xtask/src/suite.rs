//! The tests: those of the workspace with its doc tests; on request also the tests without default features on a scalar CPU device, and the
//! loom tests, which rebuild most crates.

use std::path::Path;

use crate::command::NamedCommand;
use crate::workspace::{self, Member};

/// Random programs per test of the WGSL compiler when all tests run; a plain run has about half as many.
const FUZZ_CASES: &str = "60";

/// Runs the tests of the named packages, or of the whole workspace if none is named; `all` adds the other builds.
pub(crate) fn run(root: &Path, packages: &[String], all: bool) -> Result<(), String> {
    let tests = workspace_tests("tests", packages);
    if !all {
        return tests.run(root);
    }
    tests.env("KILN_FUZZ_CASES", FUZZ_CASES).run(root)?;
    let mut members = workspace::members(root)?;
    members.retain(|member| packages.is_empty() || packages.contains(&member.name));
    let with_loom: Vec<&str> =
        members.iter().filter(|member| has_loom_tests(root, member)).map(|member| member.name.as_str()).collect();
    if !with_loom.is_empty() {
        loom_tests(&with_loom).run(root)?;
    }
    bare_tests(members).map_or(Ok(()), |command| command.run(root))
}

/// Returns a cargo command over the members that have default features, with these disabled; `None` if no member has any.
pub(crate) fn bare(name: &str, command: &[&str], members: &[Member]) -> Option<NamedCommand> {
    let members: Vec<&Member> = members.iter().filter(|member| member.has_default_features).collect();
    let packages = members.iter().flat_map(|member| ["-p", &member.name]);
    let args: Vec<&str> = command.iter().copied().chain(["--no-default-features"]).chain(packages).collect();
    (!members.is_empty()).then(|| NamedCommand::cargo(name, &args))
}

/// Returns `cargo test` over the named packages, or over the workspace.
pub(crate) fn workspace_tests(name: &str, packages: &[String]) -> NamedCommand {
    let mut args = vec!["test"];
    if packages.is_empty() {
        args.push("--workspace");
    }
    for package in packages {
        args.extend(["-p", package]);
    }
    NamedCommand::cargo(name, &args)
}

/// Returns the tests without default features and with `KILN_SIMD=scalar`; the two are independent, so one run covers both. Crates that enable
/// features of other members (the program, the claims) are left out, because cargo would unify those features into the whole build.
fn bare_tests(mut members: Vec<Member>) -> Option<NamedCommand> {
    members.retain(|member| !member.joins_features);
    Some(bare("bare tests", &["test"], &members)?.env("KILN_SIMD", "scalar"))
}

/// Returns whether a crate has loom tests: it has `tests/loom.rs`.
fn has_loom_tests(root: &Path, member: &Member) -> bool {
    root.join(member.dir()).join("tests/loom.rs").is_file()
}

/// Returns the loom tests. Loom explores many thousand interleavings, hence `--release`; `--cfg loom` rebuilds every
/// dependency, hence a separate target directory.
fn loom_tests(packages: &[&str]) -> NamedCommand {
    let (name, value) = loom_flags(std::env::var("CARGO_ENCODED_RUSTFLAGS").ok(), std::env::var("RUSTFLAGS").ok());
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    let args = ["--release", "--test", "loom", "--target-dir", "target/loom"];
    let args: Vec<&str> = ["test"].into_iter().chain(packages).chain(args).collect();
    NamedCommand::cargo("loom", &args).env(name, &value)
}

/// Adds `--cfg loom` to the active flags. Cargo ignores `RUSTFLAGS` if the encoded form is set, and a loom test without the
/// flag is empty and would pass.
fn loom_flags(encoded: Option<String>, plain: Option<String>) -> (&'static str, String) {
    let join = |flags: String, separator: &str| {
        if flags.is_empty() {
            format!("--cfg{separator}loom")
        } else {
            format!("{flags}{separator}--cfg{separator}loom")
        }
    };
    match encoded {
        Some(flags) => ("CARGO_ENCODED_RUSTFLAGS", join(flags, "\u{1f}")),
        None => ("RUSTFLAGS", join(plain.unwrap_or_default(), " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, has_default_features: bool) -> Member {
        let (name, manifest) = (name.to_string(), format!("{name}/Cargo.toml"));
        Member { name, manifest, dependencies: vec![], has_default_features, joins_features: false, is_published: true }
    }

    #[test]
    fn packages_replace_the_workspace() {
        assert_eq!(workspace_tests("tests", &[]).command_line(), "cargo test --workspace");
        let packages = ["a".to_string(), "b".to_string()];
        assert_eq!(workspace_tests("tests", &packages).command_line(), "cargo test -p a -p b");
    }

    #[test]
    fn bare_tests_are_scalar_and_leave_out_crates_that_join_features() {
        let joining = Member { joins_features: true, ..member("c", true) };
        let line = bare_tests(vec![member("a", true), member("b", false), joining]).unwrap().command_line();
        assert_eq!(line, "KILN_SIMD=scalar cargo test --no-default-features -p a");
    }

    #[test]
    fn bare_command_is_over_the_members_with_default_features() {
        let members = [member("a", false), member("b", true), member("c", true)];
        let line = bare("bare", &["test"], &members).unwrap().command_line();
        assert_eq!(line, "cargo test --no-default-features -p b -p c");
        assert!(bare("bare", &["test"], &members[..1]).is_none());
    }

    #[test]
    fn loom_flag_is_appended_to_the_flags_in_force() {
        let some = |text: &str| Some(text.to_string());
        let table = [
            (None, None, "RUSTFLAGS", "--cfg loom"),
            (None, some("-g"), "RUSTFLAGS", "-g --cfg loom"),
            (some("-g"), some("-O"), "CARGO_ENCODED_RUSTFLAGS", "-g\u{1f}--cfg\u{1f}loom"),
        ];
        for (encoded, plain, name, value) in table {
            assert_eq!(loom_flags(encoded, plain), (name, value.to_string()));
        }
    }

    #[test]
    fn loom_members_are_those_with_a_loom_test_file() {
        let root = std::env::temp_dir().join(format!("kiln-xtask-loom-{}", std::process::id()));
        let manifest = "[package]\nname = 'NAME'\nversion = '0.1.0'\nedition = '2024'\n";
        for name in ["with", "without"] {
            let dir = root.join(name);
            std::fs::create_dir_all(dir.join("src")).unwrap();
            std::fs::create_dir_all(dir.join("tests")).unwrap();
            std::fs::write(dir.join("Cargo.toml"), manifest.replace("NAME", name)).unwrap();
            std::fs::write(dir.join("src/lib.rs"), "").unwrap();
        }
        std::fs::write(root.join("with/tests/loom.rs"), "").unwrap();
        std::fs::write(root.join("Cargo.toml"), "[workspace]\nresolver = '3'\nmembers = ['with', 'without']\n")
            .unwrap();

        let members = workspace::members(&root);
        let has_tests: Vec<bool> = members.iter().flatten().map(|member| has_loom_tests(&root, member)).collect();
        std::fs::remove_dir_all(&root).unwrap();
        let names: Vec<String> = members.unwrap().into_iter().map(|m| m.name).collect();
        assert_eq!((names, has_tests), (vec!["with".to_string(), "without".to_string()], vec![true, false]));
    }
}
