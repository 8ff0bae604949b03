//! The report for a terminal. Written with colours; `anstream` removes them if the output does not support them.

use super::report::{Check, Report, Section, State};
use crate::terminal::{count, plain, styled, word};
use clap::builder::styling::{AnsiColor, Style};

const STATE_WIDTH: usize = "problem".len();

/// The sections with their headings, in the order of the report.
const SECTIONS: [(Section, &str); 5] = [
    (Section::Devices, "Devices"),
    (Section::Default, "Default device"),
    (Section::Drivers, "GPU drivers"),
    (Section::Processor, "Processor"),
    (Section::Cache, "Cache directory"),
];

pub(super) fn render(report: &Report) -> String {
    let facts = &report.facts;
    let name_width = report.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let system = facts.system.name.as_deref().unwrap_or(match facts.system.os.as_str() {
        "linux" => "Linux",
        "macos" => "macOS",
        "windows" => "Windows",
        other => other,
    });
    let mut out = format!("kiln {} on {}, {}\n", facts.version, plain(system), facts.system.arch);
    for (section, title) in SECTIONS {
        let checks: Vec<&Check> = report.checks.iter().filter(|check| check.section == section).collect();
        if !checks.is_empty() {
            out.push_str(&format!("\n{}\n", styled(Style::new().bold(), title)));
        }
        for check in checks {
            push_check(&mut out, check, name_width);
        }
    }
    out.push('\n');
    out.push_str(&verdict(report));
    out
}

fn push_check(out: &mut String, check: &Check, name_width: usize) {
    let state = styled(style(check.state), &format!("{:STATE_WIDTH$}", word(&check.state)));
    let indent = " ".repeat(2 + STATE_WIDTH + 2 + name_width + 2);
    out.push_str(&format!("  {state}  {:name_width$}  {}\n", plain(&check.name), plain(&check.message)));
    for detail in &check.details {
        out.push_str(&format!("{indent}{}\n", plain(detail)));
    }
    if let Some(fix) = &check.fix {
        out.push_str(&format!("{indent}{} {}\n", styled(Style::new().bold(), "fix:"), plain(fix)));
    }
}

fn verdict(report: &Report) -> String {
    let problems = report.checks.iter().filter(|check| check.state == State::Problem).count();
    let default = report.facts.default.id.as_deref();
    match (problems, default) {
        (0, Some(id)) => format!("No problems found; the default device is {id}.\n"),
        _ => format!("{} found.\n", count(problems as u64, "problem")),
    }
}

fn style(state: State) -> Style {
    match state {
        State::Ok => AnsiColor::Green.on_default(),
        State::Note => AnsiColor::Yellow.on_default(),
        State::Problem => AnsiColor::Red.on_default().bold(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machines;
    use crate::doctor::report::Facts;
    use anstream::adapter::strip_str;

    fn plain_text(facts: Facts) -> String {
        strip_str(&render(&Report::new(facts))).to_string()
    }

    /// The doctor says which device serves and why, and what to install.
    #[test]
    fn reports_of_invented_machines() {
        let table = [
            ("mac", machines::mac()),
            ("nvidia", machines::nvidia()),
            ("nvidia_without_driver", machines::nvidia_without_driver()),
            ("lavapipe", machines::lavapipe()),
            ("nothing", machines::nothing()),
            ("refused", machines::refused()),
            ("broken", machines::broken()),
        ];
        for (name, facts) in table {
            insta::assert_snapshot!(name, plain_text(facts));
        }
    }

    #[test]
    fn states_are_coloured_and_nothing_else_steers_the_terminal() {
        let mut facts = machines::refused();
        facts.devices[0].info.name = "\u{1b}[31mred\u{7}\nherring".into();
        let text = render(&Report::new(facts));
        assert!(text.contains("\u{1b}[32mok     \u{1b}[0m  cpu"), "{text:?}");
        assert!(text.contains("\u{1b}[31mproblem\u{1b}[0m"), "{text:?}");
        assert!(text.contains("?[31mred??herring"), "{text:?}");
    }
}
