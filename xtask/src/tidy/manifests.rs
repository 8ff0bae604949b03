//! Manifests: a dependency is declared once, with its reason, and every crate inherits what the
//! workspace decides.

use super::Finding;
use super::toml::{Entry, Manifest};
use crate::workspace::Member;

/// The workspace manifest.
pub(super) const ROOT_PATH: &str = "Cargo.toml";

const WORKSPACE_TABLE: &str = "workspace.dependencies";

const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

const INHERITED: [&str; 3] = ["edition", "license", "rust-version"];

/// What a registry shows of a package.
const PUBLISHED: [&str; 3] = ["categories", "description", "keywords"];

/// Texts that each package contains; links to those of the workspace.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Checks that each workspace dependency has its reason in the line above. The crates of this workspace have theirs in
/// the crate table of the architecture page.
pub(super) fn check_root(text: &str) -> Vec<Finding> {
    let manifest = Manifest::parse(text);
    let mut findings = Vec::new();
    for header in &manifest.headers {
        if let Some(name) = header.name.strip_prefix(&format!("{WORKSPACE_TABLE}.")) {
            let expected = format!("`{name} = {{ ... }}` in [{WORKSPACE_TABLE}]");
            findings.push(Finding::new(ROOT_PATH, header.line, &expected, "a table of its own"));
        }
    }
    for entry in &manifest.entries {
        if entry.section == WORKSPACE_TABLE && !entry.has_comment && entry.field("path").is_none() {
            let expected = format!("a comment above `{}` that says why it is here", entry.key);
            findings.push(Finding::new(ROOT_PATH, entry.line, &expected, "none"));
        }
    }
    findings
}

/// Checks that a member that is published says what a registry shows, and has the texts of the licenses among `paths`.
pub(super) fn check_published(member: &Member, text: &str, paths: &[&str]) -> Vec<Finding> {
    let manifest = Manifest::parse(text);
    let has = |key: &str| manifest.entries.iter().any(|entry| entry.section == "package" && entry.key == key);
    let missing_keys = PUBLISHED.into_iter().chain(["readme.workspace"]).filter(|key| !has(key));
    let keys = missing_keys.map(|key| format!("`{key}` in [package]"));
    let files = LICENSES.map(|name| format!("{}/{name}", member.dir()));
    let missing_files = files.into_iter().filter(|file| !paths.contains(&file.as_str()));
    keys.chain(missing_files.map(|file| format!("the file {file}")))
        .map(|expected| Finding::new(&member.manifest, 1, &format!("{expected} for publishing"), "none"))
        .collect()
}

/// Checks what a member must inherit, and that its dependencies come from the workspace.
pub(super) fn check_member(path: &str, text: &str) -> Vec<Finding> {
    let manifest = Manifest::parse(text);
    let mut findings = Vec::new();
    let inherited = INHERITED.iter().map(|key| (format!("{key}.workspace"), "package"));
    for (key, table) in inherited.chain([("workspace".to_string(), "lints")]) {
        let full = format!("{table}.{key}");
        if !manifest.entries.iter().any(|entry| entry.sets(&full, "true")) {
            let header = manifest.headers.iter().find(|header| header.name == table);
            let line = header.map_or(1, |header| header.line);
            let expected = format!("`{key} = true` in [{table}]");
            findings.push(Finding::new(path, line, &expected, "none"));
        }
    }
    findings.extend(check_dependencies(path, &manifest));
    findings
}

fn check_dependencies(path: &str, manifest: &Manifest) -> Vec<Finding> {
    let mut findings = Vec::new();
    for header in &manifest.headers {
        if let Some((table, name)) = header.name.rsplit_once('.')
            && is_dependency_table(table)
        {
            let expected = format!("`{name} = {{ workspace = true, ... }}` in [{table}]");
            findings.push(Finding::new(path, header.line, &expected, "a table of its own"));
        }
    }
    let entries = &manifest.entries;
    for (index, entry) in entries.iter().enumerate() {
        let is_same = |other: &Entry| other.section == entry.section && name(other) == name(entry);
        let is_first = !entries[..index].iter().any(is_same);
        let from_workspace = || entries.iter().filter(|other| is_same(other)).any(is_from_workspace);
        if is_dependency_table(&entry.section) && is_first && !from_workspace() {
            let expected = format!("`{}.workspace = true`", name(entry));
            findings.push(Finding::new(path, entry.line, &expected, &format!("`{}`", entry.value)));
        }
    }
    findings
}

/// The dependency an entry is about: `serde.features = []` is about `serde`.
fn name(entry: &Entry) -> &str {
    entry.key.split('.').next().unwrap_or(&entry.key)
}

fn is_from_workspace(entry: &Entry) -> bool {
    let dotted = entry.key.split_once('.').map(|(_, field)| field);
    match dotted {
        Some("workspace") => entry.value == "true",
        Some("path") => true,
        Some(_) => false,
        None => entry.field("workspace") == Some("true") || entry.field("path").is_some(),
    }
}

fn is_dependency_table(section: &str) -> bool {
    let table = match section.strip_prefix("target.") {
        Some(rest) => rest.rsplit('.').next().unwrap_or(rest),
        None => section,
    };
    DEPENDENCY_TABLES.contains(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: &str = "\
[package]
name = \"a\"
edition.workspace = true
license = { workspace = true }
rust-version.workspace = true

[dependencies]
serde.workspace = true
serde.features = [\"derive\"]
loom = { workspace = true, features = [
    \"checkpoint\",
] }
kiln-ir = { path = \"../kiln-ir\" }

[target.'cfg(loom)'.dependencies]
loom.workspace = true

[features]
default = []

[lints]
workspace = true
";

    fn lines(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn workspace_dependency_needs_a_reason_directly_above() {
        let clean = "[workspace.dependencies]\na = { path = \"a\" }\n# Reads JSON.\nserde_json = \"1\"\n\
                     [profile.dev]\nopt-level = 1\n";
        assert_eq!(check_root(clean), []);
        let table = [
            clean.replace("# Reads JSON.\n", ""),
            clean.replace("JSON.\n", "JSON.\n\n"),
            clean.replace("# Reads JSON.", "#"),
        ];
        for text in table {
            let lines = lines(&check_root(&text));
            assert_eq!(lines.len(), 1, "{text}");
            let end = "expected a comment above `serde_json` that says why it is here, found none";
            assert!(lines[0].ends_with(end), "{lines:?}");
        }
    }

    #[test]
    fn workspace_dependency_in_a_table_of_its_own_is_found() {
        assert_eq!(
            lines(&check_root("[workspace.dependencies.serde]\nversion = \"1\"\n")),
            ["Cargo.toml:1: expected `serde = { ... }` in [workspace.dependencies], found a table of its own"]
        );
    }

    #[test]
    fn clean_member_passes() {
        assert_eq!(lines(&check_member("a/Cargo.toml", MEMBER)), Vec::<String>::new());
    }

    #[test]
    fn what_a_member_does_not_inherit_is_found() {
        let table = [
            ("edition.workspace = true", "edition = \"2024\"", "1: expected `edition.workspace = true` in [package]"),
            ("license = { workspace = true }\n", "", "1: expected `license.workspace = true` in [package]"),
            ("rust-version.workspace = true\n", "", "1: expected `rust-version.workspace = true` in [package]"),
            ("[lints]\nworkspace = true", "[lints]", "21: expected `workspace = true` in [lints]"),
            ("[lints]\nworkspace = true\n", "", "1: expected `workspace = true` in [lints]"),
        ];
        for (part, replacement, message) in table {
            let findings = check_member("a/Cargo.toml", &MEMBER.replace(part, replacement));
            assert_eq!(lines(&findings), [format!("a/Cargo.toml:{message}, found none")]);
        }
    }

    #[test]
    fn dependency_with_a_version_of_its_own_is_found() {
        let table = [
            ("[dev-dependencies]\nrand = \"0.9\"\n", "rand", "\"0.9\""),
            ("[build-dependencies]\ncc = { version = \"1\" }\n", "cc", "{version=\"1\"}"),
            ("[target.'cfg(unix)'.dependencies]\nlibc.version = \"0.2\"\n", "libc", "\"0.2\""),
            ("[dependencies]\nlibc.workspace = false\n", "libc", "false"),
        ];
        for (text, name, value) in table {
            let findings = check_member("a/Cargo.toml", &format!("{MEMBER}{text}"));
            assert_eq!(
                lines(&findings),
                [format!("a/Cargo.toml:24: expected `{name}.workspace = true`, found `{value}`")]
            );
        }
    }

    #[test]
    fn dependency_in_a_table_of_its_own_is_found() {
        let text = format!("{MEMBER}[dependencies.libc]\nversion = \"0.2\"\n");
        assert_eq!(
            lines(&check_member("a/Cargo.toml", &text)),
            [
                "a/Cargo.toml:23: expected `libc = { workspace = true, ... }` in [dependencies], found a table of its own"
            ]
        );
    }

    #[test]
    fn published_member_has_what_a_registry_shows_and_the_licenses() {
        let member = Member {
            name: "a".to_string(),
            manifest: "crates/a/Cargo.toml".to_string(),
            dependencies: vec![],
            has_default_features: false,
            joins_features: false,
            is_published: true,
        };
        let text =
            "[package]\ndescription = \"x\"\nkeywords = [\"x\"]\ncategories = [\"x\"]\nreadme.workspace = true\n";
        let paths = ["crates/a/LICENSE-APACHE", "crates/a/LICENSE-MIT"];
        assert_eq!(check_published(&member, text, &paths), []);
        let lines = |text: &str, paths: &[&str]| -> Vec<String> {
            check_published(&member, text, paths).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            lines(&text.replace("keywords", "words"), &paths[..1]),
            [
                "crates/a/Cargo.toml:1: expected `keywords` in [package] for publishing, found none",
                "crates/a/Cargo.toml:1: expected the file crates/a/LICENSE-MIT for publishing, found none",
            ]
        );
    }
}
