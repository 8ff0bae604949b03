//! Bars with their names and values above them, which saves horizontal space.

use super::svg::{WIDTH, px};
use maud::{Markup, html};

/// Height of a bar with the text above it.
pub(super) const ROW: f64 = 36.0;

pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: String,
    /// Relative length, from 0 to 1.
    pub(super) share: f64,
    /// Class in the style sheet.
    pub(super) look: &'static str,
}

pub(super) fn bars(top: f64, bars: &[Bar]) -> Markup {
    html! {
        @for (index, bar) in bars.iter().enumerate() {
            @let y = top + index as f64 * ROW;
            text.name x="0" y=(px(y + 12.0)) { (bar.name) }
            text.name.value.end x=(WIDTH) y=(px(y + 12.0)) { (bar.value) }
            // At least 2 units, so that the bar is visible.
            rect.(bar.look) x="0" y=(px(y + 18.0)) width=(px((bar.share * WIDTH).max(2.0))) height="12" rx="1.5" {}
        }
    }
}
