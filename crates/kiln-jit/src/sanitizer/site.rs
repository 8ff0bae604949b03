//! Instrumentation sites: places in a program that compiled code refers to by index.

use naga::Span;
use std::fmt::Write as _;

/// The kind of operation at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteKind {
    Read,
    Write,
    /// An atomic read or read-modify-write.
    Atomic,
    /// An atomic store.
    AtomicWrite,
    /// A condition of uniform control flow, or a barrier.
    Control,
    /// Arithmetic or an index computation.
    Compute,
}

/// The memory that an access is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A buffer that the program may write, by its position in the call context.
    Binding(u32),
    /// Workgroup memory.
    Workgroup,
    /// Memory that cannot race: variables of an invocation and read-only buffers.
    Untracked,
}

/// An instrumentation site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) kind: SiteKind,
    pub(crate) object: Object,
    /// Size of the access, and of its smallest scalar.
    pub(crate) bytes: u32,
    pub(crate) granularity: u32,
    /// Offset of the variable's first element in the object and distance between elements: in bytes, or in
    /// scalars for variables of an invocation. 0 if it is not an array.
    pub(crate) first: u32,
    pub(crate) stride: u32,
    /// Position in the source, from 1; 0 if unknown.
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Name of the variable; empty if there is none.
    pub(crate) name: String,
    /// Span in the source, until [`locate`] resolves it. Not stored.
    pub(crate) span: Span,
}

impl Site {
    /// A site that belongs to no variable.
    pub(crate) fn plain(kind: SiteKind, span: Span) -> Self {
        let (object, name) = (Object::Untracked, String::new());
        Self { kind, object, bytes: 0, granularity: 4, first: 0, stride: 0, line: 0, column: 0, name, span }
    }
}

/// Resolves spans to lines and columns.
pub(crate) fn locate(sites: &mut [Site], source: &str) {
    for site in sites {
        let Some(range) = site.span.to_range().filter(|range| source.is_char_boundary(range.start)) else { continue };
        let location = Span::from(range).location(source);
        (site.line, site.column) = (location.line_number, location.line_position);
    }
}

/// The encoding of each kind.
const SITE_KINDS: [(SiteKind, &str); 6] = [
    (SiteKind::Read, "r"),
    (SiteKind::Write, "w"),
    (SiteKind::Atomic, "a"),
    (SiteKind::AtomicWrite, "s"),
    (SiteKind::Control, "c"),
    (SiteKind::Compute, "f"),
];

/// Encodes sites as text, one line each.
pub(crate) fn encode(sites: &[Site]) -> String {
    let mut text = String::new();
    for site in sites {
        let kind = SITE_KINDS.iter().find(|(kind, _)| *kind == site.kind).map_or("", |(_, letter)| letter);
        let object = match site.object {
            Object::Binding(binding) => binding.to_string(),
            Object::Workgroup => "shared".to_string(),
            Object::Untracked => "own".to_string(),
        };
        let Site { bytes, granularity, first, stride, line, column, name, .. } = site;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{kind} {object} {bytes} {granularity} {first} {stride} {line} {column} {name}");
    }
    text
}

/// Decodes sites; `None` if the text is malformed.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<Site>> {
    std::str::from_utf8(text).ok()?.lines().map(decode_line).collect()
}

/// Decodes one site.
fn decode_line(line: &str) -> Option<Site> {
    // Names are WGSL identifiers, which have no spaces.
    let mut words = line.split(' ');
    let letter = words.next()?;
    let (kind, _) = *SITE_KINDS.iter().find(|(_, other)| *other == letter)?;
    let object = match words.next()? {
        "shared" => Object::Workgroup,
        "own" => Object::Untracked,
        binding => Object::Binding(binding.parse().ok()?),
    };
    let mut number = || words.next()?.parse::<u32>().ok();
    let (bytes, granularity, first, stride) = (number()?, number()?, number()?, number()?);
    let (line, column) = (number()?, number()?);
    // A site without a name ends with a space, which gives an empty word here.
    let name = words.next()?.to_string();
    // The shadow memory divides by the granularity.
    let is_valid = words.next().is_none() && matches!(granularity, 1 | 2 | 4);
    let site = Site { kind, object, bytes, granularity, first, stride, line, column, name, span: Span::UNDEFINED };
    is_valid.then_some(site)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_round_trip_through_their_encoding() {
        let site = |kind, object, name: &str| Site {
            kind,
            object,
            bytes: 12,
            granularity: 4,
            first: 16,
            stride: 8,
            line: 3,
            column: 7,
            name: name.to_string(),
            span: Span::UNDEFINED,
        };
        let sites = vec![
            site(SiteKind::Read, Object::Binding(3), "x"),
            site(SiteKind::Write, Object::Workgroup, "tile"),
            site(SiteKind::Atomic, Object::Untracked, ""),
            site(SiteKind::AtomicWrite, Object::Binding(0), "count"),
            site(SiteKind::Control, Object::Untracked, ""),
            site(SiteKind::Compute, Object::Untracked, "π"),
        ];
        let text = encode(&sites);
        assert_eq!(decode(text.as_bytes()), Some(sites));
        for bad in ["x 0 4 4 0 4 1 1 x\n", "r 0 4 3 0 4 1 1 x\n", "r 0 4 4 0 4 1\n", "r 0 4 4 0 4 1 1 x y\n"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(decode(&[0xff]), None);
    }
}
