//! `kiln cache warm`.

use super::stored::field;
use crate::Fallible;
use crate::kernel_dir::{KernelDir, lost, open_with};
use crate::source_args::SourceArgs;
use crate::terminal::{Report, count, micros, plain, time};
use kiln::Device;
use kiln::cache::KernelWarmReport;
use kiln::cache::store::DiskStore;
use kiln::kernel::{KernelKey, KernelSource};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);
/// Width of the progress line in columns.
const WIDTH: usize = 40;

const EXAMPLES: &str = "\
Examples:
  kiln cache warm saxpy.wgsl blur.wgsl --threads 2
  kiln cache warm --list kernels.txt         files and entry points, one per line
  kiln cache warm --stale                    after a driver update

Exit status:
  0  every kernel is compiled and stored
  1  a kernel could not be compiled or stored
  2  the command line is invalid";

/// Compiles kernels ahead of time.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[group(id = "what", required = true, multiple = true, args = ["kernels", "list", "stale"])]
pub(super) struct Args {
    /// Files with kernels. `--entry`, `--constant` and `--option` apply to all of them.
    #[arg(value_name = "KERNEL.wgsl")]
    kernels: Vec<PathBuf>,
    /// File with a list of kernels, one per line: a path, followed by the entry point if the kernel has several. Paths are relative to
    /// the directory of this file and may contain spaces: if the whole line is the path of a file, it has no entry point. Lines that
    /// begin with `#` are ignored.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Recompile the stored kernels that are stale on this device, from their stored sources: after an update of the driver or of
    /// Kiln.
    #[arg(long)]
    stale: bool,
    /// The device: `cpu`, `gpu`, `gpu:1`; `kiln doctor` lists them. Default: the best one.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
    /// Number of kernels compiled in parallel. Default: the number of hardware threads.
    #[arg(long, value_name = "NUMBER")]
    threads: Option<NonZeroUsize>,
}

#[derive(Debug, Serialize)]
pub(super) struct Warmed {
    directory: String,
    device: String,
    compiled: u64,
    /// Kernels that were already on disk.
    loaded: u64,
    /// Kernels that were named more than once.
    repeated: u64,
    failed: Vec<Failure>,
    /// Why some compiled kernels were not stored.
    write_fault: Option<String>,
    time_us: u64,
}

#[derive(Debug, Serialize)]
struct Failure {
    kernel: String,
    error: String,
}

pub(super) fn run(dir: &KernelDir, args: &Args) -> Fallible<Warmed> {
    args.source.check()?;
    // Fails early: warming is pointless if kernels cannot be stored.
    drop(dir.open()?);
    let device = open_with(args.device.as_deref(), dir.options(), None)?;
    let (sources, mut failed) = sources(&device, args)?;
    let report = warm(&device, &sources, args.threads);
    let errors = report.failed.iter();
    failed.extend(errors.map(|failure| Failure { kernel: failure.kernel.clone(), error: failure.error.to_string() }));
    Ok(Warmed {
        directory: dir.path().display().to_string(),
        device: device.info().id.clone(),
        compiled: report.compiled as u64,
        loaded: report.loaded as u64,
        repeated: report.repeated as u64,
        failed,
        write_fault: lost(&device.kernel_cache_stats().disk),
        time_us: micros(report.time),
    })
}

/// Returns the kernels that the command line names, and the failures to read them.
fn sources(device: &Device, args: &Args) -> Fallible<(Vec<KernelSource>, Vec<Failure>)> {
    let mut named: Vec<(PathBuf, Option<String>)> = args.kernels.iter().map(|path| (path.clone(), None)).collect();
    if let Some(list) = &args.list {
        let text = std::fs::read_to_string(list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
        named.extend(parse_list(&text, list));
    }
    let (mut sources, mut failed) = (Vec::new(), Vec::new());
    for (path, entry) in named {
        match args.source.read_entry(&path, entry.as_deref()) {
            Ok(source) => sources.push(source),
            Err(error) => failed.push(Failure { kernel: path.display().to_string(), error: error.to_string() }),
        }
    }
    if args.stale {
        sources.extend(stale(device)?);
    }
    Ok((sources, failed))
}

/// Parses a list of kernels: path and entry point.
fn parse_list(text: &str, list: &Path) -> Vec<(PathBuf, Option<String>)> {
    let folder = list.parent().unwrap_or(Path::new(""));
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let kernel = |line: &str| match line.rsplit_once(char::is_whitespace) {
        // A path may contain spaces: a line that names a file has no entry point.
        Some((path, entry)) if !folder.join(line).is_file() => (folder.join(path.trim_end()), Some(entry.to_string())),
        _ => (folder.join(line), None),
    };
    lines.map(kernel).collect()
}

/// Returns the unique sources of kernels that were compiled for an earlier state of this device.
fn stale(device: &Device) -> Fallible<Vec<KernelSource>> {
    let info = device.info();
    let entries = device.kernel_store().map_or_else(|| Ok(Vec::new()), DiskStore::entries)?;
    let keys = entries.iter().filter_map(|entry| KernelKey::decode(&entry.key).ok());
    let mut sources: Vec<KernelSource> = Vec::new();
    for key in keys.filter(|key| field(key, "device") == info.name && !key.is_for(info)) {
        let source = key.to_source();
        // Kernels of several old driver versions have the same source.
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    Ok(sources)
}

/// Warms the cache, with progress on standard error if it is a terminal.
fn warm(device: &Device, sources: &[KernelSource], threads: Option<NonZeroUsize>) -> KernelWarmReport {
    if !io::stderr().is_terminal() {
        return device.warm_kernels(sources, threads);
    }
    thread::scope(|scope| {
        let work = scope.spawn(|| device.warm_kernels(sources, threads));
        while !work.is_finished() {
            let done = device.kernel_cache_stats();
            let done = done.compiles + done.disk_hits + done.memory_hits + done.failures;
            // A failure to print progress is not an error.
            let _ = write!(io::stderr(), "\r{:WIDTH$}", format!("{done} of {}", count(sources.len() as u64, "kernel")));
            thread::sleep(STEP);
        }
        let _ = write!(io::stderr(), "\r{:WIDTH$}\r", "");
        // A panic of the worker continues here, as it would without progress.
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Report for Warmed {
    fn text(&self) -> String {
        let mut out = String::new();
        for Failure { kernel, error } in &self.failed {
            // The error is multi-line, with a source excerpt.
            let error: Vec<String> = error.lines().map(plain).collect();
            out.push_str(&format!("failed {}: {}\n", plain(kernel), error.join("\n  ")));
        }
        if let Some(fault) = &self.write_fault {
            out.push_str(&format!("not stored: {}\n", plain(fault)));
        }
        let Self { compiled, loaded, repeated, .. } = self;
        let repeated = if *repeated == 0 { String::new() } else { format!(", {repeated} duplicates") };
        let (compiled, failed) = (count(*compiled, "kernel"), self.failed.len());
        let (device, time) = (&self.device, time(self.time_us));
        out + &format!(
            "compiled {compiled} for {device} in {time}; {loaded} already on disk{repeated}, {failed} failed\n"
        )
    }

    /// Returns whether every kernel is compiled and stored.
    fn is_good(&self) -> bool {
        self.failed.is_empty() && self.write_fault.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_paths_from_their_folder() {
        let text = "# kernels\n\na.wgsl\n  b/c.wgsl main \n/d.wgsl\n";
        let kernels = parse_list(text, Path::new("/k/list"));
        let expected = [("/k/a.wgsl", None), ("/k/b/c.wgsl", Some("main")), ("/d.wgsl", None)];
        assert_eq!(kernels, expected.map(|(path, entry)| (PathBuf::from(path), entry.map(str::to_string))));
    }

    #[test]
    fn paths_in_lists_may_have_spaces() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("my kernel.wgsl"), "").unwrap();
        let text = "my kernel.wgsl\nmy kernel.wgsl \t main\nno such.wgsl main\n";
        let kernels = parse_list(text, &folder.path().join("list"));
        let expected = [("my kernel.wgsl", None), ("my kernel.wgsl", Some("main")), ("no such.wgsl", Some("main"))];
        assert_eq!(kernels, expected.map(|(path, entry)| (folder.path().join(path), entry.map(str::to_string))));
    }

    #[test]
    fn failures_are_listed_first() {
        let failed = Failure { kernel: "a.wgsl".to_string(), error: "a.wgsl:1:1: expected\n  | x\u{7}".to_string() };
        let good = Warmed {
            directory: "/cache".to_string(),
            device: "gpu:0".to_string(),
            compiled: 2,
            loaded: 1,
            repeated: 0,
            failed: Vec::new(),
            write_fault: None,
            time_us: 1500,
        };
        assert_eq!(good.text(), "compiled 2 kernels for gpu:0 in 1.50 ms; 1 already on disk, 0 failed\n");
        assert!(good.is_good());
        let bad = Warmed { failed: vec![failed], write_fault: Some("full".to_string()), repeated: 3, ..good };
        let begin = "failed a.wgsl: a.wgsl:1:1: expected\n    | x?\nnot stored: full\n";
        let end = "compiled 2 kernels for gpu:0 in 1.50 ms; 1 already on disk, 3 duplicates, 1 failed\n";
        assert_eq!(bad.text(), format!("{begin}{end}"));
        assert!(!bad.is_good());
    }
}
