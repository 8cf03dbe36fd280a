//! The pages that cover the tables: a name in detail, the servers, the forms and the help.

use holdline_core::snapshot::coarse;
use holdline_core::{Escaped, GrantState, HolderFields, HolderView, LockName, Snapshot};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::app::App;
use super::form::{Form, FormKind};
use super::stores::{NoNames, StoreState, StoreView, Stores};
use super::theme::{BOLD, Theme, contender, plain};
use crate::table::cut;
use crate::view;

/// How many holders and waiters are shown in detail; all are counted.
const SHOWN: usize = 50;

const KEYS: [(&str, &str); 15] = [
    ("1 .. 5, Tab", "held, waiting, blocking, nodes, events"),
    ("Up Down j k", "select; PgUp PgDn Home End"),
    ("Enter", "the selected name in detail; Enter or Esc closes it"),
    ("/", "show rows that contain a text; Esc removes the filter"),
    ("n t l w", "sort by name, time, lease left, waiters; again: reversed"),
    ("s", "sort by store, if there are several"),
    ("Space", "pause: no rounds, and nothing changes on the screen"),
    ("B", "revoke the selected grant by its token: politely, or now"),
    ("f", "freeze the selected name"),
    ("u", "end the freeze of the selected name"),
    ("q, ^C", "quit"),
    ("^Z", "suspend"),
    ("", ""),
    ("", "times and counts are those of the last round; what begins"),
    ("", "and ends between two rounds is not seen"),
];

/// The name in detail.
pub(super) fn name(frame: &mut Frame<'_>, area: Rect, app: &mut App, theme: Theme) {
    let Some(detail) = &app.detail else { return };
    let title = app.stores.labelled(detail.store, &plain(detail.name.as_str(), 600));
    let lines = match app.detailed() {
        Some(snapshot) => lines(title, snapshot, theme),
        None => vec![Line::from(vec![
            Span::styled(title, BOLD),
            Span::raw(": free, as of the last round"),
        ])],
    };
    // Long lines are wrapped, so the number of rows depends on the width.
    let width = usize::from(area.width.max(1));
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(width).max(1)).sum();
    app.page = usize::from(area.height).max(1);
    let last = rows.saturating_sub(app.page);
    let Some(detail) = &mut app.detail else { return };
    detail.scroll = detail.scroll.min(last);
    let scroll = u16::try_from(detail.scroll).unwrap_or(u16::MAX);
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((scroll, 0));
    frame.render_widget(paragraph, area);
}

fn lines(title: String, snapshot: &Snapshot, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(vec![
        Span::styled(title, BOLD),
        Span::raw(format!(": {}", view::summary(snapshot))),
    ])];
    if let Some(freeze) = &snapshot.freeze {
        let what = if freeze.active { "frozen" } else { "to be frozen after its holders" };
        let left = coarse(freeze.left);
        let text = format!("{what}, {left} left: {}", Escaped(&freeze.reason));
        lines.push(Line::styled(text, theme.bad()));
    }
    lines.push(Line::default());
    lines.push(Line::styled(format!("{} holding", snapshot.holder_count), BOLD));
    for holder in snapshot.holders.iter().take(SHOWN) {
        lines.extend(holder_lines(holder, theme));
    }
    more(&mut lines, snapshot.holder_count);
    lines.push(Line::default());
    lines.push(Line::styled(format!("{} waiting", snapshot.queue_length), BOLD));
    for (at, waiter) in snapshot.queue.iter().take(SHOWN).enumerate() {
        let fields = waiter.metadata.fields();
        let waited = waiter.waited.map_or_else(|| "?".into(), coarse);
        let who = Escaped(&contender(&waiter.metadata)).to_string();
        let reason = reason(&fields);
        lines.push(format!("  {} {waited} {} {who}{reason}", at + 1, waiter.mode).into());
    }
    more(&mut lines, snapshot.queue_length);
    lines
}

fn more(lines: &mut Vec<Line<'static>>, count: usize) {
    if count > SHOWN {
        lines.push(format!("  and {} more", count - SHOWN).into());
    }
}

fn reason(fields: &HolderFields) -> String {
    let reason = Escaped(&fields.reason);
    if fields.reason.is_empty() { String::new() } else { format!(": {reason}") }
}

fn holder_lines(holder: &HolderView, theme: Theme) -> Vec<Line<'static>> {
    let HolderView { summary, state, .. } = holder;
    let fields = summary.metadata.fields();
    let token = summary.token.map_or_else(|| "none".into(), |token| token.to_string());
    let since = summary.held_for.map_or_else(|| "?".into(), coarse);
    let left = match summary.left {
        _ if summary.no_expiry => "no expiry: until its client ends it".to_owned(),
        Some(left) => format!("{} left", coarse(left)),
        None => "live: as long as its processes".to_owned(),
    };
    let mut lines = vec![
        format!("  token {token}  lease {}  {}", summary.lease_id, summary.mode).into(),
        format!("  held {since}  {left}").into(),
        format!("  {}{}", Escaped(&contender(&summary.metadata)), reason(&fields)).into(),
    ];
    if !fields.user.is_empty() {
        lines.push(format!("  user {}", Escaped(&fields.user)).into());
    }
    if !holder.pids.is_empty() {
        lines.push(format!("  kept by {}", crate::holder::join_pids(&holder.pids)).into());
    }
    for (key, value) in &fields.labels {
        lines.push(format!("  label {}={}", Escaped(key), Escaped(value)).into());
    }
    if let GrantState::Revoked(reason) = state {
        let text = format!("  revoked: {}", Escaped(reason));
        lines.push(Line::styled(text, theme.bad()));
    }
    lines
}

/// Each store: its servers if it is a quorum, or else what it does.
pub(super) fn nodes(frame: &mut Frame<'_>, area: Rect, app: &mut App, theme: Theme) {
    let width = usize::from(area.width);
    let mut lines = Vec::new();
    for store in &app.stores.0 {
        if app.stores.are_several() {
            lines.push(Line::styled(cut(&format!("{}:", plain(&store.name, width)), width), BOLD));
        }
        lines.extend(nodes_of(store, width, theme));
        lines.push(Line::default());
    }
    lines.push("`holdline doctor` checks the servers of a store and their settings".into());
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(width.max(1)).max(1)).sum();
    app.scrolls = rows.saturating_sub(usize::from(area.height));
    app.selected = app.selected.min(app.scrolls);
    let scroll = u16::try_from(app.selected).unwrap_or(u16::MAX);
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((scroll, 0));
    frame.render_widget(paragraph, area);
}

fn nodes_of(store: &StoreView, width: usize, theme: Theme) -> Vec<Line<'static>> {
    #[cfg(feature = "redis")]
    if let Some(status) = &store.quorum {
        let (heading, rows) = crate::verbs::quorum::table(&status.nodes).lines("");
        let mut lines = vec![Line::styled(cut(heading.trim_end(), width), BOLD)];
        lines.extend(rows.lines().map(|row| Line::from(cut(row, width))));
        lines.push(Line::default());
        lines.push(plain(&status.summary(), width).into());
        for node in status.nodes.iter().filter(|node| node.problem.is_some()) {
            let problem = node.problem.as_deref().unwrap_or_default();
            let text = format!("{}: {}", plain(&node.address, 40), Escaped(problem));
            lines.push(Line::styled(text, theme.bad()));
            if let Some(fix) = &node.fix {
                lines.push(format!("  to do: {}", Escaped(fix)).into());
            }
        }
        return lines;
    }
    let (state, style) = match &store.state {
        StoreState::Opening => ("connecting".to_owned(), Style::new()),
        StoreState::Up => ("up".to_owned(), Style::new()),
        StoreState::NoNames(NoNames::Unlisted(message) | NoNames::NoStore(message)) => {
            (plain(message, 300), Style::new())
        }
        StoreState::Down { message, .. } => (format!("down: {}", plain(message, 300)), theme.bad()),
        StoreState::Unusable(message) => (plain(message, 300), theme.bad()),
    };
    let mut lines = vec![Line::styled(cut(&store.url, width), BOLD), Line::styled(state, style)];
    if let Some(round) = &store.last_round {
        lines.push(format!("the last complete round took {}", coarse(round.took)).into());
    }
    lines
}

/// A box in the middle.
fn window(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'static>>) -> Rect {
    let width = area.width.min(76);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let area = Rect { x, y, width, height };
    let block = Block::bordered().title(format!(" {title} "));
    let inner = block.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
    inner
}

/// The keys.
pub(super) fn help(frame: &mut Frame<'_>, area: Rect) {
    let line = |(key, does): (&str, &str)| {
        Line::from(vec![Span::styled(format!(" {key:<12} "), BOLD), Span::raw(does.to_owned())])
    };
    window(frame, area, "keys", KEYS.map(line).to_vec());
}

/// A form, with the cursor in its field.
pub(super) fn form(frame: &mut Frame<'_>, area: Rect, form: &Form, stores: &Stores, theme: Theme) {
    let room = usize::from(area.width.min(76)).saturating_sub(4);
    let mut lines: Vec<Line<'static>> = Vec::new();
    let named = |name: &LockName| {
        cut(&stores.labelled(form.store, &plain(name.as_str(), room)), room).into()
    };
    let title = match &form.kind {
        FormKind::Filter => "filter",
        FormKind::Revoke { name, token, holder } => {
            lines.push(named(name));
            lines.push(format!("token {token}").into());
            lines.push(cut(holder, room).into());
            lines.push("polite: the holder is notified, and its job is stopped with TERM".into());
            lines.push("now: the name is free at once; its job may still run and write".into());
            lines.push("   Only a resource that compares tokens refuses such a job.".into());
            lines.push("   To choose it, press Tab and ^U, and type it in full.".into());
            "revoke"
        }
        FormKind::Freeze { name } => {
            lines.push(named(name));
            lines.push("Nobody acquires it; its present holder keeps it.".into());
            "freeze"
        }
        FormKind::Unfreeze { name } => {
            lines.push(named(name));
            lines.push("Enter ends the freeze.".into());
            "unfreeze"
        }
    };
    let first_field = lines.len();
    let mut cursor = 0;
    for (at, (label, text)) in form.fields.iter().enumerate() {
        let shown = Escaped(text).to_string();
        // The end of the text is shown, where it is typed.
        let mut shown = shown.as_str();
        while Span::raw(shown).width() + label.len() + 3 > room {
            let mut rest = shown.chars();
            rest.next();
            shown = rest.as_str();
        }
        let line = format!("{label}: {shown}");
        if at == form.at {
            cursor = Span::raw(&line).width();
        }
        lines.push(Line::styled(line, if at == form.at { BOLD } else { Style::new() }));
    }
    match &form.error {
        Some(error) => lines.push(Line::styled(cut(error, room), theme.bad())),
        None => {
            let keys = if form.fields.len() > 1 { "Tab next  " } else { "" };
            lines.push(Line::styled(format!("{keys}Enter do it  Esc cancel"), theme.dim()));
        }
    }
    let inner = window(frame, area, title, lines);
    if !form.fields.is_empty() {
        let row = u16::try_from(first_field + form.at).unwrap_or(0);
        let column = u16::try_from(cursor).unwrap_or(0);
        frame.set_cursor_position((
            (inner.x + column).min(inner.right().saturating_sub(1)),
            (inner.y + row).min(inner.bottom().saturating_sub(1)),
        ));
    }
}
