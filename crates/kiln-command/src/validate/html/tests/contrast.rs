//! Colour contrast, in light and in dark mode.

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../style.css");

/// Returns the colours of a block of the style sheet, each as red, green and blue.
fn colours<'a>(block: &'a str) -> BTreeMap<&'a str, [f64; 3]> {
    let colour = |part: &'a str| {
        let (name, hex) = part.split_once(": #")?;
        let channel = |at: usize| Some(f64::from(u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?) / 255.0);
        Some((name.split_once("--")?.1, [channel(0)?, channel(2)?, channel(4)?]))
    };
    block.split(';').filter_map(colour).collect()
}

/// Returns the WCAG 2 contrast ratio: 1 for the same colour, 21 for black on white.
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let linear =
        |channel: f64| if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) };
    let light =
        |[red, green, blue]: [f64; 3]| 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) + 0.05;
    let (a, b) = (light(a), light(b));
    a.max(b) / a.min(b)
}

#[test]
fn text_and_marks_stand_out_in_light_and_dark() {
    let (light, rest) = STYLE.split_once("@media screen and (prefers-color-scheme: dark)").unwrap();
    let dark = rest.split_once("}\n}").unwrap().0;
    for block in [light, dark] {
        let colours = colours(block);
        for text in ["ink", "soft", "kiln", "shown", "failed", "unknown"] {
            for background in ["page", "card"] {
                let found = contrast(colours[text], colours[background]);
                assert!(found >= 4.5, "{text} on {background}: {found:.2}");
            }
        }
        assert!(contrast(colours["ink"], colours["warning"]) >= 4.5);
        for mark in ["other", "plain", "reserved"] {
            let found = contrast(colours[mark], colours["card"]);
            assert!(found >= 3.0, "{mark}: {found:.2}");
        }
    }
}
