//! Reads the Prometheus text format. Whatever is not in it is left out: the text comes from elsewhere.

use std::collections::BTreeMap;

/// A line with a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// The samples of a text, without those that are not understood.
pub(super) fn parse(text: &str) -> Vec<Sample> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| !is_name(c)).filter(|end| *end > 0)?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (BTreeMap::new(), rest),
    };
    // A time may follow the value.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_string(), labels, value })
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start())?;
        labels.insert(name.trim().to_string(), value);
        rest = after;
    }
}

/// A value in quotes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.strip_prefix('"')?.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(name: &str, labels: &[(&str, &str)], value: f64) -> Sample {
        let labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Sample { name: name.to_string(), labels, value }
    }

    #[test]
    fn samples_are_read_and_nonsense_is_left_out() {
        let text = "# HELP a Help.\n# TYPE a counter\na 1\na{x=\"1\"} 2.5\na{ x = \"1\" , y=\"a \\\"b\\\" \\\\ \\n{},\" , } 3e-9 1700\n\
                    b_total{} +Inf\n\n{x=\"1\"} 1\na{x=1} 1\na{x=\"1\" 1\na{x=\"1\"}\na one\n a 1\nc:d 4\r\n";
        assert_eq!(
            parse(text),
            [
                of("a", &[], 1.0),
                of("a", &[("x", "1")], 2.5),
                of("a", &[("x", "1"), ("y", "a \"b\" \\ \n{},")], 3e-9),
                of("b_total", &[], f64::INFINITY),
                of("c:d", &[], 4.0),
            ]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&String::from_utf8_lossy(&bytes));
        }

        /// Pieces of the format in any order come further than bytes.
        #[test]
        fn any_pieces_are_survived(pieces in proptest::collection::vec("[a{}\"=, \\\\\n1.#-]{1,4}", 0..60)) {
            let text = pieces.concat();
            prop_assert!(parse(&text).len() <= text.lines().count());
        }

        #[test]
        fn what_is_written_is_read(value in "\\PC*", number in any::<f64>().prop_filter("a number", |n| !n.is_nan())) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let found = parse(&format!("name{{label=\"{escaped}\"}} {number}\n"));
            prop_assert_eq!(found, vec![of("name", &[("label", &value)], number)]);
        }
    }
}
