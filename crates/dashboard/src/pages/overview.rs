//! The first page: figures, and what needs attention.

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use holdline_core::GrantState;
use maud::{Markup, html};

use crate::fault::Fault;
use crate::history::{History, Hold, Row, What, who};
use crate::layout::{Page, Section, lock_link};
use crate::site::{Query, Site, Viewer};
use crate::store_follower::View;
use crate::table::{Column, Head, table};
use crate::text::{Text, cell, count, moment, query, short};

pub(crate) const SECTION: Section = Section { title: "Overview", path: "", routes };

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A wait that lasts longer needs attention.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// How many sentences of each kind are shown.
const MOST: usize = 10;

fn routes() -> Router<Site> {
    Router::new().route("/dashboard", get(show))
}

async fn show(viewer: Viewer, Query(fields): Query) -> Result<Page, Fault> {
    fields.finish()?;
    let view = viewer.site.follower.fresh_view().await;
    let stores = stores(&viewer);
    let main = {
        let history = viewer.site.follower.history();
        let may_see = |row: &&Row| viewer.identity.covers(row.lock.name.as_str());
        let rows: Vec<&Row> = view.rows.iter().filter(may_see).collect();
        html! {
            h1 { "Overview" }
            div #overview data-live="" {
                (figures(&viewer, &view, &rows, &history))
                h2 { "Needs attention" }
                (attention(&viewer, &view, &rows, &history))
                h2 { "Stores" }
                (stores)
            }
        }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Overview".to_owned(), main })
}

fn within_a_day(at: SystemTime) -> bool {
    at.elapsed().is_ok_and(|age| age < DAY)
}

/// The holds of the last day whose lease may have run out.
fn lost<'a>(viewer: &'a Viewer, history: &'a History) -> impl Iterator<Item = &'a Hold> {
    history.holds().filter(|hold| {
        let at = hold.end.as_ref().map(|(at, _)| *at);
        let is_late = at.is_some_and(within_a_day);
        hold.is_lost() && is_late && viewer.identity.covers(hold.name.as_str())
    })
}

fn figures(viewer: &Viewer, view: &View, rows: &[&Row], history: &History) -> Markup {
    let sees = |name: &str| viewer.identity.covers(name);
    let held = rows.iter().filter(|row| row.lock.holder_count > 0).count();
    let waiting: usize = rows.iter().map(|row| row.lock.queue_length).sum();
    let frozen = rows.iter().filter(|row| row.lock.freeze.is_some()).count();
    let lost = lost(viewer, history).count();
    let close = history.notes().filter(|note| {
        let is_late = matches!(note.what, What::LateRenewal(_));
        is_late && within_a_day(note.at) && sees(note.name.as_str())
    });
    let state = |state: &str| viewer.link("/locks") + &query(&[("state", state)]);
    html! {
        dl.figures {
            div { dt { a href=(state("held")) { "names held" } } dd { (held) } }
            div { dt { a href=(state("waiting")) { "waiting" } } dd { (waiting) } }
            div { dt { a href=(state("frozen")) { "frozen" } } dd { (frozen) } }
            div {
                dt { a href=(viewer.link("/timeline?lost=yes")) { "lost in 24 h" } }
                dd.bad[lost > 0] { (lost) }
            }
            div { dt { "leases renewed late in 24 h" } dd { (close.count()) } }
        }
        p.muted {
            @match view.at {
                Some(at) => {
                    "Last look at the store: " (moment(at)) ", it took "
                    @if view.took.as_millis() == 0 { "less than 1 ms" } @else { (short(view.took)) }
                    "."
                }
                None => "The store was not read yet.",
            }
        }
    }
}

fn attention(viewer: &Viewer, view: &View, rows: &[&Row], history: &History) -> Markup {
    let mut notes: Vec<(&str, Markup)> = Vec::new();
    if let Some(failing) = &view.failing {
        let stores = "The log of the server has the details; `holdline doctor` names remedies.";
        notes.push(("bad", html! { "The store cannot be read: " (failing) ". " (stores) }));
    }
    if view.is_partial {
        notes.push(("warn", html! {
            "There are more names than one look lists: the last ones, in byte order, are not here. "
            "Use `holdline ls PREFIX` for them."
        }));
    }
    notes.extend(of_the_past(viewer, history));
    let long = |row: &&&Row| row.lock.queue.first().and_then(|w| w.waited) > Some(LONG_WAIT);
    for row in rows.iter().filter(long).take(MOST) {
        let waited = row.lock.queue.first().and_then(|w| w.waited).unwrap_or_default();
        notes.push((
            "warn",
            html! {
                (count(row.lock.queue_length, "contender")) " wait for "
                (lock_link(viewer, row.lock.name.as_str())) ", the first for " (short(waited))
                ". Look at its holder; revoke it if it is stuck."
            },
        ));
    }
    for row in rows {
        if notes.len() >= 6 * MOST {
            break;
        }
        let name = row.lock.name.as_str();
        if row.lock.holders.iter().any(|h| matches!(h.state, GrantState::Revoked(_))) {
            notes.push(("warn", html! {
                (lock_link(viewer, name)) " is revoked and still held, until its holder stops or "
                "its lease ends."
            }));
        }
        if let Some(freeze) = &row.lock.freeze {
            notes.push((
                "warn",
                html! {
                    (lock_link(viewer, name)) " is frozen for " (short(freeze.left)) ": "
                    (cell(&freeze.reason)) ". Unfreeze it there."
                },
            ));
        }
    }
    html! {
        ul.notes {
            @for (class, note) in &notes { li class=(class) { (note) } }
            @if notes.is_empty() { li.good { "Nothing that this server has seen." } }
        }
    }
}

/// What went wrong with leases of the last day.
fn of_the_past(viewer: &Viewer, history: &History) -> Vec<(&'static str, Markup)> {
    let mut notes = Vec::new();
    for note in history.notes().filter(|n| viewer.identity.covers(n.name.as_str())).take(MOST) {
        if let What::Overlap(holders) = note.what {
            notes.push((
                "bad",
                html! {
                    "At " (moment(note.at)) " the store showed " (count(holders, "holder")) " of "
                    (lock_link(viewer, note.name.as_str())) " at once, one of them exclusive. "
                    "Stop the writers, and run `holdline doctor`."
                },
            ));
        }
    }
    for hold in lost(viewer, history).take(MOST) {
        notes.push((
            "bad",
            html! {
                "The lease of " (Text(&who(&hold.holder))) " for "
                (lock_link(viewer, hold.name.as_str())) " perhaps ran out"
                @if let Some((at, _)) = &hold.end { ", seen at " (moment(*at)) }
                ". Check what it wrote after that, unless its data reject stale fencing tokens."
            },
        ));
    }
    notes
}

const STORES: [Head; 3] = [Column("Store"), Column("Engine"), Column("State")];

fn stores(viewer: &Viewer) -> Markup {
    let view = viewer.site.follower.view();
    let capabilities = viewer.site.store.client().capabilities();
    let rows = html! {
        tr {
            th scope="row" { (viewer.site.store.name()) }
            td { (capabilities.engine) }
            td {
                @match &view.failing {
                    Some(failing) => span.bad { "failing: " (failing) },
                    None if view.at.is_none() => "not read yet",
                    None => span.good { "answers" },
                }
            }
        }
    };
    html! {
        (table("overview-store", "The store", &STORES, &rows))
        @if viewer.site.dashboard.stores.len() > 1 {
            p { "The other stores have pages of their own: choose one at the top." }
        }
    }
}
