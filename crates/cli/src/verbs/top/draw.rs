//! Draws the state on a terminal of any size; 80 columns and 24 rows show all that matters.
//!
//! - Invariant W1: text from outside is escaped and cut to its cell before it is drawn.
//! - Invariant W2: only the rows on the screen are laid out, however many there are.
//! - Invariant W3: colours only repeat what words say, so that nothing is lost without them.
//!
//! Read next: `head`, the lines about the stores; `detail`, the pages that cover the tables.

use std::time::Duration;

use holdline_core::snapshot::coarse;
use holdline_core::{GrantState, HolderView, Snapshot};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::app::{App, Panel};
use super::blocking::{self, Node};
use super::rows::{Row, Sort, SortKey};
use super::stores::{NamePosition, NoNames, Now, StoreState, Stores};
use super::theme::{BOLD, MAX_CELL, Theme, contender, plain};
use super::{detail, head};
use crate::table::cut;

/// The smallest terminal that the screen is drawn on.
const MIN_SIZE: (u16, u16) = (30, 6);

const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything, and stores in the state how many rows fit.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App, theme: Theme, now: Now) {
    let area = frame.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        frame.render_widget("the terminal is too small; q quits", area);
        return;
    }
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(head::height(app, area.height)),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    head::draw(frame, head, app, theme, now);
    draw_tabs(frame, tabs, app, theme);
    if app.detail.is_some() {
        detail::name(frame, body, app, theme);
    } else {
        page(frame, body, app, theme);
    }
    footer(frame, foot, app, theme);
    if app.help {
        detail::help(frame, body);
    }
    if let Some(form) = &app.form {
        detail::form(frame, body, form, &app.stores, theme);
    }
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let mut spans = Vec::new();
    for (at, panel) in Panel::ALL.into_iter().enumerate() {
        let style = if panel == app.panel { SELECTED } else { Style::new() };
        spans.push(Span::styled(format!(" {} {} ", at + 1, panel.title()), style));
    }
    let sorts = matches!(app.panel, Panel::Held | Panel::Waiting);
    if sorts {
        let Sort { key, reversed } = app.sort;
        let arrow = if reversed { ", reversed" } else { "" };
        spans.push(Span::styled(format!("  sort: {}{arrow}", key.word()), theme.dim()));
    }
    if !app.filter.is_empty() {
        spans.push(Span::styled(format!("  filter: {}", plain(&app.filter, 40)), theme.note()));
    }
    frame.render_widget(Line::from(spans), area);
}

fn footer(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let width = usize::from(area.width);
    let (text, style) = match (&app.doing, &app.notice) {
        (Some(doing), _) => (format!("{doing} ..."), theme.note()),
        (None, Some(notice)) => {
            (notice.text.clone(), if notice.is_error { theme.bad() } else { theme.note() })
        }
        (None, None) => (
            "? help  / filter  Enter detail  Space pause  f freeze  B revoke  q quit".to_owned(),
            theme.dim(),
        ),
    };
    frame.render_widget(Span::styled(cut(&text, width), style), area);
}

fn page(frame: &mut Frame<'_>, area: Rect, app: &mut App, theme: Theme) {
    let has_heading = matches!(app.panel, Panel::Held | Panel::Waiting);
    app.page = usize::from(area.height.saturating_sub(u16::from(has_heading))).max(1);
    let len = app.len();
    // The selected row is on the screen, and the last page is full.
    app.first = app.first.min(app.selected).max((app.selected + 1).saturating_sub(app.page));
    app.first = app.first.min(len.saturating_sub(app.page));
    match app.panel {
        Panel::Nodes => return detail::nodes(frame, area, app, theme),
        _ if len == 0 => {
            let text = cut(&nothing(app), usize::from(area.width));
            return frame.render_widget(Span::styled(text, theme.dim()), area);
        }
        Panel::Held | Panel::Waiting => return table(frame, area, app, theme),
        Panel::Blocking | Panel::Events => {}
    }
    let width = usize::from(area.width);
    let mut lines = Vec::new();
    if app.panel == Panel::Events {
        let shown = app.shown_events().skip(app.first).take(app.page);
        lines.extend(shown.map(|event| Line::from(cut(&event.text, width))));
    } else {
        let shown = app.lines.iter().skip(app.first).take(app.page);
        lines.extend(shown.map(|line| tree_line(&app.stores, line, width, theme)));
    }
    if let Some(line) = lines.get_mut(app.selected - app.first) {
        *line = std::mem::take(line).style(SELECTED);
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns what an empty page says.
fn nothing(app: &App) -> String {
    let only = app.stores.0.first().filter(|_| !app.stores.are_several());
    let is_seen = app.stores.0.iter().any(|store| store.last_round.is_some());
    let text = match (app.panel, only.map(|store| &store.state)) {
        (_, Some(StoreState::NoNames(NoNames::Unlisted(text) | NoNames::NoStore(text)))) => {
            return plain(text, 200);
        }
        (Panel::Events, _) if app.filter.is_empty() => "nothing has changed yet",
        _ if !is_seen => "no names were seen yet",
        _ if !app.filter.is_empty() => "nothing matches the filter; Esc removes it",
        (Panel::Held, _) => "no name is held",
        _ => "nobody waits",
    };
    text.to_owned()
}

/// A table of holders or waiters, with the rows that fit.
fn table(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let stores = &app.stores;
    let shown = &app.rows[app.first..(app.first + app.page).min(app.rows.len())];
    let columns = columns(app.panel, stores.are_several(), usize::from(area.width));
    let texts: Vec<Vec<String>> = shown
        .iter()
        .map(|row| {
            columns.iter().map(|column| cell(app.panel, stores, *row, column.title)).collect()
        })
        .collect();
    let widths = widths(&columns, &texts, usize::from(area.width));
    let heading = columns.iter().map(|column| {
        let style = if column.key == Some(app.sort.key) { BOLD.underlined() } else { BOLD };
        Cell::from(Line::styled(column.title, style).alignment(column.alignment))
    });
    let rows = shown.iter().zip(&texts).enumerate().map(|(at, (row, texts))| {
        let cells = columns.iter().zip(texts).zip(&widths).map(|((column, text), width)| {
            Cell::from(Line::from(cut(text, *width)).alignment(column.alignment))
        });
        let is_selected = at + app.first == app.selected;
        let style = match (is_selected, needs_attention(app.panel, stores, *row)) {
            (true, _) => SELECTED,
            (false, true) => theme.note(),
            (false, false) => Style::new(),
        };
        TableRow::new(cells.collect::<Vec<_>>()).style(style)
    });
    let constraint = |width: &usize| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX));
    let table = Table::new(rows.collect::<Vec<_>>(), widths.iter().map(constraint))
        .header(TableRow::new(heading.collect::<Vec<_>>()))
        .column_spacing(1);
    frame.render_widget(table, area);
}

/// A column of a table.
struct Column {
    title: &'static str,
    alignment: Alignment,
    key: Option<SortKey>,
}

/// Returns the columns for a width; a narrow screen leaves out what matters least.
fn columns(panel: Panel, several_stores: bool, width: usize) -> Vec<Column> {
    let number = |title, key| Column { title, alignment: Alignment::Right, key };
    let text = |title, key| Column { title, alignment: Alignment::Left, key };
    let mut columns = match panel {
        Panel::Waiting => vec![
            text("NAME", Some(SortKey::Name)),
            number("POS", None),
            number("WAITED", Some(SortKey::Since)),
            text("WAITER", None),
            text("BLOCKED BY", None),
        ],
        _ => vec![
            text("NAME", Some(SortKey::Name)),
            number("HELD", Some(SortKey::Since)),
            number("TOKEN", None),
            number("LEFT", Some(SortKey::Left)),
            number("WAIT", Some(SortKey::Waiters)),
            text("HOLDER", None),
            text("REASON", None),
        ],
    };
    if width < 50 {
        columns.truncate(3);
    }
    if several_stores {
        columns.insert(0, text("STORE", Some(SortKey::Store)));
    }
    columns
}

/// Divides the width. Numbers are shown in full, since a token that is cut is another; texts share
/// the rest, and none gets more than it needs.
fn widths(columns: &[Column], texts: &[Vec<String>], width: usize) -> Vec<usize> {
    let need = |at: usize| {
        let cells = texts.iter().map(|row| Span::raw(&row[at]).width());
        cells.chain([columns[at].title.len()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns.len()).map(need).collect();
    let is_text = |at: &usize| columns[*at].alignment == Alignment::Left;
    let mut shared: Vec<usize> = (0..columns.len()).filter(is_text).collect();
    let fixed: usize = (0..columns.len()).filter(|at| !is_text(at)).map(|at| widths[at]).sum();
    let mut rest = width.saturating_sub(fixed + columns.len().saturating_sub(1));
    shared.sort_by_key(|&at| widths[at]);
    let mut left = shared.len();
    for at in shared {
        widths[at] = widths[at].min(rest / left);
        rest -= widths[at];
        left -= 1;
    }
    widths
}

/// Returns the text of a cell, escaped.
fn cell(panel: Panel, stores: &Stores, row: Row, column: &str) -> String {
    plain(&raw_cell(panel, stores, row, column), MAX_CELL)
}

fn raw_cell(panel: Panel, stores: &Stores, row: Row, column: &str) -> String {
    let snapshot = stores.at(row.name);
    let time = |time: Option<Duration>| time.map_or_else(|| "-".into(), coarse);
    match column {
        "STORE" => return stores.label(row.name.store).to_owned(),
        "NAME" => return snapshot.name.as_str().to_owned(),
        "WAIT" => return snapshot.queue_length.to_string(),
        _ => {}
    }
    if panel == Panel::Waiting {
        let Some((at, waiter)) =
            row.entry.and_then(|entry| Some((entry, snapshot.queue.get(entry)?)))
        else {
            return String::new();
        };
        return match column {
            "POS" => (at + 1).to_string(),
            "WAITED" => time(waiter.waited),
            "WAITER" => contender(&waiter.metadata),
            _ => blocked_by(snapshot),
        };
    }
    let Some(holder) = row.entry.and_then(|entry| snapshot.holders.get(entry)) else {
        let freeze = snapshot.freeze.as_ref();
        return match column {
            "LEFT" => time(freeze.map(|freeze| freeze.left)),
            "HOLDER" => "frozen".to_owned(),
            "REASON" => freeze.map(|freeze| freeze.reason.clone()).unwrap_or_default(),
            _ => String::new(),
        };
    };
    match column {
        "HELD" => time(holder.summary.held_for),
        "LEFT" if holder.live => "live".to_owned(),
        "LEFT" => crate::view::left(&holder.summary),
        "TOKEN" => holder.summary.token.map(|token| token.to_string()).unwrap_or_default(),
        "HOLDER" => contender(&holder.summary.metadata),
        _ => match &holder.state {
            GrantState::Revoked(reason) => format!("revoked: {reason}"),
            GrantState::Held => match &snapshot.freeze {
                Some(freeze) => format!("to be frozen: {}", freeze.reason),
                None => holder.summary.metadata.fields().reason,
            },
        },
    }
}

fn needs_attention(panel: Panel, stores: &Stores, row: Row) -> bool {
    let snapshot = stores.at(row.name);
    let revoked = |holder: &HolderView| matches!(holder.state, GrantState::Revoked(_));
    let holder = row.entry.and_then(|entry| snapshot.holders.get(entry));
    snapshot.freeze.is_some() || (panel == Panel::Held && holder.is_some_and(revoked))
}

/// Returns who holds a name, in a few words.
fn blocked_by(snapshot: &Snapshot) -> String {
    if let Some(freeze) = snapshot.freeze.as_ref().filter(|freeze| freeze.active) {
        return format!("frozen: {}", freeze.reason);
    }
    match (snapshot.holders.first(), snapshot.holder_count) {
        (None, _) => "nobody: it is handed over next".to_owned(),
        (Some(holder), 1) => contender(&holder.summary.metadata),
        (Some(holder), count) => {
            format!("{} and {} more", contender(&holder.summary.metadata), count - 1)
        }
    }
}

fn tree_line(
    stores: &Stores,
    line: &blocking::TreeLine,
    width: usize,
    theme: Theme,
) -> Line<'static> {
    let time = |time: Option<Duration>| time.map_or_else(|| "?".into(), coarse);
    let name = |at: NamePosition| {
        plain(stores.label(at.store), 20)
            + if stores.are_several() { ": " } else { "" }
            + &plain(stores.at(at).name.as_str(), 40)
    };
    let (text, style) = match line.node {
        Node::Name { name: at, deadlock } => {
            let snapshot = stores.at(at);
            let since = snapshot.holders.first().and_then(|holder| holder.summary.held_for);
            let mark = if deadlock { "DEADLOCK " } else { "" };
            let text = format!(
                "{mark}{} blocks {}: held {} by {}",
                name(at),
                snapshot.queue_length,
                time(since),
                plain(&blocked_by(snapshot), 60),
            );
            (text, if deadlock { theme.bad() } else { BOLD })
        }
        Node::Waiter { name: at, waiter } => {
            let waiter = &stores.at(at).queue[waiter];
            let who = plain(&contender(&waiter.metadata), 60);
            (format!("waits {} {who}", time(waiter.waited)), Style::new())
        }
        Node::Again { name: at } => (format!("holds {}, see there", name(at)), theme.dim()),
        Node::More { waiters, .. } => (format!("and {waiters} more"), theme.dim()),
    };
    let indent = "  ".repeat(line.depth.min(width / 4));
    Line::from(Span::styled(cut(&format!("{indent}{text}"), width), style))
}

#[cfg(test)]
mod tests;
