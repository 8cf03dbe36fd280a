//! The live table of all names: filtered and sorted by the URL, page by page.

use std::cmp::Ordering;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use holdline_core::lease::DEFAULT_LEASE;
use holdline_core::name::MAX_NAME_BYTES;
use holdline_core::{FencingToken, GrantState, HolderFields, Mode};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::history::Row;
use crate::layout::{Page, Section};
use crate::pages::lock;
use crate::site::{Query, Site, Viewer};
use crate::text::{cell, count, figure, moment, or_dash, query, short};

pub(crate) const SECTION: Section = Section { title: "Locks", path: "/locks", routes };

/// How many rows a page has.
const ROWS: usize = 100;
/// The longest filter: a whole name.
const MOST_TEXT: usize = MAX_NAME_BYTES;

/// Which names the table has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateFilter {
    All,
    Held,
    Waiting,
    Frozen,
    Revoked,
}

/// These filters, by their words in the URL.
const STATE_FILTERS: [(&str, StateFilter); 5] = [
    ("all", StateFilter::All),
    ("held", StateFilter::Held),
    ("waiting", StateFilter::Waiting),
    ("frozen", StateFilter::Frozen),
    ("revoked", StateFilter::Revoked),
];

/// A column that sorts, or that a filter can name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Program,
    Host,
    User,
    Reason,
    Since,
    Slack,
    Token,
    Waiters,
}

/// The columns that sort, by their words in the URL.
const COLUMNS: [(&str, Column); 8] = [
    ("name", Column::Name),
    ("program", Column::Program),
    ("host", Column::Host),
    ("user", Column::User),
    ("since", Column::Since),
    ("slack", Column::Slack),
    ("token", Column::Token),
    ("waiters", Column::Waiters),
];

/// The columns that a filter can name.
const FILTERS: [(&str, Column); 5] = [
    ("name", Column::Name),
    ("program", Column::Program),
    ("host", Column::Host),
    ("user", Column::User),
    ("reason", Column::Reason),
];

/// Returns the word of a choice.
fn word<T: PartialEq>(choices: &[(&'static str, T)], chosen: &T) -> &'static str {
    choices.iter().find(|(_, choice)| choice == chosen).map_or("", |(word, _)| word)
}

/// A word that must occur, in one column or in any.
struct Term {
    column: Option<Column>,
    word: String,
}

fn routes() -> Router<Site> {
    Router::new().route("/dashboard/locks", get(show)).merge(lock::routes())
}

/// What the URL asks for.
struct Wanted {
    text: String,
    state: StateFilter,
    sort: Column,
    descending: bool,
    page: usize,
}

async fn show(viewer: Viewer, Query(mut fields): Query) -> Result<Page, Fault> {
    let wanted = Wanted {
        text: fields.take("q").unwrap_or_default(),
        state: fields.choice("state", &STATE_FILTERS)?.unwrap_or(StateFilter::All),
        sort: fields.choice("sort", &COLUMNS)?.unwrap_or(Column::Name),
        descending: fields.choice("order", &[("up", false), ("down", true)])?.unwrap_or(false),
        page: fields.number("page", 1..=1_000_000)?.unwrap_or(1),
    };
    fields.finish()?;
    let terms = terms(&wanted.text)?;
    let view = viewer.site.follower.fresh_view().await;
    // Leases go on running out while the store cannot be read.
    let age = view.at.and_then(|at| at.elapsed().ok()).unwrap_or_default();
    let rows = view.rows.iter().filter(|row| viewer.identity.covers(row.lock.name.as_str()));
    let rows = rows.filter(|row| wanted.has(row, &terms));
    // To read the fields of a holder costs more than to compare them: once for each row.
    let text = |row: &Row| {
        let text = text_of(wanted.sort)?;
        row.first().map(|(holder, _)| text(&holder.summary.metadata.fields()).to_owned())
    };
    let mut rows: Vec<_> = rows.map(|row| (text(row), row)).collect();
    rows.sort_by(|(text, row), (other_text, other)| {
        text.cmp(other_text).then_with(|| compare(wanted.sort, row, other))
    });
    if wanted.descending {
        rows.reverse();
    }
    let pages = rows.len().div_ceil(ROWS).max(1);
    let page = wanted.page.min(pages);
    let shown = rows.iter().skip((page - 1) * ROWS).take(ROWS);
    let main = html! {
        h1 { "Locks" }
        (filter(&viewer, &wanted))
        div #locks data-live="" {
            p {
                (count(rows.len(), "name")) ", page " (page) " of " (pages)
                @if view.is_partial { ". There are more names than one look lists" }
                @if let Some(failing) = &view.failing {
                    ". " span.bad { "The store cannot be read now: " (failing) }
                    @if let Some(at) = view.at { ". The table is as of " (moment(at)) }
                } "."
            }
            @if view.at.is_none() {
                p { "The store was not read yet." }
            } @else if rows.is_empty() {
                p { "No name that is held, waited for or frozen fits the filter." }
            } @else {
                div #locks-table.scroll tabindex="0" role="region" aria-label="Locks" {
                    table {
                        thead { tr { (heads(&viewer, &wanted)) } }
                        tbody { @for (_, row) in shown { (table_row(&viewer, row, age)) } }
                    }
                }
            }
            @if pages > 1 {
                nav.pages aria-label="Pages of the table" {
                    @if page > 1 {
                        a href=(wanted.url(&viewer, page - 1)) rel="prev" { "Previous page" }
                    }
                    @if page < pages {
                        a href=(wanted.url(&viewer, page + 1)) rel="next" { "Next page" }
                    }
                }
            }
        }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Locks".to_owned(), main })
}

/// Reads a filter: words that occur in any field, or `field:word`.
fn terms(text: &str) -> Result<Vec<Term>, Fault> {
    if text.len() > MOST_TEXT {
        let detail = format!("it has {} bytes", text.len());
        return Err(Fault::invalid("q", detail, format!("use at most {MOST_TEXT} bytes")));
    }
    let term = |term: &str| {
        let named = term.split_once(':').and_then(|(name, word)| {
            let (_, column) = FILTERS.iter().find(|(word, _)| *word == name)?;
            Some(Term { column: Some(*column), word: word.to_lowercase() })
        });
        named.unwrap_or_else(|| Term { column: None, word: term.to_lowercase() })
    };
    Ok(text.split_whitespace().map(term).collect())
}

impl Wanted {
    fn has(&self, row: &Row, terms: &[Term]) -> bool {
        let lock = &row.lock;
        let is_of_state = match self.state {
            StateFilter::All => true,
            StateFilter::Held => lock.holder_count > 0,
            StateFilter::Waiting => lock.queue_length > 0,
            StateFilter::Frozen => lock.freeze.is_some(),
            StateFilter::Revoked => {
                lock.holders.iter().any(|h| matches!(h.state, GrantState::Revoked(_)))
            }
        };
        is_of_state && terms.iter().all(|term| occurs(row, term))
    }

    fn url(&self, viewer: &Viewer, page: usize) -> String {
        self.sorted_url(viewer, page, self.sort, self.descending)
    }

    fn sorted_url(&self, viewer: &Viewer, page: usize, sort: Column, down: bool) -> String {
        let page = if page == 1 { String::new() } else { page.to_string() };
        let is_all = self.state == StateFilter::All;
        let state = if is_all { "" } else { word(&STATE_FILTERS, &self.state) };
        let is_usual = sort == Column::Name && !down;
        let sort = if is_usual { "" } else { word(&COLUMNS, &sort) };
        let order = if down { "down" } else { "" };
        let parameters = [
            ("q", &*self.text),
            ("state", state),
            ("sort", sort),
            ("order", order),
            ("page", &page),
        ];
        viewer.link(SECTION.path) + &query(&parameters)
    }
}

fn occurs(row: &Row, term: &Term) -> bool {
    let contains = |text: &str| text.to_lowercase().contains(&term.word);
    let is_in =
        |fields: &HolderFields, column| text_of(column).is_some_and(|text| contains(text(fields)));
    let in_fields = |fields: &HolderFields| match term.column {
        Some(column) => is_in(fields, column),
        None => FILTERS.iter().any(|(_, column)| is_in(fields, *column)),
    };
    (term.column.is_none_or(|column| column == Column::Name) && contains(row.lock.name.as_str()))
        || row.lock.holders.iter().any(|holder| in_fields(&holder.summary.metadata.fields()))
}

/// Returns how to read the text of a column; `None` if it has other values than the texts of a
/// holder.
fn text_of(column: Column) -> Option<fn(&HolderFields) -> &str> {
    match column {
        Column::Program => Some(|fields| &fields.program),
        Column::Host => Some(|fields| &fields.host),
        Column::User => Some(|fields| &fields.user),
        Column::Reason => Some(|fields| &fields.reason),
        _ => None,
    }
}

/// Compares by a column of no texts, then by name.
fn compare(sort: Column, one: &Row, other: &Row) -> Ordering {
    let held_for = |row: &Row| row.first().and_then(|(holder, _)| holder.summary.held_for);
    let slack = |row: &Row| row.first().and_then(|(_, slack)| slack);
    let token = |row: &Row| row.first().and_then(|(h, _)| h.summary.token).map(FencingToken::get);
    let by_column = match sort {
        Column::Since => held_for(other).cmp(&held_for(one)),
        Column::Slack => slack(one).cmp(&slack(other)),
        Column::Token => token(one).cmp(&token(other)),
        Column::Waiters => one.lock.queue_length.cmp(&other.lock.queue_length),
        _ => Ordering::Equal,
    };
    by_column.then_with(|| one.lock.name.cmp(&other.lock.name))
}

fn filter(viewer: &Viewer, wanted: &Wanted) -> Markup {
    html! {
        form.filter method="get" action=(viewer.link(SECTION.path)) role="search" {
            label {
                "Filter: words, or field:word"
                input type="search" name="q" value=(wanted.text) maxlength=(MOST_TEXT)
                    placeholder="host:web user:ana";
            }
            label {
                "State"
                select name="state" {
                    @for (word, state) in STATE_FILTERS {
                        option value=(word) selected[state == wanted.state] {
                            (if state == StateFilter::Waiting { "waited for" } else { word })
                        }
                    }
                }
            }
            input type="hidden" name="sort" value=(word(&COLUMNS, &wanted.sort));
            input type="hidden" name="order" value=(if wanted.descending { "down" } else { "up" });
            button { "Show" }
        }
    }
}

fn heads(viewer: &Viewer, wanted: &Wanted) -> Markup {
    let is_number =
        |column| matches!(column, Column::Since | Column::Slack | Column::Token | Column::Waiters);
    let head = |column: Column, label: &str| {
        let is_sorted = wanted.sort == column;
        let sorted =
            is_sorted.then_some(if wanted.descending { "descending" } else { "ascending" });
        let url = wanted.sorted_url(viewer, 1, column, is_sorted && !wanted.descending);
        html! {
            th.number[is_number(column)] scope="col" aria-sort=[sorted] {
                a id=(format!("sort-{}", word(&COLUMNS, &column))) href=(url) { (label) }
                @if is_sorted { (if wanted.descending { " ↓" } else { " ↑" }) }
            }
        }
    };
    html! {
        (head(Column::Name, "Name"))
        th scope="col" { "Mode" }
        (head(Column::Waiters, "Waiters"))
        (head(Column::Program, "Program"))
        th scope="col" { "Reason" }
        (head(Column::Host, "Host"))
        th.number scope="col" { "Pid" }
        (head(Column::User, "User"))
        (head(Column::Since, "Since"))
        th scope="col" { "Lease left" }
        (head(Column::Slack, "Slack"))
        (head(Column::Token, "Token"))
    }
}

fn table_row(viewer: &Viewer, row: &Row, age: Duration) -> Markup {
    let lock = &row.lock;
    let name = lock.name.as_str();
    let first = row.first();
    let fields = first.map(|(holder, _)| holder.summary.metadata.fields()).unwrap_or_default();
    let held_for = first.and_then(|(holder, _)| holder.summary.held_for);
    let id = query(&[("name", name)]);
    let href = viewer.link("/lock") + &id;
    html! {
        tr {
            th scope="row" { a.name id=(format!("lock{id}")) href=(href) { (cell(name)) } }
            td { (state(row)) }
            td.number {
                @if lock.queue_length > 0 { strong { (lock.queue_length) } } @else { "0" }
            }
            td {
                (or_dash(&fields.program))
                @if lock.holder_count > 1 { " and " (lock.holder_count - 1) " more" }
            }
            td {
                @match &lock.freeze {
                    Some(freeze) => (or_dash(&freeze.reason)),
                    None => (or_dash(&fields.reason)),
                }
            }
            td { (or_dash(&fields.host)) }
            td.number { (figure(fields.pid)) }
            td { (or_dash(&fields.user)) }
            td.number {
                (figure(held_for.map(|held_for| short(held_for.saturating_add(age)))))
            }
            td.lease { (lease_bar(row, age)) }
            td.number { (figure(first.and_then(|(_, slack)| slack).map(short))) }
            td.number { (figure(first.and_then(|(holder, _)| holder.summary.token))) }
        }
    }
}

fn state(row: &Row) -> Markup {
    let lock = &row.lock;
    let mode = row.first().map(|(holder, _)| match holder.summary.mode {
        Mode::Exclusive => "exclusive".to_owned(),
        Mode::Shared => count(lock.holder_count, "reader"),
        Mode::Permits { count, of } => format!("{count} of {of} permits"),
    });
    html! {
        @if let Some(mode) = mode { (mode) } @else { "free" }
        @if let Some(freeze) = &lock.freeze {
            " " span.tag.warn { (if freeze.active { "frozen" } else { "freeze waits" }) }
        }
        @if lock.holders.iter().any(|h| matches!(h.state, GrantState::Revoked(_))) {
            " " span.tag.bad { "revoked" }
        }
    }
}

fn lease_bar(row: &Row, age: Duration) -> Markup {
    let Some((holder, _)) = row.first() else { return html! { "–" } };
    if holder.summary.no_expiry {
        return html! { span.tag.bad { "no expiry" } };
    }
    let Some(left) = holder.summary.left else { return html! { "no lease" } };
    let left = left.saturating_sub(age);
    let stated = holder.summary.metadata.fields().lease_duration_ms;
    let lease = stated.map_or(DEFAULT_LEASE.as_millis(), u128::from);
    let left_ms = left.as_millis();
    html! {
        meter min="0" max=(lease.max(left_ms)) low=(lease / 5) value=(left_ms)
            aria-label="Lease left" {}
        " " (short(left))
    }
}
