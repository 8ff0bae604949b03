//! `kiln cache explain`.

use crate::Fallible;
use crate::kernel_dir::{KernelDir, open_with};
use crate::source_args::SourceArgs;
use crate::terminal::{Report, plain, table_of};
use kiln::cache::{Change, KernelExplanation};
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kiln cache explain saxpy.wgsl
  kiln cache explain saxpy.wgsl --device gpu:1 --constant ALPHA=2 --json

Exit status:
  0  success, whether it is cached or not
  1  the kernel or the cache cannot be read
  2  the command line is invalid";

/// Explains whether a kernel is cached.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// File with the kernel.
    #[arg(value_name = "KERNEL.wgsl")]
    kernel: PathBuf,
    /// The device: `cpu`, `gpu`, `gpu:1`; `kiln doctor` lists them. Default: the best one.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Serialize)]
pub(super) struct Explained {
    directory: String,
    device: String,
    #[serde(flatten)]
    explanation: KernelExplanation,
    sentence: String,
}

pub(super) fn run(dir: &KernelDir, args: &Args) -> Fallible<Explained> {
    let source = args.source.read(&args.kernel)?;
    // A device would ignore a directory that cannot be opened.
    dir.open_existing()?;
    let device = open_with(args.device.as_deref(), dir.options(), None)?;
    let explanation = device.explain_kernel(&source)?;
    let (directory, device) = (dir.path().display().to_string(), device.info().id.clone());
    Ok(Explained { directory, device, sentence: explanation.to_string(), explanation })
}

impl Report for Explained {
    fn text(&self) -> String {
        let row = |Change { field, stored, wanted }: &Change| {
            let shown = |text: &str| if text.is_empty() { "-".to_string() } else { plain(text) };
            vec![(*field).to_string(), shown(stored), shown(wanted)]
        };
        let changes = match &self.explanation.changes[..] {
            [] => String::new(),
            changes => table_of(&["FIELD", "STORED", "WANTED"], changes.iter().map(row)),
        };
        format!("{}\n{changes}", plain(&self.sentence))
    }
}
