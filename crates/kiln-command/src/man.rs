//! `kiln man`: manual pages, generated from the command declarations.

use crate::terminal::{count, plain};
use crate::{Cli, Fallible, terminal};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  kiln man                                   the page of `kiln`; view it with `kiln man | man -l -`
  kiln man --dir ~/.local/share/man/man1     all pages, one per command

Exit status:
  0  success
  1  a page could not be written
  2  the command line is invalid";

/// Writes the manual pages of `kiln`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write `kiln.1`, `kiln-bench.1` and so on to this directory, creating it and replacing existing pages. Without it, the page of `kiln`
    /// is written to standard output.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let pages = pages()?;
    let Some(dir) = &args.dir else {
        terminal::write(&mut io::stdout(), pages.first().map_or("", |(_, text)| text))?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(dir).map_err(|error| format!("cannot create the directory {}: {error}", dir.display()))?;
    for (name, text) in &pages {
        terminal::write_file(&dir.join(name), text)?;
    }
    let (pages, dir) = (count(pages.len() as u64, "page"), plain(&dir.display().to_string()));
    terminal::write(&mut io::stdout(), &format!("wrote {pages} to {dir}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the name and text of each page, the program's page first.
fn pages() -> io::Result<Vec<(String, String)>> {
    // `help` needs no page.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    let page = Man::new(command.clone()).source("kiln").manual("Kiln");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command.get_arguments().next().is_some() {
        page.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text += &sections(&command.get_after_long_help().map(ToString::to_string).unwrap_or_default());
    pages.push((page.get_filename(), text));
    command.get_subcommands().try_for_each(|sub| add_pages(sub, pages))
}

/// Formats examples and exit status as sections with fixed line breaks: clap_mangen would reflow them like prose.
fn sections(after_help: &str) -> String {
    let line = |line: &str| match line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
        Some(heading) => format!(".fi\n.SH \"{}\"\n.nf\n", heading.to_uppercase()),
        None if line.is_empty() => String::new(),
        // A leading dot or quote would be a roff request.
        None => format!("\\&{}\n", line.trim_start().replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")),
    };
    after_help.lines().map(line).chain([".fi\n".to_string()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_sections_stay_and_are_no_requests() {
        let text = sections("Examples:\n  kiln man --dir 'a\\b'\n\nExit status:\n  0  done");
        let expected = ".fi\n.SH \"EXAMPLES\"\n.nf\n\\&kiln man \\-\\-dir \\(aqa\\eb\\(aq\n.fi\n.SH \"EXIT STATUS\"\n.nf\n\\&0  done\n.fi\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn there_is_a_page_for_the_program_and_for_each_command() {
        let names: Vec<String> = pages().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[0], "kiln.1");
        for name in ["kiln-bench.1", "kiln-cache.1", "kiln-cache-verify.1", "kiln-man.1"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
    }
}
