//! `kiln validate`: verifies the performance claims of Kiln on this machine.
//!
//! The claims and the harness are those of the `kiln-validate` crate. `progress` prints the progress, `text` the score card,
//! `html` the report with plots, `history` compares with earlier runs.

mod history;
mod html;
mod progress;
mod text;

use crate::kernel_dir::open_device;
use crate::names::similar_or;
use crate::new_file::NewFile;
use crate::{Fallible, settings, terminal};
use history::Trend;
use kiln::{Device, DeviceKind};
use kiln_validate::baseline::{Baseline, Regression};
use kiln_validate::{Claim, Options, Report, claims, validate};
use progress::ProgressReporter;
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

const EXAMPLES: &str = "\
Examples:
  kiln validate                              all claims on the default device
  kiln validate --quick --device all         a quick run on the CPU device and the first GPU
  kiln validate --only matmul,fusion         claims by name or prefix
  kiln validate --report report.html         write an HTML report with plots
  kiln validate --write-baseline ratios.json
  kiln validate --baseline ratios.json --max-regression 20%

Exit status:
  0  no claim failed; claims that are not shown state the reason
  1  a claim failed, or a ratio fell below the baseline (see --fail-on)
  2  nothing could be validated, or the command line is invalid";

/// Verifies Kiln's performance claims on this machine.
///
/// Each claim is a ratio measured in this run: to the roofline, to a library, or to Kiln with the claimed feature disabled. A ratio counts
/// only if the output is correct, no work is skipped or still pending when the clock stops, the time is not below the measured roofline,
/// the arms are interleaved in random order, and the samples are consistent. Otherwise the claim is `not shown`, with the reason.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The device: `cpu`, `gpu`, `gpu:1`, or `all` for the CPU device and the first GPU. Default: the best one.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Claims by name or prefix, separated by commas.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    only: Vec<String>,
    /// Smaller workloads and fewer samples: less than a minute per device.
    #[arg(long)]
    quick: bool,
    /// List the claims, what they measure and their targets, and exit.
    #[arg(long)]
    list: bool,
    /// Write one JSON object with the fields `machine`, `limits`, `claims`, `summary`, `plots`; `regressions` with `--baseline`,
    /// `trends` with `--history`.
    #[arg(long)]
    json: bool,
    /// Write an HTML report with plots to this file.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Compare the ratios with this file, written by `--write-baseline` or `--json`.
    #[arg(long, value_name = "FILE.json")]
    baseline: Option<PathBuf>,
    /// Maximum drop of a ratio below the baseline.
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_share)]
    max_regression: f64,
    /// Write the ratios to this file, for `--baseline`.
    #[arg(long, value_name = "FILE.json")]
    write_baseline: Option<PathBuf>,
    /// Append the ratios to this file, and report those that changed compared with its earlier runs.
    #[arg(long, value_name = "FILE.jsonl")]
    history: Option<PathBuf>,
    /// Condition for exit status 1.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = FailOn::Failed)]
    fail_on: FailOn,
}

/// Condition for exit status 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// A wrong output, or a ratio that fell below the baseline.
    Regression,
    /// Those, or a claim that missed its target.
    Failed,
    /// Those, or a claim that is not shown.
    NotShown,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let outcome = if args.list { list(args) } else { validated(args) };
    Ok(outcome.unwrap_or_else(|error| terminal::could_not_run(&error.to_string())))
}

fn validated(args: &Args) -> Fallible<ExitCode> {
    let options = options(args)?;
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    let history = args.history.as_deref().map(history::read).transpose()?;
    // An unwritable path is reported before minutes are spent.
    args.report.as_deref().map(NewFile::create).transpose()?;
    args.write_baseline.as_deref().map(NewFile::create).transpose()?;
    let devices = devices(args.device.as_deref())?;
    let mut reporter = ProgressReporter::new();
    let report =
        validate(&devices, &options, &mut |progress| reporter.report(&progress)).map_err(|fault| fault.to_string())?;
    // Clears the progress bar before the report is printed.
    drop(reporter);
    let regressions = baseline.map_or_else(Vec::new, |known| known.regressions(&report, args.max_regression));
    let trends = history.map_or_else(Vec::new, |known| history::trends(&known, &report));
    let found = Found { report: &report, regressions: &regressions, trends: &trends };
    if args.json {
        terminal::write(&mut io::stdout(), &terminal::to_json(&found)?)?;
    } else {
        terminal::write(&mut anstream::stdout(), &text::render(&found))?;
    }
    if let Some(path) = &args.report {
        terminal::write_file(path, &html::page(&found, cfg!(debug_assertions)))?;
        // Separate from the score card; a closed standard error is not an error.
        let _ = writeln!(io::stderr(), "report: {}", path.display());
    }
    if let Some(path) = &args.write_baseline {
        terminal::write_file(path, &terminal::to_json(&Baseline::of(&report))?)?;
    }
    if let Some(path) = &args.history {
        history::append(path, &report)?;
    }
    Ok(status(&found, args.fail_on))
}

/// The output: the report, its regressions, and its trends.
#[derive(Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    report: &'a Report,
    regressions: &'a [Regression],
    trends: &'a [Trend],
}

fn status(found: &Found<'_>, fail_on: FailOn) -> ExitCode {
    let summary = found.report.summary;
    let bad = found.regressions.len()
        + match fail_on {
            // A wrong output is no matter of speed, so it fails in every mode; `failed` below includes it.
            FailOn::Regression => found.report.claims.iter().filter(|claim| claim.wrong_output().is_some()).count(),
            FailOn::Failed => summary.failed,
            FailOn::NotShown => summary.failed + summary.not_shown,
        };
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options(args: &Args) -> Fallible<Options> {
    let mut options = if args.quick { Options::quick() } else { Options::new() };
    if !args.only.is_empty() {
        options = options.only(&args.only).map_err(|unknown| {
            let ids = claims().iter().map(|claim| claim.id);
            let near = similar_or(&unknown.0, ids, "`kiln validate --list` lists them");
            format!("`--only` expected the name of a claim, found `{}`; {near}", terminal::plain(&unknown.0))
        })?;
    }
    // Another arm order each time.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
    options = options.seed(now);
    // Claims about fresh processes start this program.
    Ok(match std::env::current_exe() {
        Ok(program) => options.program(program),
        Err(_) => options,
    })
}

/// Opens the devices to validate; the default device if no name is given.
fn devices(name: Option<&str>) -> Fallible<Vec<Device>> {
    match name {
        Some("all") => {
            let mut devices = vec![settings::open_cpu()?];
            if Device::list().iter().any(|info| info.kind != DeviceKind::Cpu) {
                devices.push(open_device(Some("gpu"))?);
            } else {
                terminal::warn("no GPU found; see `kiln doctor`");
            }
            Ok(devices)
        }
        name => Ok(vec![open_device(name)?]),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| format!("expected a share such as `10%` or `0.1`, found `{text}`"))
}

fn read_baseline(path: &Path) -> Fallible<Baseline> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read the baseline {}: {error}", path.display()))?;
    let fault = |error| format!("{}: expected a baseline of `kiln validate`, found {error}", path.display());
    Ok(serde_json::from_str(&text).map_err(fault)?)
}

fn list(args: &Args) -> Fallible<ExitCode> {
    let claims: Vec<&Claim> = options(args)?.claims().collect();
    let text = if args.json { terminal::to_json(&claims)? } else { text::list(&claims) };
    terminal::write(&mut anstream::stdout(), &text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_numbers_below_one() {
        for (text, share) in [("10%", 0.1), ("0.25", 0.25), ("0%", 0.0), ("50 %", 0.5)] {
            assert_eq!(parse_share(text), Ok(share), "{text}");
        }
        for text in ["", "ten", "100%", "-1%", "1.5", "nan"] {
            assert!(parse_share(text).unwrap_err().contains("expected a share"), "{text}");
        }
    }
}
