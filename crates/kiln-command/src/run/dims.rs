//! Sizes, shapes and times on the command line: `1000`, `64x32`, `4,1,1`, `0.5`.

use std::str::FromStr;
use std::time::Duration;

/// Lengths separated by `x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dims(pub(crate) Vec<u64>);

impl Dims {
    /// Returns the problem size along x, y and z. [`check_problem`](Self::check_problem) refuses more lengths.
    pub(super) fn extent(&self) -> (u64, u64, u64) {
        let along = |axis: usize| self.0.get(axis).copied().unwrap_or(1);
        (along(0), along(1), along(2))
    }

    /// Checks that there are at most three lengths, along x, y and z.
    pub(super) fn check_problem(&self) -> Result<(), String> {
        match self.0.len() {
            1..=3 => Ok(()),
            axes => Err(format!("expected a problem with one to three axes, found {axes}")),
        }
    }

    /// Returns the number of elements of this shape; `None` on 64-bit overflow.
    pub(super) fn elem_count(&self) -> Option<u64> {
        self.0.iter().try_fold(1u64, |all, axis| all.checked_mul(*axis))
    }

    /// Returns the shape of an array with one element per item of the problem: x is the last axis, which is contiguous.
    pub(super) fn reversed(&self) -> Vec<u64> {
        self.0.iter().rev().copied().collect()
    }
}

impl FromStr for Dims {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lengths = text.split('x').map(str::parse).collect::<Result<_, _>>();
        lengths.map(Self).map_err(|_| format!("expected lengths such as `1000` or `64x32`, found `{text}`"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workgroups(pub(super) [u32; 3]);

impl FromStr for Workgroups {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let counts: Option<Vec<u32>> = text.split(',').map(|count| count.parse().ok()).collect();
        match counts.as_deref() {
            Some(counts) if counts.contains(&0) => Err(format!("expected at least one workgroup, found `{text}`")),
            Some([x]) => Ok(Self([*x, 1, 1])),
            Some([x, y]) => Ok(Self([*x, *y, 1])),
            Some([x, y, z]) => Ok(Self([*x, *y, *z])),
            _ => Err(format!("expected one to three counts such as `4,1,1`, found `{text}`")),
        }
    }
}

/// Parses seconds above 0, for clap.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("expected seconds above 0 such as `10` or `0.5`, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_separated_by_x() {
        let table = [
            ("1000", Some((vec![1000], (1000, 1, 1)))),
            ("64x32", Some((vec![32, 64], (64, 32, 1)))),
            ("4x5x6", Some((vec![6, 5, 4], (4, 5, 6)))),
            ("0", Some((vec![0], (0, 1, 1)))),
        ];
        for (text, expected) in table {
            let dims = Dims::from_str(text).ok();
            assert_eq!(dims.map(|dims| (dims.reversed(), dims.extent())), expected, "{text}");
        }
        for text in ["", "x", "4x", "4,5", "-1", "1.5", "4X5", "99999999999999999999"] {
            assert!(Dims::from_str(text).is_err(), "{text}");
        }
        assert!(Dims(vec![1; 3]).check_problem().is_ok());
        assert!(Dims(vec![1; 4]).check_problem().is_err());
    }

    #[test]
    fn workgroups_left_out_are_one() {
        let table = [("4", Some([4, 1, 1])), ("4,2", Some([4, 2, 1])), ("4,2,3", Some([4, 2, 3])), ("4,2,3,1", None)];
        for (text, expected) in table.into_iter().chain([
            ("4x2", None),
            ("", None),
            ("-1", None),
            ("4294967296", None),
            ("0", None),
            ("4,0", None),
            ("4,4,0", None),
        ]) {
            assert_eq!(Workgroups::from_str(text).ok().map(|workgroups| workgroups.0), expected, "{text}");
        }
    }

    #[test]
    fn times_are_more_than_none() {
        let table = [("10", Some(10_000)), ("0.5", Some(500)), ("1e1", Some(10_000))];
        let none = ["0", "-1", "", "inf", "nan", "1e30", "1s"].map(|text| (text, None));
        for (text, expected) in table.into_iter().chain(none) {
            assert_eq!(parse_seconds(text).ok().map(|time| time.as_millis()), expected, "{text}");
        }
    }
}
