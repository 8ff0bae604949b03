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
  kiln cache stats                           how much is kept, and the limits
  kiln cache list --json                     every kernel, for programs
  kiln cache explain saxpy.wgsl              would it be found, and if not, what changed
  kiln cache verify --repair                 check every byte, remove what is damaged
  kiln cache warm --stale                    compile again after an update of the driver
  kiln cache prune --max-size 100M --unused-for 30d

Exit status:
  0  done, and all is well
  1  the cache cannot be used, or something in it is wrong and stays so
  2  the command line was not understood";

const LIST_EXAMPLES: &str = "\
Examples:
  kiln cache list
  kiln cache list --json                     with the full keys

Exit status:
  0  done
  1  the cache cannot be read
  2  the command line was not understood";

const STATS_EXAMPLES: &str = "\
Examples:
  kiln cache stats
  kiln cache stats --json

Exit status:
  0  done
  1  the cache cannot be read
  2  the command line was not understood";

const CLEAR_EXAMPLES: &str = "\
Examples:
  kiln cache clear

Exit status:
  0  nothing is stored any more
  1  the cache cannot be changed
  2  the command line was not understood";

/// Shows and changes what Kiln keeps of compiled kernels between runs.
///
/// Compiled kernels are files in the folder `kernels` of the cache directory, which `kiln doctor` shows and the variable
/// KILN_CACHE_DIR changes. Everything in it can be made again: removing it costs time and nothing else.
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
    /// Show every stored kernel: what it is, for which device and driver, how often and when it was used.
    ///
    /// A kernel is `current` where a device of this machine would load it, `stale` where its device is here but the driver,
    /// or Kiln, is another now, `elsewhere` where its device is not on this machine, and `foreign` where the entry is none of
    /// this version of Kiln.
    #[command(after_long_help = LIST_EXAMPLES)]
    List,
    /// Show how many kernels are stored for which device and driver, how large they are, and the limits.
    #[command(after_long_help = STATS_EXAMPLES)]
    Stats,
    /// Check every byte of every stored kernel.
    ///
    /// Without `--repair` nothing is changed.
    Verify(verify::Args),
    /// Say whether a kernel would be found, and if not, what changed against the nearest stored one.
    Explain(explain::Args),
    /// Remove stored kernels by size, number, age or staleness, the least recently used first.
    Prune(prune::Args),
    /// Remove all stored kernels.
    #[command(after_long_help = CLEAR_EXAMPLES)]
    Clear,
    /// Write all stored kernels into one file, for another machine with the same devices and drivers.
    Export(transfer::ExportArgs),
    /// Store the kernels of such a file. Take only files from people whose programs you would run.
    Import(transfer::ImportArgs),
    /// Compile kernels now, in parallel, so that nobody waits for them later.
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
