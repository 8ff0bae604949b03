//! Similar names for error messages.

/// Maximum number of names in a message.
const MAX_NAMES: usize = 3;
/// Maximum length of names that are compared by edit distance.
const MAX_COMPARED_BYTES: usize = 200;

/// Lists similar names: with other layer prefixes, or with a small edit distance. Names with the same shape come
/// first.
pub(super) fn similar_names<'a>(
    name: &str,
    shape: Option<&[usize]>,
    all: impl Iterator<Item = (&'a str, &'a [usize])>,
) -> String {
    let mut found: Vec<(bool, usize, &str)> = all
        .filter_map(|(other, other_shape)| {
            let fits = shape.is_none_or(|shape| shape == other_shape);
            Some((!fits, dissimilarity(name, other)?, other))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().take(MAX_NAMES).map(|(_, _, name)| name).collect::<Vec<_>>().join(", ")
}

/// Returns how much two names differ: 0 if they differ only in leading path components, otherwise the edit distance; `None` if they are not
/// similar.
fn dissimilarity(name: &str, other: &str) -> Option<usize> {
    let is_path_suffix = |short: &str, long: &str| long.strip_suffix(short).is_some_and(|front| front.ends_with('.'));
    if is_path_suffix(name, other) || is_path_suffix(other, name) {
        return Some(0);
    }
    // The difference in length is a lower bound of the distance, so most names are rejected without computing it.
    let max_distance = (name.len() / 4).max(1);
    if name.len().max(other.len()) > MAX_COMPARED_BYTES || name.len().abs_diff(other.len()) > max_distance {
        return None;
    }
    Some(distance(name.as_bytes(), other.as_bytes())).filter(|distance| *distance <= max_distance)
}

/// Computes the Levenshtein distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    // One row of the table: `diagonal` is the previous row's entry that `row[j]` has replaced.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let least = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], least);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_other_layers_around_or_other_letters_are_similar() {
        let (one, other) = (vec![4, 2], vec![3]);
        let all = [
            ("bert.pooler.dense.weight", &one[..]),
            ("encoder.layer.0.LayerNorm.gamma", &other[..]),
            ("encoder.layer.0.output.weigth", &one[..]),
            ("x", &other[..]),
        ];
        let similar = |name, shape: Option<&[usize]>| similar_names(name, shape, all.into_iter());
        assert_eq!(similar("pooler.dense.weight", None), "bert.pooler.dense.weight");
        assert_eq!(similar("model.x", None), "x");
        assert_eq!(similar("encoder.layer.0.output.weight", Some(&one)), "encoder.layer.0.output.weigth");
        assert_eq!(similar("encoder.layer.0.LayerNorm.weight", None), "encoder.layer.0.LayerNorm.gamma");
        assert_eq!(similar("something.else.entirely", None), "");
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }

    #[test]
    fn names_of_the_same_shape_come_first() {
        let (one, other) = ([4, 2], [3]);
        let all = [("a.weight1", &other[..]), ("a.weight2", &one[..])];
        assert_eq!(similar_names("a.weight", Some(&one), all.into_iter()), "a.weight2, a.weight1");
    }
}
