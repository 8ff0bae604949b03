//! Names that were meant: what is said about one that is not known.

/// Names of `all` that are like this one, the most similar first.
pub(crate) fn similar<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    // Of a single letter nothing would be left.
    let limit = (name.len() / 3).max(1).min(name.len().saturating_sub(1));
    let mut near: Vec<(usize, &str)> = all
        .filter(|known| known.len().abs_diff(name.len()) <= limit)
        .map(|known| (distance(name, known), known))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Letters that are put in, left out or replaced between two names; two that are swapped count as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_those_with_few_changes() {
        let names = ["relu", "gelu", "silu", "sum", "softmax", "log_softmax"];
        let table: [(&str, &[&str]); 6] = [
            ("rleu", &["relu"]),
            ("relu6", &["relu"]),
            ("sotfmax", &["softmax"]),
            ("x", &[]),
            ("", &[]),
            ("frobnicate", &[]),
        ];
        for (name, expected) in table {
            assert_eq!(similar(name, names.into_iter()), expected, "{name}");
        }
        assert!(similar(&"x".repeat(60_000), names.into_iter()).is_empty());
    }
}
