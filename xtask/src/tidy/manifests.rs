//! Manifests: a dependency is declared once, with its reason, and every crate inherits the
//! workspace settings.

use toml::{Table, Value};

use super::{Finding, line_of};
use crate::workspace::Member;

/// The workspace manifest.
pub(super) const ROOT_PATH: &str = "Cargo.toml";

const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

const INHERITED: [&str; 3] = ["edition", "license", "rust-version"];

/// Package keys that a registry shows.
const PUBLISHED: [&str; 4] = ["categories", "description", "keywords", "readme"];

/// License files that each package contains, as links to those of the workspace.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Checks that each workspace dependency has its reason in the line above. The crates of this workspace are explained in
/// the crate table of the architecture page.
pub(super) fn check_root(text: &str) -> Vec<Finding> {
    let manifest = parse(text);
    let dependencies = table(&manifest, &["workspace", "dependencies"]);
    let others = dependencies.into_iter().flatten().filter(|(_, value)| value.get("path").is_none());
    let with_lines = others.map(|(name, _)| (name, line_of(text, name)));
    let is_comment = |line: &str| line.strip_prefix('#').is_some_and(|words| !words.trim().is_empty());
    let unexplained = with_lines.filter(|(_, line)| *line < 2 || !text.lines().nth(line - 2).is_some_and(is_comment));
    unexplained
        .map(|(name, line)| {
            let expected = format!("a comment above `{name}` that says why it is here");
            Finding::new(ROOT_PATH, line, &expected, "none")
        })
        .collect()
}

/// Checks that a published member has the keys that a registry shows, and the license files among `paths`.
pub(super) fn check_published(member: &Member, text: &str, paths: &[&str]) -> Vec<Finding> {
    let manifest = parse(text);
    let package = table(&manifest, &["package"]);
    let missing_keys = PUBLISHED.iter().filter(|key| package.is_none_or(|package| !package.contains_key(**key)));
    let keys = missing_keys.map(|key| format!("`{key}` in [package]"));
    let files = LICENSES.map(|name| format!("{}/{name}", member.dir()));
    let missing_files = files.into_iter().filter(|file| !paths.contains(&file.as_str()));
    keys.chain(missing_files.map(|file| format!("the file {file}")))
        .map(|expected| Finding::new(&member.manifest, 1, &format!("{expected} for publishing"), "none"))
        .collect()
}

/// Checks that a member inherits the workspace settings, and that its dependencies come from the workspace.
pub(super) fn check_member(path: &str, text: &str) -> Vec<Finding> {
    let manifest = parse(text);
    let package = table(&manifest, &["package"]);
    let inherited = INHERITED.map(|key| (format!("{key}.workspace"), "package", package.and_then(|own| own.get(key))));
    let lints = ("workspace".to_string(), "lints", manifest.get("lints"));
    let mut findings = Vec::new();
    for (key, table, value) in inherited.into_iter().chain([lints]) {
        if !value.is_some_and(is_from_workspace) {
            findings.push(Finding::new(path, 1, &format!("`{key} = true` in [{table}]"), "none"));
        }
    }
    let targets = table(&manifest, &["target"]).into_iter().flatten().filter_map(|(_, target)| target.as_table());
    let tables = targets.chain([&manifest]);
    let tables = tables.flat_map(|table| DEPENDENCY_TABLES.iter().filter_map(|name| table.get(*name)?.as_table()));
    for (name, _) in tables.flatten().filter(|(_, value)| value.get("path").is_none() && !is_from_workspace(value)) {
        let expected = format!("`{name}.workspace = true`");
        findings.push(Finding::new(path, line_of(text, name), &expected, "its own source"));
    }
    findings
}

fn is_from_workspace(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// Parses a manifest. Cargo has already parsed it, so that an invalid manifest has failed the task before.
fn parse(text: &str) -> Table {
    text.parse().unwrap_or_default()
}

fn table<'a>(manifest: &'a Table, path: &[&str]) -> Option<&'a Table> {
    path.iter().try_fold(manifest, |table, key| table.get(*key)?.as_table())
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
    fn clean_member_passes() {
        assert_eq!(lines(&check_member("a/Cargo.toml", MEMBER)), Vec::<String>::new());
    }

    #[test]
    fn fields_that_a_member_does_not_inherit_are_found() {
        let table = [
            ("edition.workspace = true", "edition = \"2024\"", "1: expected `edition.workspace = true` in [package]"),
            ("license = { workspace = true }\n", "", "1: expected `license.workspace = true` in [package]"),
            ("rust-version.workspace = true\n", "", "1: expected `rust-version.workspace = true` in [package]"),
            ("[lints]\nworkspace = true", "[lints]", "1: expected `workspace = true` in [lints]"),
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
            ("[dev-dependencies]\nrand = \"0.9\"\n", "rand"),
            ("[build-dependencies]\ncc = { version = \"1\" }\n", "cc"),
            ("[target.'cfg(unix)'.dependencies]\nlibc.version = \"0.2\"\n", "libc"),
            ("[dev-dependencies]\nlibc.workspace = false\n", "libc"),
        ];
        for (text, name) in table {
            let findings = check_member("a/Cargo.toml", &format!("{MEMBER}{text}"));
            assert_eq!(
                lines(&findings),
                [format!("a/Cargo.toml:24: expected `{name}.workspace = true`, found its own source")]
            );
        }
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
