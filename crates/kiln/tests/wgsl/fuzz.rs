//! Random programs, and known ones.

use crate::launch::setting;
use crate::run::{Finding, Pair, pair};
use kiln_testkit::wgsl::{Case, Features, generate, shrink};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// This many programs take about ten seconds, mostly in the driver's compiler.
const DEFAULT_CASES: u64 = 24;
/// After this many failures the rest are probably duplicates.
const MAX_FINDINGS: usize = 10;

/// The CPU device computes what a Vulkan driver computes, for random programs.
#[test]
fn random_programs_agree() {
    let Some(pair) = pair() else { return };
    search(
        pair,
        Features { f16: pair.has_f16, subgroups: false, pointers_to_parts: false },
        setting("KILN_FUZZ_CASES", DEFAULT_CASES),
    );
}

/// The same for subgroup operations, if both devices have subgroups of eight.
#[test]
fn random_programs_with_subgroups_agree() {
    let Some(pair) = pair() else { return };
    if !pair.has_subgroups {
        println!("skipped: the devices do not both have subgroups");
        return;
    }
    search(
        pair,
        Features { f16: pair.has_f16, subgroups: true, pointers_to_parts: false },
        setting("KILN_FUZZ_CASES", DEFAULT_CASES) / 4,
    );
}

/// Programs that exposed bugs in the past pass.
#[test]
fn known_programs_agree() {
    let Some(pair) = pair() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wgsl/cases");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
    paths.sort();
    assert!(!paths.is_empty());
    let mut faults = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let case = Case::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        faults.extend(pair.check(&case).map(|finding| format!("{}: {finding:?}", path.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn search(pair: &Pair, features: Features, count: u64) {
    let (first, begin) = (setting("KILN_FUZZ_SEED", 0), Instant::now());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wgsl");
    std::fs::create_dir_all(&folder).unwrap();
    let mut findings = Vec::new();
    for seed in first..first + count {
        let kind = if features.subgroups { "subgroups" } else { "program" };
        let path = folder.join(format!("{kind}-{seed}.wgsl"));
        let text = generate(seed, features);
        // Written before the run, so that it exists after a crash.
        std::fs::write(&path, &text).unwrap();
        match pair.check(&Case::parse(&text).unwrap()) {
            // Another process may have removed the same file already.
            None => drop(std::fs::remove_file(&path)),
            Some(finding) => findings.push(describe(pair, &path, &text, &finding)),
        }
        if (seed - first) % 100 == 99 {
            println!("{} programs, {} findings, {:.0?}", seed - first + 1, findings.len(), begin.elapsed());
        }
        if findings.len() >= MAX_FINDINGS {
            break;
        }
    }
    assert!(findings.is_empty(), "{} programs differ:\n\n{}", findings.len(), findings.join("\n"));
}

/// The report of a finding, with the smallest program that shows it, which is written to a file.
fn describe(pair: &Pair, path: &Path, text: &str, finding: &Finding) -> String {
    let still = |text: &str| {
        let found = Case::parse(text).ok().and_then(|case| pair.check(&case));
        found.filter(|found| found.is_like(finding))
    };
    // Runs again: a failure that does not recur is not deterministic and cannot be minimized.
    if still(text).is_none() {
        return format!("{}: {finding:?}\nbut not when it ran again\n", path.display());
    }
    let small = shrink(text, |text| still(text).is_some());
    std::fs::write(path, &small).unwrap();
    let finding = still(&small).unwrap_or_else(|| finding.clone());
    let report = format!("{}: {finding:?}\n{small}", path.display());
    println!("{report}");
    report
}
