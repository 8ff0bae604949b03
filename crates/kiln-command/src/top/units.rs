//! Formats numbers for narrow columns.

use crate::terminal::{self, digits, scale};

/// Formats a count: `812`, `1.23 k`, `45.6 M`.
pub(super) fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", " k", " M", " G", " T", " P", " E"])
}

/// Formats bytes: `812 B`, `1.23 KiB`, `45.6 MiB`.
pub(super) fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// Formats bytes or operations per second, in billions: `0.012`, `1.23`, `123`.
pub(super) fn billions(number: Option<f64>) -> String {
    number.map_or_else(unknown, |number| match number / 1e9 {
        small if small < 0.1 => format!("{small:.3}"),
        number => digits(number),
    })
}

/// Formats a fraction: `0.0 %`, `99.1 %`, `100 %`.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(unknown, |share| match 100.0 * share {
        // A fraction below 1 is never rounded to 100 %.
        almost if (99.95..100.0).contains(&almost) => "99.9 %".to_string(),
        whole if whole >= 100.0 => format!("{whole:.0} %"),
        part => format!("{part:.1} %"),
    })
}

/// Formats a time: `812 ns`, `1.23 µs`, `45.6 ms`, `7.89 s`.
pub(super) fn seconds(time: Option<f64>) -> String {
    time.map_or_else(unknown, terminal::seconds)
}

/// Formats a rate, or a placeholder if it is unknown.
pub(super) fn rate(number: Option<f64>) -> String {
    number.map_or_else(unknown, |number| format!("{}/s", count(number)))
}

/// Returns the placeholder for an unknown number.
pub(super) fn unknown() -> String {
    "-".to_string()
}

/// Truncates a text to this many characters, with an ellipsis.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn scaled(number: f64, step: f64, units: &[&'static str]) -> String {
    let (factor, unit) = scale(number.max(0.0), step, units);
    let number = number.max(0.0) / factor;
    let number = if factor == 1.0 && number.fract() == 0.0 { format!("{number:.0}") } else { digits(number) };
    format!("{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (number, text) in
            [(0.0, "0"), (7.25, "7.25"), (812.0, "812"), (999.6, "1.00 k"), (1234.0, "1.23 k"), (4.56e7, "45.6 M")]
        {
            assert_eq!(count(number), text);
        }
        for (number, text) in
            [(0, "0 B"), (1000, "0.98 KiB"), (1024, "1.00 KiB"), (3 << 30, "3.00 GiB"), (u64::MAX, "16.0 EiB")]
        {
            assert_eq!(bytes(number), text);
        }
        for (time, text) in [(0.0, "0.00 ns"), (1.5e-6, "1.50 µs"), (0.0456, "45.6 ms"), (120.0, "120 s")] {
            assert_eq!(seconds(Some(time)), text);
        }
        for (share, text) in [(0.0, "0.0 %"), (0.5, "50.0 %"), (0.9999, "99.9 %"), (1.0, "100 %")] {
            assert_eq!(percent(Some(share)), text);
        }
        assert_eq!(
            (billions(Some(1.2e7)), billions(Some(2.5e10)), billions(None)),
            ("0.012".into(), "25.0".into(), "-".into())
        );
        assert_eq!((rate(Some(1500.0)), rate(None)), ("1.50 k/s".into(), "-".into()));
        assert_eq!(
            (shorten("matmul", 6), shorten("softmax", 6), shorten("a", 0)),
            ("matmul".into(), "softm…".into(), "…".into())
        );
    }
}
