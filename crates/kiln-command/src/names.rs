//! Suggestions for unknown names.

/// Returns the names of `all` that are similar to this one, the most similar first.
pub(crate) fn similar<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    // 0 for a one-letter name, because every other letter is at distance 1.
    let limit = (name.len() / 3).max(1).min(name.len().saturating_sub(1));
    let mut near: Vec<(usize, &str)> = all
        .filter(|known| known.len().abs_diff(name.len()) <= limit)
        .map(|known| (strsim::osa_distance(name, known), known))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Returns the end of an error message about an unknown name: similar names of `all`, or `otherwise`.
pub(crate) fn similar_or<'a>(name: &str, all: impl Iterator<Item = &'a str>, otherwise: &str) -> String {
    match &similar(name, all)[..] {
        [] => otherwise.to_string(),
        near => format!("similar: {}", near.join(", ")),
    }
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
