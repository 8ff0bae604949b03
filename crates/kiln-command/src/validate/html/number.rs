//! Formats numbers and times for the report. A value that is not finite becomes a dash.

use crate::terminal::{self, TIMES, scale};
use kiln::ir::Bytes;

/// Non-breaking space between a number and its unit.
const SPACE: char = '\u{a0}';

/// Placeholder for a missing number.
pub(super) const NONE: &str = "–";

/// Formats three digits, or an integer in full.
pub(super) fn digits(number: f64) -> String {
    finite(number, |number| if number.fract() == 0.0 { format!("{number}") } else { terminal::digits(number) })
}

/// Formats four decimals, for numbers that differ little.
pub(super) fn fine(number: f64) -> String {
    finite(number, |number| format!("{number:.4}"))
}

pub(super) fn percent(share: f64) -> String {
    finite(share, |share| {
        let percent = share * 100.0;
        if percent < 9.5 { format!("{percent:.1}{SPACE}%") } else { format!("{percent:.0}{SPACE}%") }
    })
}

pub(super) fn seconds(time: f64) -> String {
    finite(time, |time| unbroken(&terminal::seconds(time)))
}

pub(super) fn unbroken(text: &str) -> String {
    text.replace(' ', &SPACE.to_string())
}

/// Formats a rate, such as FLOP/s: three digits and `G`, to which a unit is appended.
pub(super) fn rate(number: f64) -> String {
    finite(number, |number| {
        let (factor, prefix) = scale(number, 1000.0, &RATES);
        format!("{}{SPACE}{prefix}", terminal::digits(number / factor))
    })
}

const RATES: [&str; 6] = ["", "k", "M", "G", "T", "P"];

/// Formats the label of a tick as briefly as possible.
pub(super) fn tick(number: f64) -> String {
    // Rounds away accumulated error: three steps of 0.1 are not exactly 0.3.
    let rounded = (number * 1e6).round() / 1e6;
    if number != 0.0 && rounded == 0.0 { format!("{number:e}") } else { format!("{rounded}") }
}

/// Formats the label of a rate tick: `10 G`.
pub(super) fn rate_tick(number: f64) -> String {
    let (factor, prefix) = scale(number, 1000.0, &RATES);
    format!("{}{SPACE}{prefix}", tick(number / factor)).trim_end().to_string()
}

/// Formats the label of a time tick: `10 µs`.
pub(super) fn seconds_tick(time: f64) -> String {
    let (factor, unit) = scale(time * 1e9, 1000.0, &TIMES);
    format!("{}{SPACE}{unit}", tick(time * 1e9 / factor))
}

/// Returns the unit for this many bytes: its factor and its name.
pub(super) fn bytes_unit(bytes: u64) -> (f64, &'static str) {
    scale(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB"])
}

pub(super) fn bytes(bytes: u64) -> String {
    unbroken(&Bytes(bytes).to_string())
}

/// Formats a UTC time from seconds since 1970: `2026-11-16 21:36`.
pub(super) fn moment(unix_s: u64) -> String {
    let (days, minutes) = (unix_s / 86400, unix_s % 86400 / 60);
    // The `civil_from_days` algorithm: years begin in March, so that a leap day is the last day of its year; 719468 days from year 0 to 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minutes / 60, minutes % 60)
}

fn finite(number: f64, text: impl FnOnce(f64) -> String) -> String {
    if number.is_finite() { text(number) } else { NONE.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_unit_that_fits_and_nan_is_a_dash() {
        assert_eq!([digits(f64::NAN), seconds(f64::INFINITY), rate(f64::NAN)], [NONE; 3]);
        assert_eq!([digits(8.0), digits(0.5), digits(123.4)], ["8", "0.50", "123"]);
        let spaced = |texts: [String; 3]| texts.map(|text| text.replace(SPACE, " "));
        assert_eq!(spaced([rate(1.5e9), rate(999.0), rate(2e13)]), ["1.50 G", "999 ", "20.0 T"]);
        assert_eq!(spaced([rate_tick(1e9), rate_tick(0.5), rate_tick(10f64.powi(11))]), ["1 G", "0.5", "100 G"]);
        assert_eq!(spaced([seconds_tick(1e-9), seconds_tick(1e-4), seconds_tick(10.0)]), ["1 ns", "100 µs", "10 s"]);
        assert_eq!(spaced([percent(0.0684), percent(0.47), percent(f64::NAN)]), ["6.8 %", "47 %", NONE]);
        assert_eq!([tick(0.1 + 0.2), tick(1024.0), tick(0.0), tick(1e-9)], ["0.3", "1024", "0", "1e-9"]);
        assert_eq!(spaced([bytes(100), bytes(1536), bytes(5 << 20)]), ["100 B", "1.5 KiB", "5 MiB"]);
    }

    #[test]
    fn moments_are_in_utc() {
        let table = [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (951_868_800, "2000-03-01 00:00"),
            (1_798_761_599, "2026-12-31 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
        ];
        for (unix_s, text) in table {
            assert_eq!(moment(unix_s), text);
        }
    }
}
