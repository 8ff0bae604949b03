//! Crate layers: a crate depends only on crates above it in the crate table of `ARCHITECTURE.md`, and some crates must not
//! depend on GPU libraries.

use std::collections::HashMap;

use super::{ARCHITECTURE, Finding, code_spans, line_of};
use crate::workspace::Member;

/// Test support and automation may depend on every crate. They are the last row of the table, so no other crate depends on them.
const UNRESTRICTED: [&str; 2] = ["kiln-testkit", "xtask"];

/// Crates and the libraries they must not depend on: the part of invariant 1 of `ARCHITECTURE.md` that manifests show. A name
/// includes crates that begin with it and a hyphen: `wgpu` includes `wgpu-core`.
const FORBIDDEN: [(&str, &[&str]); 2] =
    [("kiln-resource-cache", &["wgpu", "naga", "ash", "metal"]), ("kiln-ir", &["wgpu"])];

/// Checks every member's row in the table and the direction of its dependencies.
///
/// Dev-dependencies are exempt: a test may use lower crates. A row of a crate that does not
/// exist yet is allowed. `manifest_of` returns a manifest's text, for the line of a finding.
pub(super) fn check<'a>(
    architecture: Option<&str>,
    members: &[Member],
    manifest_of: &dyn Fn(&str) -> Option<&'a str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows = rows(architecture.unwrap_or_default());
    if rows.is_empty() {
        let found = if architecture.is_some() { "none" } else { "no such file" };
        let expected = "a table whose first column is headed `crate`";
        findings.push(Finding::new(ARCHITECTURE, 1, expected, found));
        return findings;
    }
    let mut ranks = HashMap::new();
    for row in &rows {
        if ranks.insert(row.name.as_str(), row.rank).is_some() {
            let expected = format!("`{}` once in the crate table", row.name);
            findings.push(Finding::new(ARCHITECTURE, row.line, &expected, "it again"));
        }
    }
    for member in members {
        if !ranks.contains_key(member.name.as_str()) {
            let expected = format!("`{}` in the crate table of {ARCHITECTURE}", member.name);
            findings.push(Finding::new(&member.manifest, 1, &expected, "no row"));
        }
        let manifest = manifest_of(&member.manifest).unwrap_or_default();
        findings.extend(check_member(member, members, &ranks, manifest));
    }
    findings
}

fn check_member(member: &Member, members: &[Member], ranks: &HashMap<&str, usize>, manifest: &str) -> Vec<Finding> {
    let name = member.name.as_str();
    let mut findings = Vec::new();
    for dependency in member.dependencies.iter().filter(|dependency| !dependency.is_dev) {
        let line = line_of(manifest, &dependency.name);
        if is_forbidden(name, &dependency.name) {
            let expected = format!("`{name}` not to depend on `{}` (ARCHITECTURE.md, invariant 1)", dependency.name);
            findings.push(Finding::new(&member.manifest, line, &expected, "a dependency"));
        }
        let is_member = members.iter().any(|other| other.name == dependency.name);
        let (own, other) = (ranks.get(name), ranks.get(dependency.name.as_str()));
        // Members without a row have no rank. `check` reports them.
        if let (Some(own), Some(other), true) = (own, other, is_member)
            // Equal ranks are crates of one row, which do not depend on each other either.
            && other >= own
            && !UNRESTRICTED.contains(&name)
        {
            let expected = format!("`{name}` to depend only on crates above it in {ARCHITECTURE}");
            let found = format!("`{}`", dependency.name);
            findings.push(Finding::new(&member.manifest, line, &expected, &found));
        }
    }
    findings
}

fn is_forbidden(name: &str, dependency: &str) -> bool {
    let in_family = |family: &&str| {
        // `wgpu` also stands for `wgpu-core`, `wgpu-hal` and so on.
        let rest = dependency.strip_prefix(*family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    FORBIDDEN.iter().any(|(crate_name, families)| *crate_name == name && families.iter().any(in_family))
}

struct Row {
    name: String,
    rank: usize,
    line: usize,
}

/// Returns the crates of the table in order; crates of one row share a rank.
fn rows(architecture: &str) -> Vec<Row> {
    let numbered = architecture.lines().enumerate();
    let table = numbered
        .skip_while(|(_, line)| first_cell(line).is_none_or(|cell| !cell.eq_ignore_ascii_case("crate")))
        .take_while(|(_, line)| first_cell(line).is_some());
    let mut rows = Vec::new();
    // The heading and the ruler of the table have ranks too, but no crates; only the order of ranks matters.
    for (rank, (index, line)) in table.enumerate() {
        let cell = first_cell(line).unwrap_or_default();
        rows.extend(code_spans(cell).map(|name| Row { name: name.to_string(), rank, line: index + 1 }));
    }
    rows
}

fn first_cell(line: &str) -> Option<&str> {
    line.trim().strip_prefix('|')?.split('|').next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    const TABLE: &str = "\
# Architecture
| word | meaning |
| --- | --- |
| `low` | not this table |

| crate | owns |
| --- | --- |
| `kiln-resource-cache` | caches, not `high` |
| `kiln-ir` | |
| `planned` | |
| `high` | |
| `kiln-testkit`, `xtask` | |

| `after` | the table has ended |
";

    fn member(name: &str, normal: &[&str], dev: &[&str]) -> Member {
        let dependency = |name: &&str, is_dev| Dependency { name: name.to_string(), is_dev };
        Member {
            name: name.to_string(),
            manifest: format!("{name}/Cargo.toml"),
            dependencies: normal
                .iter()
                .map(|name| dependency(name, false))
                .chain(dev.iter().map(|name| dependency(name, true)))
                .collect(),
            has_default_features: false,
            joins_features: false,
            is_published: true,
        }
    }

    fn lines(members: &[Member]) -> Vec<String> {
        let manifest = "[dependencies]\nhigh-extra = 1\nhigh.workspace = true\nwgpu = 1\n";
        check(Some(TABLE), members, &|_| Some(manifest)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_upwards_dev_and_of_unrestricted_crates_pass() {
        let members = [
            member("kiln-resource-cache", &["serde"], &["high", "wgpu"]),
            member("kiln-ir", &["kiln-resource-cache", "naga"], &["kiln-testkit"]),
            member("high", &["kiln-ir", "kiln-resource-cache"], &[]),
            member("kiln-testkit", &["high", "xtask"], &[]),
            member("xtask", &["kiln-testkit"], &[]),
        ];
        assert_eq!(lines(&members), Vec::<String>::new());
    }

    #[test]
    fn dependency_downwards_is_found_with_its_line() {
        let members = [member("kiln-ir", &["high"], &[]), member("high", &["xtask"], &[]), member("xtask", &[], &[])];
        assert_eq!(
            lines(&members),
            [
                "kiln-ir/Cargo.toml:3: expected `kiln-ir` to depend only on crates above it in ARCHITECTURE.md, \
                 found `high`",
                "high/Cargo.toml:1: expected `high` to depend only on crates above it in ARCHITECTURE.md, found `xtask`",
            ]
        );
    }

    #[test]
    fn crate_without_a_row_is_found() {
        for name in ["low", "after"] {
            assert_eq!(
                lines(&[member(name, &[], &[])]),
                [format!("{name}/Cargo.toml:1: expected `{name}` in the crate table of ARCHITECTURE.md, found no row")]
            );
        }
    }

    #[test]
    fn forbidden_families_are_found() {
        let table = [
            ("kiln-resource-cache", "wgpu", true),
            ("kiln-resource-cache", "wgpu-core", true),
            ("kiln-resource-cache", "naga", true),
            ("kiln-resource-cache", "ash", true),
            ("kiln-resource-cache", "metal", true),
            ("kiln-resource-cache", "ashen", false),
            ("kiln-ir", "wgpu-types", true),
            ("kiln-ir", "naga", false),
            ("high", "wgpu", false),
        ];
        for (name, dependency, is_found) in table {
            let lines = lines(&[member(name, &[dependency], &[])]);
            assert_eq!(lines.len(), usize::from(is_found), "{name} on {dependency}: {lines:?}");
        }
        assert_eq!(
            lines(&[member("kiln-resource-cache", &["wgpu"], &[])]),
            [
                "kiln-resource-cache/Cargo.toml:4: expected `kiln-resource-cache` not to depend on `wgpu` (ARCHITECTURE.md, invariant 1), found a dependency"
            ]
        );
    }

    #[test]
    fn missing_table_missing_page_and_repeated_row_are_found() {
        let line = |architecture| check(architecture, &[], &|_| None)[0].to_string();
        let expected = "ARCHITECTURE.md:1: expected a table whose first column is headed `crate`, found";
        assert_eq!(line(Some("# Nothing\n")), format!("{expected} none"));
        assert_eq!(line(None), format!("{expected} no such file"));
        let twice = TABLE.replace("| `kiln-testkit`, `xtask` |", "| `high` |");
        assert_eq!(line(Some(&twice)), "ARCHITECTURE.md:12: expected `high` once in the crate table, found it again");
    }
}
