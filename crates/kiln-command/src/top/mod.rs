//! `kiln top`: the devices, pools, caches and kernels of a running process, live.
//!
//! `scrape` requests the metrics of the process, `model` is their data and `rates` the changes between two
//! snapshots. `state` is the state of the screen and the key bindings; `view` draws it, `live` is the event loop. `text` is the output without
//! a screen.

mod live;
mod model;
mod rates;
mod scrape;
mod state;
mod text;
mod units;
mod view;

use crate::{Fallible, terminal};
use rates::View;
use state::State;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;
use text::Page;
use view::Palette;

const EXAMPLES: &str = "\
Examples:
  kiln top                                          a process started with KILN_METRICS=127.0.0.1:9464
  kiln top 127.0.0.1:9500 --interval 250ms          another address, four updates per second
  kiln top file:metrics.json                        a process that writes its metrics to a file
  kiln top --once                                   one snapshot as text
  kiln top --json                                   one snapshot as JSON

Keys:
  q Esc Ctrl-C   quit                  Tab 1 2 3 4        select a pane
  p              pause                 arrows PgUp PgDn   scroll it
  + -            slower, faster        s                  change the sort order of kernels
  ?              help

Any program can be observed: it calls `kiln::metrics::Watch::write_file` periodically, or answers `GET /metrics.json` with
`kiln::metrics::Watch::to_json`.

Exit status:
  0  quit by a key, or the snapshot was written
  1  no Kiln process answers at the address
  2  the command line is invalid";

/// Monitors devices, pools, caches and kernels of a running process.
///
/// The process serves its metrics at a loopback address, or writes them to a file: start it with `KILN_METRICS=127.0.0.1:9464` or
/// `KILN_METRICS=file:metrics.json`. Rates are computed between two updates. Without a terminal, one snapshot is written, with totals since
/// the process started.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Source of the metrics: an address, a local port, or `file:PATH`.
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9464", value_parser = scrape::parse_address)]
    address: String,
    /// Update interval, from 100ms to 60m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Write one snapshot as text; the default if standard output is not a terminal.
    #[arg(long)]
    once: bool,
    /// Write one snapshot as a JSON object with the fields `version`, `pid`, `devices`.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let Args { address, interval, .. } = args;
    let first = scrape::scrape(address)
        .map_err(|fault| format!("{fault}; start the observed program with `KILN_METRICS={address}`"))?;
    if args.once || args.json || !io::stdout().is_terminal() {
        return Ok(terminal::show(&Page(View::new(first, None)), args.json)?);
    }
    live::run(State::new(address.clone(), *interval, first), Palette::of_terminal())?;
    Ok(ExitCode::SUCCESS)
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    // `ms` comes before its suffix `s`.
    let (number, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale))).unwrap_or((text, 1.0));
    let seconds = number.trim().parse::<f64>().ok().map(|number| number * scale);
    seconds
        .filter(|seconds| (0.1..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected a time from `100ms` to `60m`, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units() {
        for (text, ms) in [("1s", 1000), ("250ms", 250), ("0.5", 500), ("2 s", 2000), ("1m", 60_000), ("100ms", 100)] {
            assert_eq!(parse_interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "0", "99ms", "-1s", "61m", "nan", "1h", "1e99"] {
            assert!(parse_interval(text).unwrap_err().contains("expected a time"), "{text}");
        }
    }
}
