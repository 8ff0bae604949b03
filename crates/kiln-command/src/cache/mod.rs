//! `kiln cache`: inspects and manages the on-disk kernel cache.
//!
//! One file per subcommand: it builds a report, which is then printed.
//! `stored` reads the entries of the store as kernels; `units` parses sizes and times on the command line.

mod explain;
mod list;
mod prune;
mod stats;
mod stored;
mod transfer;
mod units;
mod verify;
mod warm;

use crate::Fallible;
use crate::kernel_dir::KernelDir;
use crate::terminal::{Report, count, plain, show};
use kiln::ir::Bytes;
use serde::Serialize;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  kiln cache stats                           size and limits of the cache
  kiln cache list --json                     every kernel, as JSON
  kiln cache explain saxpy.wgsl              whether it is cached, and if not, why
  kiln cache verify --repair                 verify all files, remove damaged ones
  kiln cache warm --stale                    recompile after a driver update
  kiln cache prune --max-size 100M --unused-for 30d

Exit status:
  0  success
  1  the cache cannot be used, or it contains damaged files
  2  the command line is invalid";

const LIST_EXAMPLES: &str = "\
Examples:
  kiln cache list
  kiln cache list --json                     as JSON, with the full keys

Exit status:
  0  success
  1  the cache cannot be read
  2  the command line is invalid";

const STATS_EXAMPLES: &str = "\
Examples:
  kiln cache stats
  kiln cache stats --json

Exit status:
  0  success
  1  the cache cannot be read
  2  the command line is invalid";

const CLEAR_EXAMPLES: &str = "\
Examples:
  kiln cache clear

Exit status:
  0  the cache is empty
  1  the cache cannot be changed
  2  the command line is invalid";

/// Inspects and manages the on-disk cache of compiled kernels.
///
/// Compiled kernels are files in the subdirectory `kernels` of the cache directory, which `kiln doctor` shows and the variable
/// KILN_CACHE_DIR changes. It is safe to delete: kernels are compiled again when they are needed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Write one JSON object instead of text.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List stored kernels with their device, driver and use.
    ///
    /// A kernel is `current` if a device of this machine would load it, `stale` if the driver or Kiln has changed since, `elsewhere` if its
    /// device is not on this machine, and `foreign` if this version of Kiln did not write the entry.
    #[command(after_long_help = LIST_EXAMPLES)]
    List,
    /// Show number and size of stored kernels by device and driver, and the limits.
    #[command(after_long_help = STATS_EXAMPLES)]
    Stats,
    /// Verify the checksums of all stored kernels.
    ///
    /// Changes nothing without `--repair`.
    Verify(verify::Args),
    /// Explain whether a kernel is cached, and if not, how it differs from the nearest stored one.
    Explain(explain::Args),
    /// Remove stored kernels by size, number, age or staleness, the least recently used first.
    Prune(prune::Args),
    /// Remove all stored kernels.
    #[command(after_long_help = CLEAR_EXAMPLES)]
    Clear,
    /// Export stored kernels to a file, for another machine with the same devices and drivers.
    Export(transfer::ExportArgs),
    /// Import kernels from such a file. Import only files that you trust like a program.
    Import(transfer::ImportArgs),
    /// Compile kernels ahead of time, in parallel.
    Warm(warm::Args),
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let dir = KernelDir::of_environment()?;
    let json = args.json;
    Ok(match &args.command {
        Command::List => show(&list::gather(&dir)?, json)?,
        Command::Stats => show(&stats::gather(&dir)?, json)?,
        Command::Verify(args) => show(&verify::run(&dir, args)?, json)?,
        Command::Explain(args) => show(&explain::run(&dir, args)?, json)?,
        Command::Prune(args) => show(&prune::run(&dir, args)?, json)?,
        Command::Clear => show(&clear(&dir)?, json)?,
        Command::Export(args) => show(&transfer::export(&dir, args)?, json)?,
        Command::Import(args) => show(&transfer::import(&dir, args)?, json)?,
        Command::Warm(args) => show(&warm::run(&dir, args)?, json)?,
    })
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Removal {
    directory: String,
    removed: u64,
    removed_bytes: u64,
    kept: u64,
    kept_bytes: u64,
}

impl Report for Removal {
    fn text(&self) -> String {
        let Self { directory, removed, removed_bytes, kept, kept_bytes } = self;
        let [removed, kept] = [removed, kept].map(|number| count(*number, "kernel"));
        let (removed_bytes, kept_bytes, directory) = (Bytes(*removed_bytes), Bytes(*kept_bytes), plain(directory));
        format!("removed {removed} ({removed_bytes}) from {directory}; {kept} ({kept_bytes}) left\n")
    }
}

fn clear(dir: &KernelDir) -> Fallible<Removal> {
    let directory = dir.path().display().to_string();
    let Some(store) = dir.open_existing()? else { return Ok(Removal { directory, ..Removal::default() }) };
    let cleared = store.clear()?;
    Ok(Removal { directory, removed: cleared.entries, removed_bytes: cleared.bytes, ..Removal::default() })
}
