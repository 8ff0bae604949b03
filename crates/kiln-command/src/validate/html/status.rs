//! The status of a claim by word, shape and colour.

use kiln_validate::report::Status;
use maud::{Markup, html};

/// Returns the class of a status in the style sheet.
pub(super) fn class(status: Status) -> &'static str {
    match status {
        Status::Shown => "shown",
        Status::Failed => "failed",
        Status::NotShown => "unknown",
    }
}

pub(super) fn badge(status: Status) -> Markup {
    html! { span.status.(class(status)) { (shape(status)) (status.name()) } }
}

/// Draws a tick in a disc, a cross in a square, or an empty ring.
pub(super) fn shape(status: Status) -> Markup {
    html! {
        svg.shape.(class(status)) viewBox="0 0 16 16" aria-hidden="true" {
            @match status {
                Status::Shown => { circle.full cx="8" cy="8" r="8" {} path.sign d="M4.5 8.3 7 10.8 11.5 5.6" {} },
                Status::Failed => { rect.full width="16" height="16" rx="3" {} path.sign d="M5 5 11 11M11 5 5 11" {} },
                Status::NotShown => circle.ring cx="8" cy="8" r="6.5" {},
            }
        }
    }
}
