//! Type-checks the workspace for macOS without a Mac.
//!
//! A released Linux toolchain has no standard library for macOS, and no sources to build one
//! from. Debian's `-web` packages (the toolchain it builds browsers with) have both a recent
//! compiler and the sources of its standard library; `RUSTC_BOOTSTRAP` lets it use `-Zbuild-std`.
//! The few crates that the standard library itself depends on come from the registry, like any other
//! dependency. Nothing is linked, so no Apple SDK is needed. A dependency that compiles C for the
//! target does need one and fails here: disable its C parts by a feature.

use std::path::Path;

use crate::command::NamedCommand;

const PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// Minimum Rust version of the workspace.
const WANTED: &str = env!("CARGO_PKG_RUST_VERSION");

/// Runs the check; installs the required packages if possible.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    if cfg!(target_os = "macos") {
        return NamedCommand::cargo("macos", &["check", "--workspace"]).run(root);
    }
    install_missing(root)?;
    let cargo = program(root, "cargo-web", "cargo")?;
    let rustc = program(root, "rustc-web", "rustc")?;
    cross_check(&cargo, &rustc).run(root)
}

fn cross_check(cargo: &str, rustc: &str) -> NamedCommand {
    // The dev profile optimises dependencies, including the standard library. Nothing runs here, so
    // disabling optimisation and debug information halves the time.
    let args = [
        "check",
        "-Zbuild-std",
        "--target",
        "aarch64-apple-darwin",
        "--workspace",
        "--exclude",
        "xtask",
        "--target-dir",
        "target/macos",
        "--config",
        "profile.dev.opt-level=0",
        "--config",
        "profile.dev.debug=false",
        "--config",
        r#"profile.dev.package."*".opt-level=0"#,
    ];
    NamedCommand::new("macos", cargo, &args)
        .env("RUSTC", rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        // Set by `cargo run` for its own toolchain; this compiler has other libraries.
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("RUSTUP_TOOLCHAIN")
}

/// Installs packages that are missing or older than the Rust version of the workspace.
fn install_missing(root: &Path) -> Result<(), String> {
    let missing = missing(root);
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install {}", missing.join(" "));
    if !answers(root, "apt-get", &["--version"]) {
        return Err(format!(
            "check-macos: expected a Mac, or a Debian-like system with the packages {}; found no apt-get. \
             Run it in a Debian container, after `{by_hand}`",
            missing.join(", ")
        ));
    }
    if NamedCommand::new("user", "id", &["-u"]).output(root)?.trim() != "0" {
        return Err(format!(
            "check-macos: expected the packages {}, found them missing and no right to install them. \
             Run as root: {by_hand}",
            missing.join(", ")
        ));
    }
    println!("check-macos: installing {} with apt-get", missing.join(", "));
    install(root, &missing)
}

/// Installs packages. Empty or stale package lists make the first attempt fail or install an old compiler; the second one updates them first.
fn install(root: &Path, packages: &[&str]) -> Result<(), String> {
    let mut args = vec!["install", "-y", "-qq", "-o=Dpkg::Use-Pty=0", "--no-install-recommends"];
    args.extend(packages);
    let install = apt_get("install", &args);
    if install.run(root).is_ok() && missing(root).is_empty() {
        return Ok(());
    }
    apt_get("package lists", &["update", "-qq"]).run(root)?;
    install.run(root)?;
    match missing(root)[..] {
        [] => Ok(()),
        [package, ..] => Err(format!(
            "check-macos: expected {package} of Rust {WANTED} or newer, found {} in the newest package lists",
            installed(root, package).unwrap_or_else(|| "none".to_string())
        )),
    }
}

fn missing(root: &Path) -> Vec<&'static str> {
    let is_good = |package: &str| installed(root, package).is_some_and(|version| is_new_enough(&version, WANTED));
    PACKAGES.into_iter().filter(|package| !is_good(package)).collect()
}

fn apt_get(name: &str, args: &[&str]) -> NamedCommand {
    NamedCommand::new(name, "apt-get", args).env("DEBIAN_FRONTEND", "noninteractive")
}

/// Returns the installed version of a package.
fn installed(root: &Path, package: &str) -> Option<String> {
    let args = ["-W", "-f", "${db:Status-Status} ${Version}", package];
    let found = NamedCommand::new("package", "dpkg-query", &args).quiet_output(root)?;
    found.strip_prefix("installed ").map(str::to_string)
}

/// Returns whether a package version such as `1.96.0+dfsg1-1~deb12u2` has at least this Rust, such as `1.95`.
fn is_new_enough(version: &str, wanted: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        let digits = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next().unwrap_or_default();
        digits.split('.').map_while(|number| number.parse().ok()).collect()
    };
    // Compared as numbers, component by component: as text, 1.100 would be older than 1.95.
    numbers(version) >= numbers(wanted)
}

fn answers(root: &Path, program: &str, args: &[&str]) -> bool {
    NamedCommand::new("probe", program, args).quiet_output(root).is_some()
}

/// Returns the path of a program in a package, because another toolchain may come first in `PATH`.
fn program(root: &Path, package: &str, name: &str) -> Result<String, String> {
    let listing = NamedCommand::new("package files", "dpkg", &["-L", package]).output(root)?;
    program_in(&listing, name)
        .map(str::to_string)
        .ok_or_else(|| format!("check-macos: expected a program `{name}` in the package {package}, found none"))
}

/// Finds a program in a file listing. `cargo-web` also has a wrapper script for package builds below `share`, which is not cargo.
fn program_in<'a>(listing: &'a str, name: &str) -> Option<&'a str> {
    listing.lines().filter(|path| !path.contains("/share/")).find(|path| path.ends_with(&format!("/bin/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_the_one_outside_of_share() {
        let listing = "/.\n/usr/share/cargo/bin/cargo\n/usr/lib/rust-web/bin/cargo\n/usr/bin/cargo-x\n";
        assert_eq!(program_in(listing, "cargo"), Some("/usr/lib/rust-web/bin/cargo"));
        assert_eq!(program_in(listing, "rustc"), None);
    }

    #[test]
    fn versions_of_packages() {
        let cases = [
            ("1.96.0+dfsg1-1~deb12u2", "1.95", true),
            ("1.95.0+dfsg1-1", "1.95", true),
            ("1.85.0+dfsg3-1~deb12u3", "1.95", false),
            ("1.9.0", "1.95", false),
            ("2.0", "1.95", true),
            ("", "1.95", false),
        ];
        for (version, wanted, expected) in cases {
            assert_eq!(is_new_enough(version, wanted), expected, "{version}");
        }
        assert!(!WANTED.is_empty());
    }

    #[test]
    fn command_uses_the_compiler_and_a_target_directory_of_its_own() {
        let line = cross_check("/p/cargo", "/p/rustc").command_line();
        let start = "RUSTC=/p/rustc RUSTC_BOOTSTRAP=1 /p/cargo check -Zbuild-std --target aarch64-apple-darwin";
        assert!(line.starts_with(start), "{line}");
        assert!(line.contains(" --target-dir target/macos "), "{line}");
    }
}
