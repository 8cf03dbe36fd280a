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
use crate::text::{cell, count, moment, or_dash, query, short};

pub(crate) const SECTION: Section = Section { title: "Locks", path: "/locks", routes };

/// How many rows a page has.
const ROWS: usize = 100;
/// The longest filter: a whole name.
const MOST_TEXT: usize = MAX_NAME_BYTES;

const STATES: [(&str, &str); 5] = [
    ("all", "all"),
    ("held", "held"),
    ("waiting", "waited for"),
    ("frozen", "frozen"),
    ("revoked", "revoked"),
];
/// The columns that sort, and the fields that a filter can name.
const COLUMNS: [(&str, &str); 8] = [
    ("name", "Name"),
    ("program", "Program"),
    ("host", "Host"),
    ("user", "User"),
    ("since", "Since"),
    ("slack", "Slack"),
    ("token", "Token"),
    ("waiters", "Waiters"),
];
const FILTERS: [&str; 5] = ["name", "program", "host", "user", "reason"];

fn routes() -> Router<Site> {
    Router::new().route("/dashboard/locks", get(show)).merge(lock::routes())
}

/// What the URL asks for.
struct Wanted {
    text: String,
    state: &'static str,
    sort: &'static str,
    descending: bool,
    page: usize,
}

async fn show(viewer: Viewer, Query(mut fields): Query) -> Result<Page, Fault> {
    let words = |words: &[(&'static str, &str)]| -> Vec<(&'static str, &'static str)> {
        words.iter().map(|(word, _)| (*word, *word)).collect()
    };
    let wanted = Wanted {
        text: fields.take("q").unwrap_or_default(),
        state: fields.choice("state", &words(&STATES))?.unwrap_or("all"),
        sort: fields.choice("sort", &words(&COLUMNS))?.unwrap_or("name"),
        descending: fields.choice("order", &[("up", false), ("down", true)])?.unwrap_or(false),
        page: fields.number("page", (1, 1_000_000))?.unwrap_or(1),
    };
    fields.finish()?;
    let terms = terms(&wanted.text)?;
    let view = viewer.site.seen.fresh_view().await;
    // Leases go on running out while the store cannot be read.
    let age = view.at.and_then(|at| at.elapsed().ok()).unwrap_or_default();
    let rows = view.rows.iter().filter(|row| viewer.identity.covers(row.lock.name.as_str()));
    let rows = rows.filter(|row| wanted.has(row, &terms));
    // To read the fields of a holder costs more than to compare them: once for each row.
    let mut rows: Vec<_> = rows.map(|row| (text_of(wanted.sort, row), row)).collect();
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
fn terms(text: &str) -> Result<Vec<(Option<&str>, String)>, Fault> {
    if text.len() > MOST_TEXT {
        let detail = format!("it has {} bytes", text.len());
        return Err(Fault::invalid("q", detail, format!("use at most {MOST_TEXT} bytes")));
    }
    let term = |term| match str::split_once(term, ':') {
        Some((field, word)) if FILTERS.contains(&field) => (Some(field), word.to_lowercase()),
        _ => (None, term.to_lowercase()),
    };
    Ok(text.split_whitespace().map(term).collect())
}

impl Wanted {
    fn has(&self, row: &Row, terms: &[(Option<&str>, String)]) -> bool {
        let lock = &row.lock;
        let is_of_state = match self.state {
            "held" => lock.holder_count > 0,
            "waiting" => lock.queue_length > 0,
            "frozen" => lock.freeze.is_some(),
            "revoked" => lock.holders.iter().any(|h| matches!(h.state, GrantState::Revoked(_))),
            _ => true,
        };
        is_of_state && terms.iter().all(|(field, word)| occurs(row, *field, word))
    }

    fn url(&self, viewer: &Viewer, page: usize) -> String {
        self.sorted_url(viewer, page, self.sort, self.descending)
    }

    fn sorted_url(&self, viewer: &Viewer, page: usize, sort: &str, down: bool) -> String {
        let page = if page == 1 { String::new() } else { page.to_string() };
        let state = if self.state == "all" { "" } else { self.state };
        let sort = if sort == "name" && !down { "" } else { sort };
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

fn occurs(row: &Row, field: Option<&str>, word: &str) -> bool {
    let contains = |text: &str| text.to_lowercase().contains(word);
    let in_fields = |fields: &HolderFields| match field {
        Some("program") => contains(&fields.program),
        Some("host") => contains(&fields.host),
        Some("user") => contains(&fields.user),
        Some("reason") => contains(&fields.reason),
        Some(_) => false,
        None => {
            let texts = [&fields.program, &fields.host, &fields.user, &fields.reason];
            texts.into_iter().any(|text| contains(text))
        }
    };
    (field.is_none_or(|field| field == "name") && contains(row.lock.name.as_str()))
        || row.lock.holders.iter().any(|holder| in_fields(&holder.summary.metadata.fields()))
}

/// Returns the text of a column of texts.
fn text_of(sort: &str, row: &Row) -> Option<String> {
    let of: fn(HolderFields) -> String = match sort {
        "program" => |fields| fields.program,
        "host" => |fields| fields.host,
        "user" => |fields| fields.user,
        _ => return None,
    };
    row.first().map(|(holder, _)| of(holder.summary.metadata.fields()))
}

/// Compares by a column of no texts, then by name.
fn compare(sort: &str, one: &Row, other: &Row) -> Ordering {
    let held_for = |row: &Row| row.first().and_then(|(holder, _)| holder.summary.held_for);
    let slack = |row: &Row| row.first().and_then(|(_, slack)| slack);
    let token = |row: &Row| row.first().and_then(|(h, _)| h.summary.token).map(FencingToken::get);
    let by_column = match sort {
        "since" => held_for(other).cmp(&held_for(one)),
        "slack" => slack(one).cmp(&slack(other)),
        "token" => token(one).cmp(&token(other)),
        "waiters" => one.lock.queue_length.cmp(&other.lock.queue_length),
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
                    @for (word, label) in STATES {
                        option value=(word) selected[word == wanted.state] { (label) }
                    }
                }
            }
            input type="hidden" name="sort" value=(wanted.sort);
            input type="hidden" name="order" value=(if wanted.descending { "down" } else { "up" });
            button { "Show" }
        }
    }
}

fn heads(viewer: &Viewer, wanted: &Wanted) -> Markup {
    let is_number = |column: &str| ["since", "slack", "token", "waiters"].contains(&column);
    let head = |column: &str, label: &str| {
        let is_sorted = wanted.sort == column;
        let sorted =
            is_sorted.then_some(if wanted.descending { "descending" } else { "ascending" });
        let url = wanted.sorted_url(viewer, 1, column, is_sorted && !wanted.descending);
        html! {
            th.number[is_number(column)] scope="col" aria-sort=[sorted] {
                a id=(format!("sort-{column}")) href=(url) { (label) }
                @if is_sorted { (if wanted.descending { " ↓" } else { " ↑" }) }
            }
        }
    };
    html! {
        (head("name", "Name"))
        th scope="col" { "Mode" }
        (head("waiters", "Waiters"))
        (head("program", "Program"))
        th scope="col" { "Reason" }
        (head("host", "Host"))
        th.number scope="col" { "Pid" }
        (head("user", "User"))
        (head("since", "Since"))
        th scope="col" { "Lease left" }
        (head("slack", "Slack"))
        (head("token", "Token"))
    }
}

fn table_row(viewer: &Viewer, row: &Row, age: Duration) -> Markup {
    let lock = &row.lock;
    let name = lock.name.as_str();
    let first = row.first();
    let fields = first.map(|(holder, _)| holder.summary.metadata.fields()).unwrap_or_default();
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
            td.number { @if let Some(pid) = fields.pid { (pid) } @else { "–" } }
            td { (or_dash(&fields.user)) }
            td.number {
                @match first.and_then(|(holder, _)| holder.summary.held_for) {
                    Some(held_for) => (short(held_for.saturating_add(age))),
                    None => "–",
                }
            }
            td.lease { (lease_bar(row, age)) }
            td.number {
                @match first.and_then(|(_, slack)| slack) {
                    Some(slack) => (short(slack)),
                    None => "–",
                }
            }
            td.number {
                @match first.and_then(|(holder, _)| holder.summary.token) {
                    Some(token) => (token),
                    None => "–",
                }
            }
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
