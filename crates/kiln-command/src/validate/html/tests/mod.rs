//! The page of a small report with partly measured and partly invented numbers, of an empty one, and of a malicious one.

mod browser;
mod contrast;

use super::super::Found;
use super::page;
use kiln_validate::Report;
use kiln_validate::baseline::Regression;
use kiln_validate::report::{Plots, Status, Summary};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::BTreeSet;

fn fixture() -> Report {
    serde_json::from_str(include_str!("fixture.json")).unwrap()
}

fn render(report: &Report) -> String {
    page(&Found { report, regressions: &[], trends: &[] }, false)
}

/// Converts the page to XML, which is stricter than HTML: every tag is closed, every text escaped. Only elements of the head have no end tag.
fn xml(page: &str) -> String {
    let (head, body) = page.split_once("<title>").unwrap();
    let ends = head.split("<meta").enumerate().map(|(index, part)| match index {
        0 => part.to_string(),
        _ => format!("<meta{}", part.replacen('>', "/>", 1)),
    });
    format!("{}<title>{body}", ends.collect::<String>())
}

fn parse(xml: &str) -> Document<'_> {
    Document::parse_with_options(xml, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }).unwrap()
}

fn text(node: Node<'_, '_>) -> String {
    let parts: Vec<&str> = node.descendants().filter(Node::is_text).filter_map(|part| part.text()).collect();
    parts.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn elements<'a, 'i>(document: &'a Document<'i>, name: &str) -> Vec<Node<'a, 'i>> {
    document.descendants().filter(|node| node.has_tag_name(name)).collect()
}

fn by_id<'a, 'i>(document: &'a Document<'i>, id: &str) -> Node<'a, 'i> {
    document.descendants().find(|node| node.attribute("id") == Some(id)).unwrap_or_else(|| panic!("no `{id}`"))
}

/// Returns the page as a screen reader presents it: a golden that styling does not change.
fn outline(document: &Document<'_>) -> String {
    let mut out = String::new();
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        let line = match name {
            "title" | "h1" | "h2" | "h3" | "h4" | "dt" | "dd" | "summary" | "figcaption" | "p" | "li" | "th" | "td" => {
                // Checks and numbers are below their summary, and many.
                if node.ancestors().any(|above| above.has_tag_name("details")) && name != "summary" {
                    continue;
                }
                text(node)
            }
            "svg" => match node.attribute("aria-label") {
                Some(label) => label.to_string(),
                None => continue,
            },
            _ => continue,
        };
        out += &format!("{name}: {line}\n");
    }
    out.replace('\u{a0}', " ")
}

#[test]
fn outline_of_the_page() {
    let page = xml(&render(&fixture()));
    insta::assert_snapshot!("outline", outline(&parse(&page)));
}

/// The page is one file: nothing is loaded, nothing runs, and all links resolve.
#[test]
fn page_is_one_file_and_its_links_lead_somewhere() {
    let page = render(&fixture());
    for outside in ["http:", "https:", "url(", "@import", "src=", "<script", "<link", "<iframe", "onload"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let page = xml(&page);
    let document = parse(&page);
    let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    let links: Vec<&str> = document.descendants().filter_map(|node| node.attribute("href")).collect();
    assert!(links.len() > 7);
    for link in links {
        assert!(link.strip_prefix('#').is_some_and(|id| ids.contains(&id)), "{link}");
    }
}

/// The page has the same information on each claim as the terminal and the JSON.
#[test]
fn every_claim_is_in_the_card_with_its_numbers() {
    let report = fixture();
    let page = xml(&render(&report));
    let document = parse(&page);
    for claim in &report.claims {
        let row = by_id(&document, &format!("{}-{}", claim.device, claim.id));
        let cells: Vec<String> = row.children().filter(Node::is_element).map(text).collect();
        assert_eq!(cells[0], claim.status.name());
        for part in [&claim.title, &claim.id, &claim.reason] {
            assert!(cells[1].contains(part.as_str()), "{part} in {}", cells[1]);
        }
        let checks = row.descendants().filter(|node| node.has_tag_name("li")).count();
        assert_eq!(checks, claim.checks.len());
        assert!(cells[2].contains("at least"));
        assert!(cells[3].contains(&claim.unit), "{}", cells[3]);
        assert_eq!(cells[4], claim.comparison);
        let range = row.descendants().find(|node| node.attribute("role") == Some("img"));
        assert_eq!(range.is_some(), claim.ratio.is_some());
    }
}

#[test]
fn every_plot_has_a_title_a_caption_words_and_its_numbers() {
    let report = fixture();
    let page = xml(&render(&report));
    let document = parse(&page);
    let figures = elements(&document, "figure");
    assert_eq!(figures.len(), 6);
    for figure in figures {
        let has = |name: &str| figure.descendants().any(|node| node.has_tag_name(name) && !text(node).is_empty());
        assert!(["h3", "h4", "figcaption", "details", "table"].into_iter().all(has), "{}", text(figure));
        let drawings: Vec<Node<'_, '_>> =
            figure.descendants().filter(|node| node.attribute("role") == Some("img")).collect();
        assert!(!drawings.is_empty());
        for drawing in drawings {
            assert!(drawing.attribute("aria-label").is_some_and(|label| label.len() > 20));
            assert!(drawing.descendants().any(|node| node.has_tag_name("text")));
        }
    }
    let rows = |id: &str| by_id(&document, id).descendants().filter(|node| node.has_tag_name("tr")).count() - 1;
    let Plots { roofline, matmul, pool, tiers, fusion } = &report.plots;
    assert_eq!(
        ["roofline", "products", "pool", "tiers", "fusion", "noise"].map(rows),
        [roofline.len(), matmul.len(), pool.len(), tiers.len(), fusion.len(), report.machine.noise.runs.len()]
    );
}

/// Invariant 5: a number whose checks failed does not look like a result.
#[test]
fn kernels_whose_claims_are_not_shown_are_open_dots() {
    let dots = |report: &Report| {
        let page = xml(&render(report));
        let document = parse(&page);
        let figure = by_id(&document, "roofline");
        let drawings = figure.descendants().filter(|node| node.attribute("role") == Some("img"));
        let circles: Vec<Node<'_, '_>> =
            drawings.flat_map(|drawing| drawing.descendants()).filter(|node| node.has_tag_name("circle")).collect();
        let care = figure.children().find(|node| node.attribute("class") == Some("care")).map(text);
        let open = circles.iter().filter(|circle| circle.attribute("class") == Some("dot open")).count();
        (open, circles.len() - open, care.unwrap_or_default())
    };
    let mut report = fixture();
    let (open, full, care) = dots(&report);
    assert_eq!((open, full), (8, 0), "no claim of these kernels is shown, and some did not run");
    assert!(care.contains("elementwise on cpu not shown") && care.contains("matmul on cpu failed"), "{care}");
    report.claims.iter_mut().for_each(|claim| claim.status = Status::Shown);
    let (open, full, care) = dots(&report);
    assert_eq!((open, full, care.as_str()), (5, 3, ""));
}

#[test]
fn text_from_anywhere_stays_text() {
    const BAD: &str = "<script>alert('&')</script>\"><img src=x onerror=y>\u{7}";
    let mut report = fixture();
    report.version = BAD.to_string();
    let machine = &mut report.machine;
    (machine.processor, machine.simd, machine.system) = (Some(BAD.to_string()), BAD.to_string(), BAD.to_string());
    machine.noise.verdict = BAD.to_string();
    machine.devices[1].name = BAD.to_string();
    machine.devices[1].driver = Some(BAD.to_string());
    let claim = &mut report.claims[0];
    (claim.reason, claim.title, claim.unit) = (BAD.to_string(), BAD.to_string(), BAD.to_string());
    (claim.comparison, claim.id, claim.device) = (BAD.to_string(), BAD.to_string(), BAD.to_string());
    claim.checks[0].detail = BAD.to_string();
    report.plots.roofline[0].id = BAD.to_string();
    report.plots.matmul[0].library = BAD.to_string();
    report.plots.tiers[0].tier = BAD.to_string();
    report.plots.fusion[0].form = BAD.to_string();
    report.plots.pool[0].device = BAD.to_string();
    report.limits.bandwidths[0].pattern = BAD.to_string();
    let reason = BAD.to_string();
    let regression = Regression { id: BAD.to_string(), device: BAD.to_string(), before: 2.0, now: None, reason };
    let page = page(&Found { report: &report, regressions: &[regression], trends: &[] }, true);
    assert!(!page.contains("<script") && !page.contains("<img"));
    let page = xml(&page);
    let document = parse(&page);
    let shown = BAD.replace('\u{7}', "?");
    let texts =
        document.descendants().filter(|node| node.is_text() && node.text().is_some_and(|text| text.contains(&shown)));
    assert!(texts.count() > 15);
}

#[test]
fn plots_without_data_say_what_measures_them() {
    let mut report = fixture();
    report.plots = Plots::default();
    (report.claims, report.summary) = (Vec::new(), Summary::default());
    report.machine.noise.runs = Vec::new();
    let page = xml(&render(&report));
    let document = parse(&page);
    let mut missing = 0;
    for figure in elements(&document, "figure") {
        let Some(command) = figure.descendants().find(|node| node.has_tag_name("code")).map(text) else { continue };
        missing += 1;
        let words: Vec<&str> = command.split(' ').collect();
        let named: Vec<&str> = words[words.len() - 1].split(',').collect();
        let device = words.windows(2).find(|pair| pair[0] == "--device").map(|pair| pair[1]);
        for name in named {
            let claim = kiln_validate::claims().iter().find(|claim| claim.id == name);
            let target = claim.unwrap_or_else(|| panic!("no claim `{name}`: {command}")).target;
            let only = match (target.cpu, target.gpu) {
                (Some(_), None) => Some("cpu"),
                (None, Some(_)) => Some("gpu"),
                _ => None,
            };
            assert_eq!(device, only, "{command}");
        }
    }
    assert_eq!(missing, 5, "noise and limits are always there");
}

#[test]
fn missing_numbers_are_a_dash() {
    let mut report = fixture();
    let claim = &mut report.claims[0];
    (claim.ratio, claim.interval, claim.value) = (Some(f64::NAN), Some([f64::NAN; 2]), Some(f64::INFINITY));
    (claim.median, claim.spread, claim.target) = (Some(f64::NAN), Some(f64::NAN), 0.0);
    let claim = &mut report.claims[1];
    (claim.ratio, claim.interval) = (Some(2.0), Some([f64::NAN, f64::INFINITY]));
    for point in &mut report.plots.roofline {
        (point.flops_per_s, point.limit_flops_per_s) = (f64::NAN, f64::INFINITY);
    }
    report.plots.roofline[0].flops_per_s = 1e9;
    report.plots.matmul[0].kiln_flops_per_s = f64::INFINITY;
    report.plots.tiers[0].seconds = f64::NAN;
    report.plots.tiers[1].seconds = 0.0;
    report.plots.fusion[0].seconds = f64::NAN;
    report.plots.fusion[2].seconds = 0.0;
    report.plots.pool.truncate(1);
    report.limits.devices[1].peak_flops_per_s = 0.0;
    report.limits.read_bytes_per_s = f64::NAN;
    report.machine.noise.runs = vec![f64::NAN, 1.0, f64::INFINITY];
    (report.machine.noise.spread, report.machine.noise.worst) = (f64::NAN, f64::INFINITY);
    report.took_s = f64::NAN;
    let page = render(&report);
    for wrong in ["NaN", "inf"] {
        let at = page.split_once("</style>").unwrap().1;
        assert!(!at.contains(wrong), "{wrong}: {}", &at[at.find(wrong).unwrap_or(0).saturating_sub(200)..][..400]);
    }
    parse(&xml(&page));
}
