//! A figure: title, plots by device, legend, caption, and its numbers as a table.

use super::card::anchor;
use kiln_validate::report::{Outcome, Status};
use maud::{Markup, html};

pub(super) struct Figure {
    /// Anchor in links.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) caption: String,
    /// Class of each kind of mark, and its meaning.
    pub(super) legend: Vec<(&'static str, String)>,
    /// A plot for each device. Empty if there is no data.
    pub(super) panels: Vec<Panel>,
    pub(super) table: Table,
    /// The claims that provide its data.
    pub(super) claims: &'static [&'static str],
    /// The only device that they apply to, if there is one.
    pub(super) device: Option<&'static str>,
}

pub(super) struct Panel {
    pub(super) title: String,
    pub(super) drawing: Markup,
}

pub(super) struct Table {
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Vec<String>>,
}

impl Figure {
    pub(super) fn render(&self, claims: &[Outcome]) -> Markup {
        let doubtful: Vec<&Outcome> =
            claims.iter().filter(|claim| claim.status != Status::Shown && self.is_from(claim)).collect();
        html! {
            figure.card.wide[self.panels.len() != 1] id=(self.id) {
                h3 { (self.title) }
                @if self.panels.is_empty() {
                    p.missing { "This run has no data for this plot. To measure it: " code { (self.command()) } "." }
                } @else {
                    @if !self.legend.is_empty() { (self.key()) }
                    div.panels {
                        @for panel in &self.panels {
                            div.panel { h4 { (panel.title) } (panel.drawing) }
                        }
                    }
                    figcaption { (self.caption) }
                    @if !doubtful.is_empty() { (caution(&doubtful)) }
                    details { summary { "Numbers" } (self.table.render(self.title)) }
                }
            }
        }
    }

    fn command(&self) -> String {
        let device = self.device.map_or_else(String::new, |device| format!(" --device {device}"));
        format!("kiln validate{device} --only {}", self.claims.join(","))
    }

    fn is_from(&self, claim: &Outcome) -> bool {
        self.claims.contains(&claim.id.as_str())
    }

    fn key(&self) -> Markup {
        html! {
            ul.key {
                @for (look, text) in &self.legend {
                    li { svg.swatch.(look) viewBox="0 0 18 12" aria-hidden="true" { (swatch(look)) } (text) }
                }
            }
        }
    }
}

/// Warns about claims that are not shown: a plot must not say more than the claims do.
fn caution(claims: &[&Outcome]) -> Markup {
    html! {
        p.care {
            "Caution: "
            @for (index, claim) in claims.iter().enumerate() {
                @if index > 0 { ", " }
                a href={ "#" (anchor(&claim.device, &claim.id)) } { (claim.id) " on " (claim.device) } " " (claim.status.name())
            }
            "."
        }
    }
}

/// Draws a legend mark: a line with a dot or a square on it, or a bar.
fn swatch(look: &str) -> Markup {
    html! {
        @match look {
            "roof" => line.roof x1="0" x2="18" y1="6" y2="6" {},
            "limit" => { line.stem x1="9" x2="9" y1="3" y2="12" {} line.limit x1="4" x2="14" y1="3" y2="3" {} },
            "dot" => circle.dot cx="9" cy="6" r="4" {},
            "open" => circle.dot.open cx="9" cy="6" r="4" {},
            "kiln" => { line.kiln x1="0" x2="18" y1="6" y2="6" {} circle.dot cx="9" cy="6" r="3.5" {} },
            "other" => { line.other x1="0" x2="18" y1="6" y2="6" {} rect.square x="6" y="3" width="6" height="6" {} },
            look => rect.(look) x="1" y="2" width="16" height="8" rx="1.5" {},
        }
    }
}

impl Table {
    pub(super) fn render(&self, title: &str) -> Markup {
        html! {
            div.scroll tabindex="0" role="region" aria-label={ "Numbers: " (title) } {
                table.numbers {
                    thead { tr { @for column in self.columns { th scope="col" { (column) } } } }
                    tbody { @for row in &self.rows { tr { @for cell in row { td { (cell) } } } } }
                }
            }
        }
    }
}

/// Returns the unique devices of some points, in order.
pub(super) fn devices<'a, P>(points: &'a [P], device: impl Fn(&'a P) -> &'a str) -> Vec<&'a str> {
    let mut devices: Vec<&str> = Vec::new();
    for point in points {
        if !devices.contains(&device(point)) {
            devices.push(device(point));
        }
    }
    devices
}
