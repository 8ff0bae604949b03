//! `kiln cache verify`.

use crate::Fallible;
use crate::kernel_dir::KernelDir;
use crate::terminal::{Report, count, plain, table};
use kiln::cache::store::{DiskStore, VerifyReport};
use kiln::ir::Bytes;
use kiln::kernel::KernelKey;
use serde::Serialize;
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Examples:
  kiln cache verify                          report only
  kiln cache verify --repair                 remove damaged files

Exit status:
  0  no damage, or all of it was repaired
  1  damage was found and not repaired
  2  the command line is invalid";

/// Verifies the checksums of all stored kernels.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// Remove damaged files. Removed kernels are compiled again when they are needed.
    #[arg(long)]
    repair: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Verification {
    directory: String,
    #[serde(flatten)]
    report: VerifyReport,
    /// Whether repair was requested.
    #[serde(skip)]
    repair: bool,
    /// Kernel names of bad entries by file name, if the key of the entry can be decoded.
    kernels: BTreeMap<String, String>,
}

pub(super) fn run(dir: &KernelDir, args: &Args) -> Fallible<Verification> {
    let directory = dir.path().display().to_string();
    let Some(store) = dir.open_existing()? else {
        let (report, kernels) = Default::default();
        return Ok(Verification { directory, report, repair: args.repair, kernels });
    };
    // Before the verification, which may remove the files.
    let mut kernels = names(&store)?;
    let report = store.verify(args.repair)?;
    kernels.retain(|file, _| report.bad.iter().any(|bad| bad.name == *file));
    Ok(Verification { directory, report, repair: args.repair, kernels })
}

/// Returns the names of stored kernels by file name, which is the hash of their key.
fn names(store: &DiskStore) -> Fallible<BTreeMap<String, String>> {
    let entries = store.entries()?;
    let keys = entries.iter().filter_map(|entry| KernelKey::decode(&entry.key).ok());
    Ok(keys.map(|key| (key.hash().to_string(), key.name().to_string())).collect())
}

impl Report for Verification {
    fn text(&self) -> String {
        let VerifyReport { entries, bytes, bad, abandoned_files, usage_is_damaged, repaired } = &self.report;
        let row = |bad: &kiln::cache::store::BadEntry| {
            let kernel = self.kernels.get(&bad.name).map_or_else(|| "-".to_string(), |name| plain(name));
            let removed = match (self.repair, bad.removed) {
                (_, true) => "removed",
                (true, false) => "not removed",
                (false, false) => "",
            };
            vec!["bad".to_string(), plain(&bad.name), kernel, plain(&bad.problem.to_string()), removed.to_string()]
        };
        let out = table(&bad.iter().map(row).collect::<Vec<_>>());
        let wrong = [
            (!bad.is_empty()).then(|| count(bad.len() as u64, "damaged file")),
            (*abandoned_files > 0).then(|| format!("{} left over by killed programs", count(*abandoned_files, "file"))),
            usage_is_damaged.then(|| "damaged use counts".to_string()),
        ];
        let wrong = wrong.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let good = format!("{} ({})", count(*entries, "valid kernel"), Bytes(*bytes));
        let verdict = match (self.report.is_clean(), self.repair, *repaired) {
            (true, ..) => "no damage found".to_string(),
            (false, false, _) => format!("{wrong}; `kiln cache verify --repair` removes them"),
            (false, true, true) => format!("removed: {wrong}"),
            (false, true, false) => format!("some could not be removed: {wrong}"),
        };
        out + &format!("{good} in {}; {verdict}\n", plain(&self.directory))
    }

    /// Returns whether the store is clean or was repaired.
    fn is_good(&self) -> bool {
        self.report.is_clean() || self.report.repaired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::cache::store::{BadEntry, Problem, Reject};

    fn verification(bad: Vec<BadEntry>, repair: bool) -> Verification {
        let repaired = repair && bad.iter().all(|bad| bad.removed);
        let report = VerifyReport { entries: 3, bytes: 12_345, bad, repaired, ..VerifyReport::default() };
        let kernels = [("0123".to_string(), "saxpy.wgsl".to_string())].into();
        Verification { directory: "/home/me/.cache/kiln/kernels".to_string(), report, repair, kernels }
    }

    fn bad(removed: bool) -> Vec<BadEntry> {
        let bad = |name: &str, problem| BadEntry { name: name.to_string(), problem, removed };
        vec![bad("0123", Problem::Rejected(Reject::Checksum)), bad("notes\u{7}.txt", Problem::ForeignName)]
    }

    #[test]
    fn good_bad_and_repaired() {
        let damaged = |repair| {
            let mut damaged = verification(Vec::new(), repair);
            (damaged.report.usage_is_damaged, damaged.report.abandoned_files) = (true, 1);
            damaged
        };
        let table = [
            ("verify_good", verification(Vec::new(), false), true),
            ("verify_bad", verification(bad(false), false), false),
            ("verify_repaired", verification(bad(true), true), true),
            ("verify_not_repaired", verification([bad(false), bad(true)].concat(), true), false),
            ("verify_use_counts", damaged(false), false),
            ("verify_use_counts_repaired", damaged(true), true),
        ];
        for (name, verification, is_good) in table {
            insta::assert_snapshot!(name, verification.text());
            assert_eq!(verification.is_good(), is_good, "{name}");
        }
        insta::assert_snapshot!("verify_json", serde_json::to_string_pretty(&verification(bad(false), false)).unwrap());
    }
}
