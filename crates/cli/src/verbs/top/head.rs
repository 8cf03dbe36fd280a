//! The first lines: what each store is and does, how many names it has, and how old its rows are.
//!
//! One store has a line for its state and one for its counts. Several have a line each, below one
//! for all of them.

use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use holdline_core::snapshot::coarse;

use super::app::App;
use super::stores::{Counts, NoNames, Now, StoreState, StoreView};
use super::theme::{BOLD, Theme, plain};
use crate::duration;
use crate::table::cut;
use crate::view;

/// How many rows are for all else, at the least, before a store gets a line of its own.
const OTHER_ROWS: u16 = 6;

/// The longest name of a store, in columns.
const MAX_NAME: usize = 20;

/// Returns how many rows the head takes of so many.
pub(super) fn height(app: &App, rows: u16) -> u16 {
    if !app.stores.are_several() {
        return 2;
    }
    let stores = u16::try_from(app.stores.0.len()).unwrap_or(u16::MAX);
    1 + stores.min(rows.saturating_sub(OTHER_ROWS) / 3).max(1)
}

/// Draws the head.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme, now: Now) {
    let row = |at: u16| Rect { y: area.y + at, height: 1, ..area };
    match &app.stores.0[..] {
        [only] => {
            one_store(frame, row(0), only, app, theme, now);
            counts(frame, row(1), only, theme);
        }
        _ => several(frame, area, app, theme, now),
    }
}

/// A line: the text on the left is cut where the one on the right begins.
fn two_sides(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    state: &str,
    style: Style,
    right: &str,
) {
    let room = usize::from(area.width).saturating_sub(right.len() + 2);
    // The state comes first if there is not room for both.
    let title = cut(title, room.saturating_sub(state.chars().count().min(room / 2) + 2));
    let left = cut(&format!("{title}  {state}"), room);
    let state = left.get(title.len()..).unwrap_or_default().to_owned();
    let line = Line::from(vec![Span::styled(title, BOLD), Span::styled(state, style)]);
    frame.render_widget(line, area);
    frame.render_widget(Paragraph::new(right).alignment(Alignment::Right), {
        let width = u16::try_from(area.width as usize - room).unwrap_or(area.width);
        Rect { x: area.x + area.width - width, width, ..area }
    });
}

/// Returns what a store does, in a few words.
pub(super) fn state(store: &StoreView, app: &App, theme: Theme, now: Now) -> (String, Style) {
    match &store.state {
        StoreState::Opening => ("connecting".to_owned(), theme.note()),
        StoreState::Up if !app.paused && store.is_late(app.interval, now) => {
            let age = coarse(store.age(now).unwrap_or_default());
            (format!("LATE: no round for {age}"), theme.bad())
        }
        StoreState::Up => ("up".to_owned(), theme.paint(Color::Green)),
        StoreState::NoNames(NoNames::Unlisted(_)) => {
            ("names cannot be listed".to_owned(), theme.note())
        }
        StoreState::NoNames(NoNames::NoStore(_)) => ("no store yet".to_owned(), theme.note()),
        StoreState::Down { message, since } => {
            let age = coarse(now.instant.saturating_duration_since(*since));
            (format!("DOWN for {age}: {}", plain(message, 200)), theme.bad())
        }
        StoreState::Unusable(message) => {
            (format!("UNUSABLE: {}", plain(message, 200)), theme.bad())
        }
    }
}

/// Returns how old what a store has shown is.
fn as_of(store: &StoreView, now: Now) -> String {
    match (&store.last_round, store.age(now)) {
        (Some(round), Some(age)) => {
            format!("as of {}, {} ago", view::time_of_day(round.at), coarse(age))
        }
        _ => "nothing seen yet".to_owned(),
    }
}

fn is_well(store: &StoreView, app: &App, now: Now) -> bool {
    store.state == StoreState::Up && !store.is_late(app.interval, now)
}

/// What the only store is and does, and how old the rows are.
fn one_store(
    frame: &mut Frame<'_>,
    area: Rect,
    store: &StoreView,
    app: &App,
    theme: Theme,
    now: Now,
) {
    let (state, style) = state(store, app, theme, now);
    let round = match &store.last_round {
        Some(round) if is_well(store, app, now) && !app.paused => {
            format!("round {}, every {}", coarse(round.took), duration::written(app.interval))
        }
        _ => as_of(store, now),
    };
    let right = if app.paused { format!("PAUSED {round} ") } else { format!("{round} ") };
    two_sides(frame, area, &store.url, &state, style, &right);
}

fn counted(Counts { held, waiting, frozen }: Counts) -> String {
    format!("held {held}  waiting {waiting}  frozen {frozen}")
}

/// Returns how many names a store has shown, how fast they change, and whether there are more.
fn counts_of(store: &StoreView) -> String {
    let mut text = counted(store.counts());
    if let Some(last) = store.last_round.as_ref().and_then(|round| round.left_out_after.as_ref()) {
        text += &format!("  MORE after {}", plain(last.as_str(), 30));
    }
    if let Some((flow, span)) = store.rates() {
        let rate = |count: usize| format!("{:.1}", count as f64 / span.as_secs_f64());
        text += &format!(
            "  grants {}/s ends {}/s queued {}/s in {} ",
            rate(flow.granted),
            rate(flow.ended),
            rate(flow.queued),
            coarse(span),
        );
    }
    text
}

/// The counts of the only store, with a bar for each round.
fn counts(frame: &mut Frame<'_>, area: Rect, store: &StoreView, theme: Theme) {
    let text = cut(&counts_of(store), usize::from(area.width));
    let width = u16::try_from(Span::raw(&text).width()).unwrap_or(area.width);
    frame.render_widget(text, area);
    let bars = if store.rates().is_some() { store.grants(20) } else { Vec::new() };
    let rest = Rect { x: area.x + width, width: area.width.saturating_sub(width), ..area };
    if rest.width > 8 {
        frame.render_widget(Sparkline::default().data(bars).style(theme.paint(Color::Cyan)), rest);
    }
}

/// A line for all stores, and one for each. If they have not enough room, those that are not up
/// come first.
fn several(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme, now: Now) {
    let stores = &app.stores.0;
    let well = stores.iter().filter(|store| is_well(store, app, now)).count();
    let title = format!("{} stores, {well} up", stores.len());
    let every = format!("every {} ", duration::written(app.interval));
    let right = if app.paused { "PAUSED ".to_owned() } else { every };
    let text = counted(app.stores.counts());
    let row = |at: u16| Rect { y: area.y + at, height: 1, ..area };
    two_sides(frame, row(0), &title, &text, Style::new(), &right);

    let mut shown: Vec<&StoreView> = stores.iter().collect();
    let mut rows = usize::from(area.height.saturating_sub(1));
    if shown.len() > rows {
        shown.sort_by_key(|store| is_well(store, app, now));
        rows = rows.saturating_sub(1);
        let rest = format!("and {} more: see page 4", shown.len() - rows);
        frame.render_widget(Span::styled(rest, theme.dim()), row(area.height - 1));
    }
    let name = |store: &StoreView| plain(&store.name, MAX_NAME);
    let width = stores.iter().map(|store| Span::raw(name(store)).width()).max().unwrap_or(0);
    for (at, store) in (1..).zip(shown.into_iter().take(rows)) {
        let name = name(store);
        let pad = " ".repeat(width.saturating_sub(Span::raw(&name).width()));
        let (state, style) = state(store, app, theme, now);
        let is_well = is_well(store, app, now);
        let (state, right) = match store.last_round {
            Some(_) if is_well => (format!("{state}  {}", counts_of(store)), String::new()),
            _ => (state, format!("{} ", as_of(store, now))),
        };
        two_sides(frame, row(at), &format!("{name}{pad}"), &state, style, &right);
    }
}
