//! `kiln cache prune`.

use super::Removal;
use super::stored::State;
use super::units::{parse_bytes, parse_time};
use crate::Fallible;
use crate::kernel_dir::KernelDir;
use kiln::Device;
use kiln::cache::store::PruneTarget;
use kiln::kernel::KernelKey;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  kiln cache prune --max-size 100M
  kiln cache prune --unused-for 30d --stale
  kiln cache prune --max-entries 1000 --json

Exit status:
  0  success
  1  the cache cannot be changed
  2  the command line is invalid";

/// Removes stored kernels.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[group(required = true, multiple = true)]
pub(super) struct Args {
    /// Maximum total size: 500K, 100M, 2G.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<u64>,
    /// Maximum number of kernels.
    #[arg(long, value_name = "NUMBER")]
    max_entries: Option<u64>,
    /// Remove kernels that were not used for this long: 90s, 15m, 12h, 30d, 4w.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    unused_for: Option<Duration>,
    /// Remove stale kernels: compiled for a device of this machine with another driver or another version of Kiln.
    #[arg(long)]
    stale: bool,
}

pub(super) fn run(dir: &KernelDir, args: &Args) -> Fallible<Removal> {
    let directory = dir.path().display().to_string();
    let mut removal = Removal { directory, ..Removal::default() };
    let Some(store) = dir.open_existing()? else { return Ok(removal) };
    if args.stale {
        let devices = Device::list();
        let pruned = store
            .remove_where(|entry| State::of(KernelKey::decode(&entry.key).ok().as_ref(), &devices) == State::Stale)?;
        (removal.removed, removal.removed_bytes) = (pruned.removed, pruned.removed_bytes);
    }
    let Args { max_size: max_bytes, max_entries, unused_for, .. } = *args;
    // With `--stale` alone there are no limits, and this only counts the kernels that are left.
    let pruned = store.prune(PruneTarget { max_bytes, max_entries, unused_for })?;
    removal.removed += pruned.removed;
    removal.removed_bytes += pruned.removed_bytes;
    Ok(Removal { kept: pruned.kept, kept_bytes: pruned.kept_bytes, ..removal })
}
