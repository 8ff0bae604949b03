//! Places in a program that are checked, as its code knows them: by number.

use naga::Span;
use std::fmt::Write as _;

/// What happens at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    /// A read, or a change of what is there, while others may do the same.
    Atomic,
    /// A write, while others may do the same.
    AtomicWrite,
    /// Control of the whole work-group, or a barrier.
    Control,
    /// Arithmetic.
    Compute,
}

/// What an access is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A buffer that the program may write, by its place among the bindings.
    Bound(u32),
    /// The memory of the work-group.
    Shared,
    /// What nobody else can touch.
    Own,
}

/// A checked place of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) what: Use,
    pub(crate) object: Object,
    /// Bytes of the access, and of its smallest scalar.
    pub(crate) bytes: u32,
    pub(crate) grain: u32,
    /// Where the elements of the variable begin in the object, and how far it is from one to the next: in bytes, or in scalars where it is an
    /// invocation's own. 0 where it is no array.
    pub(crate) first: u32,
    pub(crate) stride: u32,
    /// In the source, from 1; 0 where that is not known.
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// The variable; empty where there is none.
    pub(crate) name: String,
    /// The bytes in the source, until [`locate`] found the line.
    pub(crate) span: Span,
}

impl Site {
    /// A site that belongs to no variable.
    pub(crate) fn plain(what: Use, span: Span) -> Self {
        let (object, name) = (Object::Own, String::new());
        Self { what, object, bytes: 0, grain: 4, first: 0, stride: 0, line: 0, column: 0, name, span }
    }
}

/// Finds the line and column of each site.
pub(crate) fn locate(sites: &mut [Site], source: &str) {
    for site in sites {
        let Some(range) = site.span.to_range().filter(|range| source.is_char_boundary(range.start)) else { continue };
        let place = Span::from(range).location(source);
        (site.line, site.column) = (place.line_number, place.line_position);
    }
}

/// The letters of uses in the stored form.
const USES: [(Use, &str); 6] = [
    (Use::Read, "r"),
    (Use::Write, "w"),
    (Use::Atomic, "a"),
    (Use::AtomicWrite, "s"),
    (Use::Control, "c"),
    (Use::Compute, "f"),
];

/// The stored form: a line for each.
pub(crate) fn encode(sites: &[Site]) -> String {
    let mut text = String::new();
    for site in sites {
        let what = USES.iter().find(|(what, _)| *what == site.what).map_or("", |(_, letter)| letter);
        let object = match site.object {
            Object::Bound(place) => place.to_string(),
            Object::Shared => "shared".to_string(),
            Object::Own => "own".to_string(),
        };
        let Site { bytes, grain, first, stride, line, column, name, .. } = site;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what} {object} {bytes} {grain} {first} {stride} {line} {column} {name}");
    }
    text
}

/// The sites of a stored form; `None` where it is none.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<Site>> {
    std::str::from_utf8(text).ok()?.lines().map(decode_line).collect()
}

fn decode_line(line: &str) -> Option<Site> {
    let mut words = line.split(' ');
    let letter = words.next()?;
    let (what, _) = *USES.iter().find(|(_, other)| *other == letter)?;
    let object = match words.next()? {
        "shared" => Object::Shared,
        "own" => Object::Own,
        place => Object::Bound(place.parse().ok()?),
    };
    let mut number = || words.next()?.parse::<u32>().ok();
    let (bytes, grain, first, stride) = (number()?, number()?, number()?, number()?);
    let (line, column) = (number()?, number()?);
    let name = words.next()?.to_string();
    let is_sound = words.next().is_none() && matches!(grain, 1 | 2 | 4);
    let site = Site { what, object, bytes, grain, first, stride, line, column, name, span: Span::UNDEFINED };
    is_sound.then_some(site)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_come_back_from_their_stored_form() {
        let site = |what, object, name: &str| Site {
            what,
            object,
            bytes: 12,
            grain: 4,
            first: 16,
            stride: 8,
            line: 3,
            column: 7,
            name: name.to_string(),
            span: Span::UNDEFINED,
        };
        let sites = vec![
            site(Use::Read, Object::Bound(3), "x"),
            site(Use::Write, Object::Shared, "tile"),
            site(Use::Atomic, Object::Own, ""),
            site(Use::AtomicWrite, Object::Bound(0), "count"),
            site(Use::Control, Object::Own, ""),
            site(Use::Compute, Object::Own, "π"),
        ];
        let text = encode(&sites);
        assert_eq!(decode(text.as_bytes()), Some(sites));
        for bad in ["x 0 4 4 0 4 1 1 x\n", "r 0 4 3 0 4 1 1 x\n", "r 0 4 4 0 4 1\n", "r 0 4 4 0 4 1 1 x y\n"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(decode(&[0xff]), None);
    }
}
