//! Colours, and their replacement on a terminal without colours.

use ratatui::style::{Color, Modifier, Style};

/// The meaning of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Strong,
    /// The pane with the key focus.
    Title,
    Key,
    Good,
    Warn,
    Bad,
    InUse,
    Cached,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    is_coloured: bool,
}

impl Palette {
    pub(crate) fn new(is_coloured: bool) -> Self {
        Self { is_coloured }
    }

    /// Creates the palette for the terminal and the user's settings (`NO_COLOR`, `TERM`).
    pub(crate) fn of_terminal() -> Self {
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        Self::new(!matches!(choice, anstream::ColorChoice::Never))
    }

    /// Returns a style: the sixteen ANSI colours as the user has configured them; without colours, bold, dim and reversed.
    pub(crate) fn style(self, tone: Tone) -> Style {
        let (colour, modifier) = match tone {
            Tone::Plain => (None, Modifier::empty()),
            Tone::Dim => (None, Modifier::DIM),
            Tone::Strong => (None, Modifier::BOLD),
            Tone::Title => (Some(Color::Cyan), Modifier::BOLD.union(Modifier::REVERSED)),
            Tone::Key => (Some(Color::Cyan), Modifier::BOLD),
            Tone::Good => (Some(Color::Green), Modifier::empty()),
            Tone::Warn => (Some(Color::Yellow), Modifier::BOLD),
            Tone::Bad => (Some(Color::Red), Modifier::BOLD.union(Modifier::REVERSED)),
            Tone::InUse => (Some(Color::Green), Modifier::empty()),
            Tone::Cached => (Some(Color::Blue), Modifier::empty()),
        };
        let style = Style::new().add_modifier(modifier);
        match colour {
            Some(colour) if self.is_coloured => style.fg(colour),
            _ => style,
        }
    }
}
