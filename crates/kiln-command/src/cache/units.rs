//! Parses sizes and times on the command line, and formats ages.

use std::time::Duration;

const DAY: u64 = 24 * 60 * 60;

/// Parses bytes for clap: `500K`, `100M`, `2G`, or without a unit.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
    scaled(text, &units).ok_or_else(|| format!("expected a size such as `500K`, `100M` or `2G`, found `{text}`"))
}

/// Parses a time for clap: `90s`, `15m`, `12h`, `30d`, `4w`.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 60 * 60), ("d", DAY), ("w", 7 * DAY)];
    let seconds = scaled(text, &units);
    let seconds = seconds.ok_or_else(|| format!("expected a time such as `15m`, `12h` or `30d`, found `{text}`"))?;
    Ok(Duration::from_secs(seconds))
}

/// Parses an integer and multiplies it by the unit after it.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Formats an age: `12 s ago`, `3 d ago`.
pub(super) fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..DAY => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        let sizes = [("0", 0), ("10", 10), ("500K", 500 << 10), ("100M", 100 << 20), ("2G", 2 << 30), ("1T", 1 << 40)];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for (text, seconds) in [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 30 * DAY), ("4w", 28 * DAY)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "K", "-1", "1.5G", "10Q", "10 M", "99999999999T", "99999999999999999999"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["", "d", "30", "1y", "-1d", "99999999999999999999d", "9999999999999999w"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_have_the_largest_unit_that_fits() {
        for (seconds, text) in
            [(0, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago"), (DAY * 400, "400 d ago")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
