//! Two terminals beside each other: a time, and what each of two clients prints.

use std::fmt::Display;
use std::time::Duration;

use crate::console::Console;
use crate::failure::Failure;

/// The width of a column, so that both fit into 100 characters.
const COLUMN: usize = 45;

/// One of the two columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// The output of one scenario. With `--json` it prints nothing.
pub(super) struct Page<'a> {
    console: &'a Console,
}

impl<'a> Page<'a> {
    pub(super) fn new(console: &'a Console) -> Page<'a> {
        Page { console }
    }

    /// Prints whole lines.
    pub(super) fn text(&self, text: impl Display) -> Result<(), Failure> {
        if self.console.is_json() { Ok(()) } else { self.console.data(&format!("{text}\n")) }
    }

    /// Prints the heads of the columns.
    pub(super) fn heads(&self, left: &str, right: &str) -> Result<(), Failure> {
        self.text(format_args!("\n{}", row("time", left, right)))
    }

    /// Prints an event of one client.
    pub(super) fn event(
        &self,
        at: Duration,
        side: Side,
        text: impl Display,
    ) -> Result<(), Failure> {
        let time = format!("{:.1} s", at.as_secs_f64());
        let text = text.to_string();
        self.text(match side {
            Side::Left => row(&time, &text, ""),
            Side::Right => row(&time, "", &text),
        })
    }
}

fn row(time: &str, left: &str, right: &str) -> String {
    format!("{time:>7}  {left:<COLUMN$} {right}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_no_blanks_at_its_end_and_fits() {
        assert_eq!(row("0.0 s", "left", ""), "  0.0 s  left");
        assert_eq!(row("", "", "right").chars().position(|c| c == 'r'), Some(9 + COLUMN + 1));
    }
}
