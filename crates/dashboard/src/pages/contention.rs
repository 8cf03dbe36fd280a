//! The waiting that holders have caused, by name and by holder.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use holdline_core::LockName;
use maud::{Markup, html};

use crate::chart;
use crate::fault::Fault;
use crate::history::Blame;
use crate::layout::{Page, Section, lock_link};
use crate::site::{Query, Site, Viewer};
use crate::table::{Bars, Column, Figures, Head, table};
use crate::text::{cell, short};

pub(crate) const SECTION: Section = Section { title: "Contention", path: "/contention", routes };

/// How many rows a table has.
const ROWS: usize = 50;

fn routes() -> Router<Site> {
    Router::new().route("/dashboard/contention", get(show))
}

async fn show(viewer: Viewer, Query(fields): Query) -> Result<Page, Fault> {
    fields.finish()?;
    viewer.site.follower.fresh_view().await;
    let main = {
        let history = viewer.site.follower.history();
        let sees = |(name, _): &(&LockName, &Blame)| viewer.identity.covers(name.as_str());
        let mut names: Vec<_> = history.waiting().filter(sees).collect();
        names.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
        let mut holders: BTreeMap<&str, f64> = BTreeMap::new();
        for (_, blame) in &names {
            for (holder, seconds) in &blame.holders {
                *holders.entry(holder).or_default() += seconds;
            }
        }
        let mut holders: Vec<_> = holders.into_iter().collect();
        holders.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        html! {
            h1 { "Contention" }
            p {
                "Waiting time is that of all waiters together: ten contenders that wait for a "
                "minute are ten minutes. A holder is charged with what others wait while it holds."
            }
            div #contention data-live="" {
                @if names.is_empty() { p { "Nobody was seen waiting." } } @else {
                    div.columns {
                        section aria-labelledby="by-name" { (by_name(&viewer, &names)) }
                        section aria-labelledby="by-holder" { (by_holder(&holders)) }
                    }
                }
            }
        }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Contention".to_owned(), main })
}

const BY_NAME: [Head; 4] = [Column("Name"), Figures("Waiting time"), Bars, Figures("Most at once")];

const BY_HOLDER: [Head; 3] = [Column("Holder"), Figures("Waiting time"), Bars];

fn by_name(viewer: &Viewer, names: &[(&LockName, &Blame)]) -> Markup {
    let most = names.first().map_or(1.0, |(_, blame)| blame.seconds.max(0.001));
    let rows = html! {
        @for (name, blame) in names.iter().take(ROWS) {
            tr {
                th scope="row" { (lock_link(viewer, name.as_str())) }
                (waiting(blame.seconds, most))
                td.number { (blame.peak) }
            }
        }
    };
    html! {
        h2 #by-name { "By name" }
        (table("contention-names", "Waiting by name", &BY_NAME, &rows))
    }
}

fn by_holder(holders: &[(&str, f64)]) -> Markup {
    let most = holders.first().map_or(1.0, |(_, seconds)| seconds.max(0.001));
    let rows = html! {
        @for (holder, seconds) in holders.iter().take(ROWS) {
            tr {
                th scope="row" { (cell(holder)) }
                (waiting(*seconds, most))
            }
        }
    };
    html! {
        h2 #by-holder { "By holder" }
        (table("contention-holders", "Waiting by holder", &BY_HOLDER, &rows))
    }
}

/// Shows a time, and a bar for its share of the longest.
fn waiting(seconds: f64, most: f64) -> Markup {
    let shown = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    html! {
        td.number { (short(shown)) }
        td { (chart::bar(seconds / most)) }
    }
}
