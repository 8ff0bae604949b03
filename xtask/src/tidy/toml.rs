//! As much of TOML as a manifest of this workspace uses: headers, and keys with their values.
//!
//! A full parser drops what the rules are about: comments, and the line a key stands on.

/// A `[section]` line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) line: usize,
}

/// A `key = value` line, with the lines its value goes on for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Empty above the first header.
    pub(super) section: String,
    /// As written: it may be dotted.
    pub(super) key: String,
    /// Without spaces, line breaks and comments outside of strings.
    pub(super) value: String,
    pub(super) line: usize,
    /// The line directly above is a comment with words in it.
    pub(super) has_comment: bool,
}

/// What a manifest says, in the order of its lines.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) headers: Vec<Header>,
    pub(super) entries: Vec<Entry>,
}

impl Manifest {
    pub(super) fn parse(text: &str) -> Manifest {
        let mut manifest = Manifest::default();
        let mut section = String::new();
        let mut has_comment = false;
        let mut lines = text.lines().enumerate();
        while let Some((index, raw)) = lines.next() {
            let line = condensed(raw);
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.to_string();
                manifest.headers.push(Header { name: section.clone(), line: index + 1 });
            } else if let Some((key, value)) = line.split_once('=') {
                let mut value = value.to_string();
                while is_open(&value)
                    && let Some((_, more)) = lines.next()
                {
                    value.push_str(&condensed(more));
                }
                manifest.entries.push(Entry {
                    section: section.clone(),
                    key: key.replace('"', ""),
                    value,
                    line: index + 1,
                    has_comment,
                });
            }
            let comment = raw.trim().strip_prefix('#');
            has_comment = comment.is_some_and(|words| !words.trim().is_empty());
        }
        manifest
    }
}

impl Entry {
    /// Whether this entry sets `path` to the value, as `a.b.c = v` or as `a.b = { c = v }`.
    pub(super) fn sets(&self, path: &str, value: &str) -> bool {
        let own = [self.section.as_str(), self.key.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(".");
        match path.strip_prefix(own.as_str()) {
            Some("") => self.value == value,
            Some(rest) => rest.strip_prefix('.').is_some_and(|key| self.field(key) == Some(value)),
            None => false,
        }
    }

    /// The text of a field of an inline table, up to the next comma: enough for plain values.
    pub(super) fn field(&self, key: &str) -> Option<&str> {
        let fields = self.value.strip_prefix('{')?.strip_suffix('}')?;
        fields
            .split(',')
            .filter_map(|field| field.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }
}

/// The line without what has no meaning: spaces and a comment, unless they are in a string.
fn condensed(line: &str) -> String {
    let mut kept = String::new();
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '#' => break,
            None if c.is_whitespace() => continue,
            _ => {}
        }
        kept.push(c);
    }
    kept
}

/// Whether a list or an inline table of the value goes on in the next line.
fn is_open(value: &str) -> bool {
    let count = |brackets: &[char]| value.matches(brackets).count();
    count(&['[', '{']) > count(&[']', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_section_key_value_line_and_comment() {
        let text = "\
top = 1
[a.'cfg(x)'.b] # header
# Why.
key.sub = \"a # b\" # note

#
list = [
  \"one\", # first
  \"two\",
]
last = { x = true, y = [\"z\"] }
";
        let manifest = Manifest::parse(text);
        assert_eq!(manifest.headers, [Header { name: "a.'cfg(x)'.b".to_string(), line: 2 }]);
        let rows: Vec<_> = manifest
            .entries
            .iter()
            .map(|e| (e.section.as_str(), e.key.as_str(), e.value.as_str(), e.line, e.has_comment))
            .collect();
        let section = "a.'cfg(x)'.b";
        assert_eq!(
            rows,
            [
                ("", "top", "1", 1, false),
                (section, "key.sub", "\"a # b\"", 4, true),
                (section, "list", "[\"one\",\"two\",]", 7, false),
                (section, "last", "{x=true,y=[\"z\"]}", 11, false),
            ]
        );
    }

    #[test]
    fn value_is_found_under_every_spelling_of_its_path() {
        for text in ["[a]\nb.c = true", "[a.b]\nc = true", "a.b.c = true", "[a]\nb = { d = 1, c = true }"] {
            assert!(Manifest::parse(text).entries[0].sets("a.b.c", "true"), "{text}");
        }
        for text in ["[a]\nb.c = false", "[a]\nbb.c = true", "[a]\nb = { d = true }", "[a]\nb = true"] {
            assert!(!Manifest::parse(text).entries[0].sets("a.b.c", "true"), "{text}");
        }
    }
}
