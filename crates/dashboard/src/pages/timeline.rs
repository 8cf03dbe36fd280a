//! Holds as bars by name: lost ones in red, overlaps of an exclusive lock flagged.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use maud::{Markup, html};

use crate::chart::{self, Track};
use crate::fault::Fault;
use crate::history::{Hold, What, who};
use crate::layout::{Page, Section, lock_link};
use crate::site::{Query, Site, Viewer};
use crate::table::{Column, Head, table};
use crate::text::{Text, figure, moment, short};

pub(crate) const SECTION: Section = Section { title: "Timeline", path: "/timeline", routes };

/// How many names, and how many bars of each, a page has.
const MOST_NAMES: usize = 50;
const MOST_BARS: usize = 200;
const PERIODS: [(&str, u64); 4] = [("10min", 600), ("1h", 3_600), ("6h", 21_600), ("24h", 86_400)];

const HOLDS: [Head; 6] = [
    Column("Name"),
    Column("Holder"),
    Column("From"),
    Column("For"),
    Column("Token"),
    Column("End"),
];

fn routes() -> Router<Site> {
    Router::new().route("/dashboard/timeline", get(show))
}

async fn show(viewer: Viewer, Query(mut fields): Query) -> Result<Page, Fault> {
    let prefix = fields.take("prefix").unwrap_or_default();
    let period = fields.choice("period", &PERIODS)?.unwrap_or(3_600);
    let only_lost = fields.choice("lost", &[("yes", true), ("no", false)])?.unwrap_or(false);
    fields.finish()?;
    viewer.site.follower.fresh_view().await;
    let now = SystemTime::now();
    // Of the time before this server was started, nothing is known.
    let from = (now - Duration::from_secs(period)).max(viewer.site.dashboard.since);
    let main = {
        let history = viewer.site.follower.history();
        let mut names: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in history.holds() {
            let name = hold.name.as_str();
            let is_old = hold.end.as_ref().is_some_and(|(at, _)| *at < from);
            if !is_old && name.starts_with(&prefix) && viewer.identity.covers(name) {
                names.entry(name).or_default().push(hold);
            }
        }
        names.retain(|_, holds| !only_lost || holds.iter().any(|hold| hold.is_lost()));
        let all = names.len();
        let overlaps = |name: &str| {
            let mut notes = history.notes().filter(|n| n.name.as_str() == name && n.at >= from);
            notes.any(|note| matches!(note.what, What::Overlap(_)))
        };
        let rows: Vec<Track<'_>> = names
            .into_iter()
            .take(MOST_NAMES)
            .map(|(name, mut holds)| {
                holds.sort_by_key(|hold| std::cmp::Reverse(hold.from));
                holds.truncate(MOST_BARS);
                Track { label: name, holds, overlaps: overlaps(name) }
            })
            .collect();
        html! {
            h1 { "Timeline" }
            (filter(&viewer, &prefix, period, only_lost))
            div #timeline data-live="" {
                p {
                    "Blue bars are holds, red ones are perhaps expired; the wait before is grey, "
                    "below. A red frame means that two holders of an exclusive lock were seen at "
                    "once."
                    @if all > MOST_NAMES { " Of " (all) " names, " (MOST_NAMES) " are shown." }
                }
                @if rows.is_empty() {
                    p { "No hold was seen in this time." }
                } @else {
                    figure {
                        figcaption { "Holds by name" }
                        (chart::timeline(&rows, from..now))
                        (holds(&viewer, &rows, now))
                    }
                }
            }
        }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Timeline".to_owned(), main })
}

fn filter(viewer: &Viewer, prefix: &str, period: u64, only_lost: bool) -> Markup {
    html! {
        form.filter method="get" action=(viewer.link(SECTION.path)) {
            label { "Names that begin with" input type="search" name="prefix" value=(prefix); }
            label {
                "Period"
                select name="period" {
                    @for (word, seconds) in PERIODS {
                        option value=(word) selected[seconds == period] { (word) }
                    }
                }
            }
            label {
                "Show"
                select name="lost" {
                    option value="no" selected[!only_lost] { "all names" }
                    option value="yes" selected[only_lost] { "names with a lost hold" }
                }
            }
            button { "Show" }
        }
    }
}

fn holds(viewer: &Viewer, rows: &[Track<'_>], now: SystemTime) -> Markup {
    let rows = html! {
        @for row in rows {
            @for hold in &row.holds { (table_row(viewer, row, hold, now)) }
        }
    };
    html! {
        (table("timeline-table", "Holds", &HOLDS, &rows))
    }
}

fn table_row(viewer: &Viewer, row: &Track<'_>, hold: &Hold, now: SystemTime) -> Markup {
    html! {
        tr {
            th scope="row" {
                (lock_link(viewer, row.label))
                @if row.overlaps { " " span.tag.bad { "overlap" } }
            }
            td { (Text(&who(&hold.holder))) }
            td { (moment(hold.from)) }
            td.number { (short(hold.lasted(now))) }
            td.number { (figure(hold.holder.token)) }
            td class=[hold.is_lost().then_some("bad")] {
                @match &hold.end { Some((_, end)) => (end.word()), None => "held" }
            }
        }
    }
}
