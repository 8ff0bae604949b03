//! `kiln profile`: device activity of a command or a program, as a table and as a timeline.
//!
//! The program runs as a child that writes its events to a file (`child`). They are read after it has ended (`streams`), and compared with
//! the limits of the devices (`limits`); `report` is the output.

mod child;
mod limits;
mod report;
mod streams;

use crate::new_file::NewFile;
use crate::{Fallible, terminal};
use child::{Child, exit_code, fault};
use kiln::observe::{EVENTS_SETTING, summarise, timeline};
use report::ProfileReport;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

const EXAMPLES: &str = "\
Examples:
  kiln profile -- eval 'softmax(randn(1000, 1000) @ randn(1000, 1000))' --device gpu
  kiln profile --out matmul.json -- bench matmul-256 --quick
  kiln profile -- target/release/examples/digits --net mlp --epochs 2

If the program fails, its profile is still printed, and its exit status is returned.

Exit status:
  0  the program succeeded and was profiled
  1  the program could not be started, or the profile could not be made
  2  the command line is invalid";

/// Profiles a command or a program: its kernels and a timeline.
///
/// Prints each kernel with its launches, time, bytes, and share of the roofline, and writes a timeline for https://ui.perfetto.dev or
/// chrome://tracing. Time in which no kernel is known to have run is reported as unattributed.
///
/// If the first word is a subcommand of `kiln`, that runs; otherwise it is a program. A program is profiled if it calls
/// `kiln::observe::watch_from_settings` for its devices, as the example `digits` does.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// File for the timeline.
    #[arg(long, value_name = "FILE.json", default_value = "kiln-trace.json")]
    out: PathBuf,
    /// Do not measure the limits of the devices. The table then has no shares of the roofline.
    #[arg(long)]
    no_limits: bool,
    /// Write one JSON object to standard output. The standard output of the program is redirected to standard error.
    #[arg(long)]
    json: bool,
    /// The command or the program, with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let child = Child::of(&args.command)?;
    // Created before anything runs, so that an unwritable path is reported first.
    let out = NewFile::create(&args.out)?;
    let folder = tempfile::Builder::new().prefix("kiln-profile-").tempdir()?;
    let status = child.run(&folder.path().join("events.jsonl"), args.json)?;
    // The exit status of a failed program takes precedence over the error of its profile.
    if let Err(error) = profile(args, &child, status, folder.path(), out) {
        if status.success() {
            return Err(error);
        }
        terminal::warn(&error.to_string());
    }
    Ok(exit_code(status))
}

fn profile(args: &Args, child: &Child, status: ExitStatus, folder: &Path, mut out: NewFile) -> Fallible<()> {
    if let Some(fault) = fault(status) {
        terminal::warn(&format!("`{}` {fault}", child.name));
    }
    let streams = streams::read(folder)?;
    if streams.events.is_empty() {
        return Err(format!(
            "`{}` wrote no events: expected a program that opens a device and calls \
             `kiln::observe::watch_from_settings(&device, |name| std::env::var(name).ok())` for it, which reads \
             `{EVENTS_SETTING}`, with the feature `events` of `kiln`",
            child.name
        )
        .into());
    }
    if streams.unreadable > 0 {
        let lines = terminal::count(streams.unreadable, "line");
        terminal::warn(&format!("{lines} of events could not be read, for example because the program was killed"));
    }
    serde_json::to_writer(&mut out, &timeline(&streams.events))?;
    out.write_all(b"\n")?;
    out.commit()?;
    let mut report = ProfileReport::new(&child.name, status.code(), &args.out, summarise(&streams.events));
    if !args.no_limits {
        report.devices.iter_mut().for_each(limits::compare);
    }
    terminal::show(&report, args.json)?;
    Ok(())
}
