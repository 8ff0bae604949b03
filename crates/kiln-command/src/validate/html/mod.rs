//! The report for a browser: one self-contained file with inline style and plots, and without scripts.
//!
//! `verdict` is its head, `card` the table of claims, `figure` the frame of every plot. Each plot has its own file; `svg` and `bars` are
//! shared drawing code. All numbers are those of the report.

mod bars;
mod card;
mod figure;
mod fusion;
mod matmul;
mod noise;
mod number;
mod pool;
mod roofline;
mod status;
mod svg;
#[cfg(test)]
mod tests;
mod tiers;
mod verdict;

use super::Found;
use figure::Figure;
use maud::{DOCTYPE, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// Renders the whole page. Numbers of a debug build are labelled as such.
pub(super) fn page(found: &Found<'_>, is_debug: bool) -> String {
    let report = found.report;
    let plots: [fn(&kiln_validate::Report) -> Figure; 6] =
        [roofline::figure, matmul::figure, tiers::figure, pool::figure, fusion::figure, noise::figure];
    let plots = plots.map(|plot| plot(report));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Kiln validation: " (report.summary.shown) " shown, " (report.summary.failed) " failed" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (verdict::head(report, found.regressions, is_debug))
                    nav aria-label="Contents" {
                        a href="#claims" { "Score card" }
                        @for plot in &plots { a href={ "#" (plot.id) } { (plot.title) } }
                    }
                    (card::card(report))
                    section id="plots" {
                        h2 { "Plots" }
                        div.plots { @for plot in &plots { (plot.render(&report.claims)) } }
                    }
                    footer { "Made by " code { "kiln validate --report" } ". The same numbers for programs: " code { "kiln validate --json" } "." }
                }
            }
        }
    };
    // Names come from drivers, and control characters are invalid in HTML.
    page.into_string().replace(|c: char| c.is_control() && c != '\n', "?")
}
