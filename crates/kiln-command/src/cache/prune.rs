//! `kiln cache prune`.

use super::Removal;
use super::stored::State;
use super::units::{ByteSize, Span};
use crate::Fallible;
use crate::kernel_dir::KernelDir;
use kiln::store::PruneTarget;
use kiln::{Device, KernelKey};

const EXAMPLES: &str = "\
Examples:
  kiln cache prune --max-size 100M
  kiln cache prune --unused-for 30d --stale
  kiln cache prune --max-entries 1000 --json

Exit status:
  0  done
  1  the cache cannot be changed
  2  the command line was not understood";

/// Removes stored kernels.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[group(required = true, multiple = true)]
pub(super) struct Args {
    /// Keep at most this much: 500K, 100M, 2G.
    #[arg(long, value_name = "SIZE")]
    max_size: Option<ByteSize>,
    /// Keep at most this many kernels.
    #[arg(long, value_name = "NUMBER")]
    max_entries: Option<u64>,
    /// Remove what was not used for this long: 90s, 15m, 12h, 30d, 4w.
    #[arg(long, value_name = "TIME")]
    unused_for: Option<Span>,
    /// Remove what was compiled for a device of this machine as it is no more: another driver, or another version of Kiln.
    #[arg(long)]
    stale: bool,
}

pub(super) fn run(dir: &KernelDir, args: &Args) -> Fallible<Removal> {
    let directory = dir.path().display().to_string();
    let Some(store) = dir.open_existing()? else { return Ok(Removal { directory, ..Removal::default() }) };
    let mut removal = Removal { directory, ..Removal::default() };
    if args.stale {
        let devices = Device::list();
        let pruned = store
            .remove_where(|entry| State::of(KernelKey::decode(&entry.key).ok().as_ref(), &devices) == State::Stale)?;
        (removal.removed, removal.removed_bytes) = (pruned.removed, pruned.removed_bytes);
    }
    let target = PruneTarget {
        max_bytes: args.max_size.map(|ByteSize(bytes)| bytes),
        max_entries: args.max_entries,
        unused_for: args.unused_for.map(|Span(time)| time),
    };
    let pruned = store.prune(target)?;
    removal.removed += pruned.removed;
    removal.removed_bytes += pruned.removed_bytes;
    Ok(Removal { kept: pruned.kept, kept_bytes: pruned.kept_bytes, ..removal })
}
