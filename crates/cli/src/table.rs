//! Tables for people, aligned by the width on a terminal, not by bytes.

use holdline_core::Escaped;
use unicode_width::UnicodeWidthStr;

/// The widest cell; longer text ends in `…`.
const MAX_WIDTH: usize = 60;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table. Columns in which every cell is empty are left out.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these columns.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Every cell is escaped and cut here.
    pub(crate) fn row(&mut self, cells: &[&str]) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows
            .push(cells.iter().map(|cell| cut(&Escaped(cell).to_string(), MAX_WIDTH)).collect());
    }

    /// Formats the heading and the rows, each line after `indent`.
    pub(crate) fn lines(&self, indent: &str) -> (String, String) {
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|&at| self.rows.iter().any(|row| !row[at].is_empty()))
            .collect();
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].width());
            cells.chain([self.columns[at].0.width()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = shown.iter().map(|&at| width(at)).collect();
        let line = |cell: &dyn Fn(usize) -> String| {
            let mut line = String::from(indent);
            for (&at, &width) in shown.iter().zip(&widths) {
                let cell = cell(at);
                let pad = " ".repeat(width.saturating_sub(cell.width()));
                match self.columns[at].1 {
                    Align::Left => line.extend([cell.as_str(), &pad, "  "]),
                    Align::Right => line.extend([pad.as_str(), &cell, "  "]),
                }
            }
            line.truncate(line.trim_end().len());
            line.push('\n');
            line
        };
        let heading = line(&|at| self.columns[at].0.to_owned());
        let rows = self.rows.iter().map(|row| line(&|at| row[at].clone())).collect();
        (heading, rows)
    }
}

/// Cuts text to a number of columns.
pub(crate) fn cut(text: &str, max_width: usize) -> String {
    if text.width() <= max_width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut width = 0;
    for character in text.chars() {
        width += unicode_width::UnicodeWidthChar::width(character).unwrap_or(0);
        if width >= max_width {
            break;
        }
        kept.push(character);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_by_their_width_on_a_terminal() {
        let mut table =
            Table::new(&[("NAME", Align::Left), ("N", Align::Right), ("EMPTY", Align::Left)]);
        table.row(&["鎖🔒", "7", ""]);
        table.row(&["a\u{1b}[31m", "1234", ""]);
        let (heading, rows) = table.lines("  ");
        assert_eq!(heading, "  NAME            N\n");
        assert_eq!(rows, "  鎖🔒            7\n  a\\u{1b}[31m  1234\n");
    }

    #[test]
    fn text_that_is_too_wide_is_cut() {
        let shown = cut(&"鎖".repeat(100), MAX_WIDTH);
        assert!(shown.width() <= MAX_WIDTH && shown.ends_with('…'), "{shown}");
    }
}
