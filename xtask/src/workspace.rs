//! The workspace members, from `cargo metadata`.

use std::path::Path;

use serde_json::Value;

use crate::command::NamedCommand;

/// A crate of this workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Relative to the repository root, with `/` on every system.
    pub(crate) manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Whether it has default features; `test --all` then also tests it without them.
    pub(crate) has_default_features: bool,
    /// Whether it enables features of other members. Cargo unifies those into every build that includes it.
    pub(crate) joins_features: bool,
    /// Whether it is published: its manifest does not say `publish = false`.
    pub(crate) is_published: bool,
}

/// A direct dependency of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// Original package name, even if the manifest renames it.
    pub(crate) name: String,
    pub(crate) is_dev: bool,
}

impl Member {
    /// Returns the member's folder, relative to the repository root.
    pub(crate) fn dir(&self) -> &str {
        self.manifest.strip_suffix("/Cargo.toml").unwrap_or(&self.manifest)
    }
}

/// Returns the members from cargo, sorted by manifest path.
pub(crate) fn members(root: &Path) -> Result<Vec<Member>, String> {
    let args = ["metadata", "--no-deps", "--format-version", "1"];
    let json = NamedCommand::cargo("metadata", &args).output(root)?;
    parse(&json).map_err(|message| format!("cargo metadata: {message}"))
}

fn parse(json: &str) -> Result<Vec<Member>, String> {
    let metadata: Value = serde_json::from_str(json).map_err(|err| err.to_string())?;
    let root = text(&metadata, "workspace_root")?;
    let mut members =
        list(&metadata, "packages")?.iter().map(|package| member(package, root)).collect::<Result<Vec<_>, _>>()?;
    members.sort_by(|a, b| a.manifest.cmp(&b.manifest));
    Ok(members)
}

fn member(package: &Value, root: &str) -> Result<Member, String> {
    let path = text(package, "manifest_path")?;
    let manifest = path
        .strip_prefix(root)
        .ok_or_else(|| format!("expected a manifest below {root}, found {path}"))?
        .replace('\\', "/");
    let dependencies = list(package, "dependencies")?.iter().map(dependency).collect::<Result<Vec<_>, _>>()?;
    Ok(Member {
        name: text(package, "name")?.to_string(),
        manifest: manifest.trim_start_matches('/').to_string(),
        dependencies,
        has_default_features: is_non_empty_list(&package["features"]["default"]),
        joins_features: list(package, "dependencies")?.iter().any(joins_features),
        // An empty list means that no registry is allowed.
        is_published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
    })
}

fn is_non_empty_list(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// Returns whether a dependency is a member (it has a path), is not a dev-dependency, and enables features.
fn joins_features(dependency: &Value) -> bool {
    dependency["path"].is_string() && dependency["kind"] != "dev" && is_non_empty_list(&dependency["features"])
}

fn dependency(value: &Value) -> Result<Dependency, String> {
    Ok(Dependency {
        name: text(value, "name")?.to_string(),
        is_dev: value.get("kind").and_then(Value::as_str) == Some("dev"),
    })
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value.get(field).and_then(Value::as_str).ok_or_else(|| format!("expected a text field `{field}`, found none"))
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>, String> {
    value.get(field).and_then(Value::as_array).ok_or_else(|| format!("expected a list field `{field}`, found none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_relative_manifests_and_kinds_of_dependencies() {
        let json = r#"{"workspace_root": "/r", "packages": [
            {"name": "b", "manifest_path": "/r/crates/b/Cargo.toml", "publish": [], "dependencies": [
                {"name": "a", "kind": null, "path": "/r/crates/a", "features": ["x"]},
                {"name": "t", "kind": "dev"}, {"name": "c", "kind": "build"}]},
            {"name": "a", "manifest_path": "/r/crates/a/Cargo.toml", "dependencies": [
                {"name": "b", "kind": null, "path": "/r/crates/b", "features": []},
                {"name": "b", "kind": "dev", "path": "/r/crates/b", "features": ["y"]},
                {"name": "o", "kind": null, "features": ["y"]}],
                "features": {"default": ["x"], "x": []}}]}"#;
        let members = parse(json).unwrap();
        assert_eq!(members[0].name, "a");
        assert_eq!(members[1].manifest, "crates/b/Cargo.toml");
        assert_eq!(members[1].dir(), "crates/b");
        let is_dev: Vec<bool> = members[1].dependencies.iter().map(|d| d.is_dev).collect();
        assert_eq!(is_dev, [false, true, false]);
        assert_eq!([members[0].has_default_features, members[1].has_default_features], [true, false]);
        assert_eq!([members[0].joins_features, members[1].joins_features], [false, true]);
        assert_eq!([members[0].is_published, members[1].is_published], [true, false]);
    }

    #[test]
    fn missing_field_is_named() {
        let err = parse(r#"{"workspace_root": "/r"}"#).unwrap_err();
        assert_eq!(err, "expected a list field `packages`, found none");
    }
}
