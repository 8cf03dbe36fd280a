//! The servers of a quorum: which of them vote, why others do not, and what to do.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use holdline::redlock::{NodeState, NodeStatus, QuorumStatus};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::layout::{Page, Section};
use crate::site::{Query, Site, Viewer};
use crate::table::{Column, Figures, Head, table};
use crate::text::{Text, moment, short};

pub(crate) const SECTION: Section = Section { title: "Quorum", path: super::OF_QUORUM, routes };

fn routes() -> Router<Site> {
    Router::new().route("/dashboard/quorum", get(show))
}

async fn show(viewer: Viewer, Query(fields): Query) -> Result<Page, Fault> {
    fields.finish()?;
    viewer.may_see_servers()?;
    let check = viewer.site.checks().and_then(|checks| checks.quorum.as_ref());
    let shown = match check {
        None => {
            html! { p { "This store is one server, or servers with a leader: it has no votes." } }
        }
        Some(check) => match check.result().await.as_deref() {
            None => html! { p { "The servers were not asked yet, or do not answer in time." } },
            Some(checked) => match &checked.result {
                Err(message) => html! { p { (Text(message)) "." } },
                Ok(status) => html! {
                    (set(status))
                    p.muted { "The servers were asked " (moment(checked.at)) "." }
                    (nodes(&status.nodes))
                    (problems(status))
                },
            },
        },
    };
    let main = html! {
        h1 { "Quorum" }
        div #quorum data-live="" { (shown) }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Quorum".to_owned(), main })
}

fn set(status: &QuorumStatus) -> Markup {
    let class = match (status.works(), status.may_lose) {
        (false, _) => "bad",
        (true, 0) => "warn",
        (true, _) => "good",
    };
    let longest = status.max_lease_ms.map(Duration::from_millis);
    html! {
        ul.notes { li class=(class) { (status.summary()) "." } }
        dl.figures {
            div { dt { "vote" } dd { (status.votes) " of " (status.nodes.len()) } }
            div { dt { "must agree" } dd { (status.majority) } }
            div { dt { "may still fail" } dd { (status.may_lose) } }
            @if let Some(epoch) = status.epoch { div { dt { "epoch" } dd { (epoch) } } }
            @if let Some(longest) = longest {
                div { dt { "longest lease" } dd { (short(longest)) } }
            }
        }
    }
}

const NODES: [Head; 8] = [
    Column("Server"),
    Column("State"),
    Figures("Up for"),
    Figures("Round trip"),
    Figures("Clock"),
    Figures("Epoch"),
    Figures("Votes in"),
    Figures("Largest token"),
];

fn nodes(nodes: &[NodeStatus]) -> Markup {
    let rows = html! {
        @for one in nodes { (node(one)) }
    };
    html! {
        (table("quorum-nodes", "The servers", &NODES, &rows))
    }
}

fn node(node: &NodeStatus) -> Markup {
    let class = match node.state {
        NodeState::Votes => "good",
        NodeState::Quarantined | NodeState::Forgot | NodeState::Behind => "warn",
        _ => "bad",
    };
    let time = |ms: Option<u64>| ms.map(|ms| short(Duration::from_millis(ms)));
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let cells = [
        time(node.up_for_ms),
        node.round_trip_us.map(|us| format!("{}.{:03} ms", us / 1_000, us % 1_000)),
        node.clock_offset_us.map(offset),
        number(node.epoch),
        time(node.quarantine_left_ms),
        number(node.largest_token),
    ];
    html! {
        tr {
            th scope="row" { (Text(&node.address)) }
            td { span class=(class) { (node.state) } }
            @for cell in &cells {
                td.number {
                    @match cell {
                        Some(cell) => (cell),
                        None => span.muted { "–" },
                    }
                }
            }
        }
    }
}

/// Writes how far a clock is ahead of the median.
fn offset(us: i64) -> String {
    let sign = if us < 0 { '−' } else { '+' };
    let us = us.unsigned_abs();
    format!("{sign}{}.{:03} ms", us / 1_000, us % 1_000)
}

fn problems(status: &QuorumStatus) -> Markup {
    let of_set = (status.problem.as_deref(), status.fix.as_deref());
    let of_nodes = status
        .nodes
        .iter()
        .map(|node| (Some(node.address.as_str()), (node.problem.as_deref(), node.fix.as_deref())));
    let all = std::iter::once((None, of_set)).chain(of_nodes);
    let all: Vec<_> = all.filter_map(|(at, (problem, fix))| Some((at, problem?, fix))).collect();
    html! {
        @if !all.is_empty() {
            h2 { "What to do" }
            ul.notes {
                @for (at, problem, fix) in &all {
                    li.warn {
                        @if let Some(at) = at { strong { (Text(at)) } ": " }
                        (Text(problem)) ". "
                        @if let Some(fix) = fix { "To do: " (Text(fix)) "." }
                    }
                }
            }
        }
        @if status.nodes.len().is_multiple_of(2) {
            p { "An even number of servers tolerates no more failures than one server fewer." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_or_behind() {
        assert_eq!(offset(12_345), "+12.345 ms");
        assert_eq!(offset(-7), "−0.007 ms");
    }
}
