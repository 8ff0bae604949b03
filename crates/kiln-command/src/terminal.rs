//! Output of the commands: a report as text or as JSON, and text formatting.

use crate::new_file::NewFile;
use clap::builder::styling::Style;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Version of the JSON format of `kiln run` and `kiln cache`. Adding fields does not change it.
const FORMAT: u32 = 1;

/// The output of a command: JSON for programs, text for people.
pub(crate) trait Report: Serialize {
    /// Returns the text, ending with a newline.
    fn text(&self) -> String;

    /// Returns whether the exit status is 0.
    fn is_good(&self) -> bool {
        true
    }
}

#[derive(Serialize)]
struct Numbered<'a, R> {
    format: u32,
    #[serde(flatten)]
    report: &'a R,
}

/// Writes a report to standard output, as one JSON object or as text. Returns the exit status.
pub(crate) fn show(report: &impl Report, json: bool) -> io::Result<ExitCode> {
    let text = if json { to_json(&Numbered { format: FORMAT, report })? } else { report.text() };
    write(&mut io::stdout(), &text)?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn to_json(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(value).map_err(io::Error::other)? + "\n")
}

/// Returns the JSON name of an enum variant, which reports use too.
pub(crate) fn word(variant: &impl Serialize) -> String {
    serde_json::to_string(variant).map_or_else(|_| String::new(), |text| text.trim_matches('"').to_string())
}

/// Writes a text and flushes it. A closed pipe (`kiln doctor | head -1`) is not an error.
pub(crate) fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(io::Error::new(error.kind(), format!("cannot write the report: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a file, replacing an existing one.
pub(crate) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(text.as_bytes())?;
    file.commit()
}

/// Writes a line to standard error: `error`, `warning` or `note`, and the message.
pub(crate) fn print_message(kind: &str, message: &str) {
    // If standard error is closed, the exit status still signals an error.
    let _ = writeln!(io::stderr(), "{kind}: {message}");
}

/// Prints a warning to standard error, separate from the report.
pub(crate) fn warn(message: &str) {
    print_message("warning", message);
}

/// Returns the exit status of a command that could not run and that reserves 1 for its findings.
pub(crate) fn could_not_run(error: &str) -> ExitCode {
    print_message("error", error);
    ExitCode::from(2)
}

/// Replaces control characters, so that names from drivers, files and the environment cannot control the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Formats rows with aligned columns, two spaces apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Like [`table`], below the column names.
pub(crate) fn table_of(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let columns = columns.iter().map(ToString::to_string).collect();
    table(&std::iter::once(columns).chain(rows).collect::<Vec<_>>())
}

/// Applies a style to a text, for `anstream`.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Formats microseconds like [`seconds`].
pub(crate) fn time(us: u64) -> String {
    seconds(us as f64 * 1e-6)
}

/// Formats a number with three digits.
pub(crate) fn digits(number: f64) -> String {
    match number.abs() {
        // The limits are the numbers at which rounding adds a digit: 99.95 with one decimal would be `100.0`.
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Formats a measured time with three digits: `812 ns`, `1.23 µs`, `45.6 ms`, `7.89 s`.
pub(crate) fn seconds(time: f64) -> String {
    let (factor, unit) = scale(time * 1e9, 1000.0, &TIMES);
    format!("{} {unit}", digits(time * 1e9 / factor))
}

/// Units of time, starting with nanoseconds.
pub(crate) const TIMES: [&str; 4] = ["ns", "µs", "ms", "s"];

/// Returns the first unit in which a number has at most three digits before the point, with its factor; each unit is `step` times the previous.
pub(crate) fn scale(number: f64, step: f64, units: &[&'static str]) -> (f64, &'static str) {
    let (mut factor, mut at) = (1.0, 0);
    // 999.5 rounds to 1000, which has four digits; the next unit shows it as 1.00.
    while at + 1 < units.len() && number.abs() / factor >= 999.5 {
        (factor, at) = (factor * step, at + 1);
    }
    (factor, units[at])
}

/// Returns a time in microseconds, the unit of the JSON format.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Formats a count: `1 kernel`, `2 kernels`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "µµµ", "x"], ["bbb", "c", ""]].map(|row| row.map(str::to_string).to_vec());
        assert_eq!(table(&rows), "a    µµµ  x\nbbb  c\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        let table = [(7, "7.00 µs"), (999, "999 µs"), (1500, "1.50 ms"), (2_345_678, "2.35 s")];
        for (us, text) in table {
            assert_eq!(time(us), text);
        }
    }

    #[test]
    fn measured_times_have_three_digits() {
        let table = [
            (0.0, "0.00 ns"),
            (5e-9, "5.00 ns"),
            (1e-7, "100 ns"),
            (1.234e-6, "1.23 µs"),
            (1.234e-4, "123 µs"),
            (9.996e-7, "1.00 µs"),
        ];
        for (time, text) in table.into_iter().chain([(0.0925, "92.5 ms"), (1.5, "1.50 s"), (120.0, "120 s")]) {
            assert_eq!(seconds(time), text);
        }
    }
}
