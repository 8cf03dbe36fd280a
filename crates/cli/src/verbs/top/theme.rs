//! Styles, and texts from outside made fit for a cell.

use holdline_core::{Escaped, Metadata};
use ratatui::style::{Color, Modifier, Style};

use crate::table::cut;

/// The longest text of a cell, in characters: many characters can share one column.
pub(super) const MAX_CELL: usize = 600;

/// The style of what is shown, with or without colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Whether colours are used.
    pub(crate) color: bool,
}

impl Theme {
    pub(super) fn paint(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn bad(self) -> Style {
        self.paint(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn note(self) -> Style {
        self.paint(Color::Yellow)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

/// The style of a heading.
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Returns text from outside for one line: escaped and cut.
pub(super) fn plain(text: &str, width: usize) -> String {
    let shown: String = Escaped(text).to_string().chars().take(MAX_CELL).collect();
    cut(&shown, width)
}

/// Returns a contender in a few words.
pub(super) fn contender(metadata: &Metadata) -> String {
    let fields = metadata.fields();
    let program = if fields.program.is_empty() { "another" } else { &fields.program };
    match (fields.pid, fields.host.is_empty()) {
        (Some(pid), false) => format!("{program} ({pid} on {})", fields.host),
        (Some(pid), true) => format!("{program} ({pid})"),
        (None, false) => format!("{program} (on {})", fields.host),
        (None, true) => program.to_owned(),
    }
}
