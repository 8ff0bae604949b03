//! Bars with their names and values above them, which need no room at their side.

use super::svg::{WIDTH, px};
use maud::{Markup, html};

/// Room for a bar and the text above it.
pub(super) const ROW: f64 = 36.0;

pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: String,
    /// How long it is, from 0 to 1.
    pub(super) share: f64,
    /// How it looks.
    pub(super) look: &'static str,
}

pub(super) fn bars(top: f64, bars: &[Bar]) -> Markup {
    html! {
        @for (index, bar) in bars.iter().enumerate() {
            @let y = top + index as f64 * ROW;
            text.name x="0" y=(px(y + 12.0)) { (bar.name) }
            text.name.value.end x=(WIDTH) y=(px(y + 12.0)) { (bar.value) }
            // So that something is there to see.
            rect.(bar.look) x="0" y=(px(y + 18.0)) width=(px((bar.share * WIDTH).max(2.0))) height="12" rx="1.5" {}
        }
    }
}
