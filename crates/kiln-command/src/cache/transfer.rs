//! `kiln cache export` and `kiln cache import`.

use super::stored::field;
use crate::Fallible;
use crate::kernel_dir::KernelDir;
use crate::new_file::NewFile;
use crate::terminal::{Report, count, plain};
use kiln::cache::store::{ExportReport, ImportReport};
use kiln::device::NATIVE_DRIVER;
use kiln::ir::Bytes;
use kiln::kernel::KernelKey;
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

const EXPORT_EXAMPLES: &str = "\
Examples:
  kiln cache export kernels.kiln

Exit status:
  0  the file was written
  1  the cache cannot be read, or the file cannot be written
  2  the command line is invalid";

/// Exports stored kernels to a file, except those of the CPU device: machine code is compiled again elsewhere.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXPORT_EXAMPLES)]
pub(super) struct ExportArgs {
    /// File to write.
    file: PathBuf,
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  kiln cache import kernels.kiln

Exit status:
  0  every kernel of the file was stored
  1  the file is damaged, or a kernel could not be stored
  2  the command line is invalid";

/// Imports kernels from a file, except those of the CPU device: their machine code would run in your processes, whoever wrote it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = IMPORT_EXAMPLES)]
pub(super) struct ImportArgs {
    /// File written by `kiln cache export`.
    file: PathBuf,
}

#[derive(Debug, Serialize)]
pub(super) struct Exported {
    directory: String,
    file: String,
    #[serde(flatten)]
    report: ExportReport,
    /// Kernels of the CPU device, which are not exported.
    refused: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Imported {
    directory: String,
    file: String,
    #[serde(flatten)]
    report: ImportReport,
}

pub(super) fn export(dir: &KernelDir, args: &ExportArgs) -> Fallible<Exported> {
    // An empty store exports an empty archive.
    let store = dir.open()?;
    let mut file = NewFile::create(&args.file)?;
    let mut refused = 0;
    let report = store.export(BufWriter::new(&mut file), |entry| {
        // Machine code runs in this process without a driver's checks, so it is trusted only from this machine's own
        // cache.
        let stays = is_machine_code(&entry.key);
        refused += u64::from(stays);
        !stays
    })?;
    file.commit()?;
    let (directory, file) = (dir.path().display().to_string(), args.file.display().to_string());
    Ok(Exported { directory, file, report, refused })
}

pub(super) fn import(dir: &KernelDir, args: &ImportArgs) -> Fallible<Imported> {
    let file = args.file.display().to_string();
    let reader = File::open(&args.file).map_err(|error| format!("cannot read {file}: {error}"))?;
    let report = dir.open()?.import(BufReader::new(reader), |key| !is_machine_code(key));
    let report = report.map_err(|error| format!("{file}: {error}"))?;
    Ok(Imported { directory: dir.path().display().to_string(), file, report })
}

/// Returns whether a CPU device would load the entry, which executes it as machine code.
fn is_machine_code(key: &[u8]) -> bool {
    KernelKey::decode(key).is_ok_and(|key| field(&key, "driver") == NATIVE_DRIVER)
}

/// Formats `; skipped 3 damaged`, or an empty string.
fn skipped_text(number: u64, what: &str) -> String {
    if number == 0 { String::new() } else { format!("; skipped {number} {what}") }
}

impl Report for Exported {
    fn text(&self) -> String {
        let ExportReport { entries, bytes, skipped } = self.report;
        let (skipped, refused) = (skipped_text(skipped, "damaged"), skipped_text(self.refused, "with machine code"));
        let (entries, bytes) = (count(entries, "kernel"), Bytes(bytes));
        let (directory, file) = (plain(&self.directory), plain(&self.file));
        format!("wrote {entries} ({bytes}) from {directory} to {file}{skipped}{refused}\n")
    }
}

impl Report for Imported {
    fn text(&self) -> String {
        let ImportReport { imported, damaged, too_large, refused, complete } = self.report;
        let imported = count(imported, "kernel");
        let (damaged, too_large) = (skipped_text(damaged, "damaged"), skipped_text(too_large, "too large"));
        let refused = skipped_text(refused, "with machine code");
        let cut = if complete { "" } else { "; the file is truncated or damaged, and the rest of it is lost" };
        let (file, directory) = (plain(&self.file), plain(&self.directory));
        format!("stored {imported} of {file} in {directory}{damaged}{too_large}{refused}{cut}\n")
    }

    /// Returns whether the archive was complete and undamaged.
    fn is_good(&self) -> bool {
        self.report.complete && self.report.damaged == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(report: ImportReport) -> Imported {
        Imported { directory: "/cache".to_string(), file: "kernels.kiln".to_string(), report }
    }

    #[test]
    fn skipped_kernels_are_reported() {
        let good = ImportReport { imported: 5, complete: true, ..ImportReport::default() };
        assert_eq!(imported(good).text(), "stored 5 kernels of kernels.kiln in /cache\n");
        assert!(imported(good).is_good());
        let bad = ImportReport { imported: 1, damaged: 2, too_large: 3, refused: 4, complete: false };
        let skipped = "skipped 2 damaged; skipped 3 too large; skipped 4 with machine code; \
            the file is truncated or damaged, and the rest of it is lost";
        assert_eq!(imported(bad).text(), format!("stored 1 kernel of kernels.kiln in /cache; {skipped}\n"));
        for report in [bad, ImportReport { damaged: 1, ..good }, ImportReport { complete: false, ..good }] {
            assert!(!imported(report).is_good());
        }
        let report = ExportReport { entries: 2, bytes: 2048, skipped: 1 };
        let exported = Exported { directory: "/cache".to_string(), file: "a".to_string(), report, refused: 3 };
        let skipped = "skipped 1 damaged; skipped 3 with machine code";
        assert_eq!(exported.text(), format!("wrote 2 kernels (2 KiB) from /cache to a; {skipped}\n"));
    }
}
