//! What operators did, as the store has recorded it: who, from where, when, why.

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use holdline::watch::NamePattern;
use holdline_core::name::MAX_NAME_BYTES;
use holdline_core::{AuditEntry, AuditId, AuditOutcome, AuditPage, AuditRecord, AuditRequest};
use holdline_server::Kind;
use maud::{Markup, html};

use crate::fault::Fault;
use crate::layout::{Page, Section, lock_link};
use crate::site::{Query, Site, Viewer};
use crate::table::{Column, Figures, Head, table};
use crate::text::{cell, figure, moment, or_dash, query};

pub(crate) const SECTION: Section = Section { title: "Audit", path: "/audit", routes };

/// How many rows a page has.
const ROWS: usize = 100;

fn routes() -> Router<Site> {
    Router::new().route("/dashboard/audit", get(show))
}

async fn show(viewer: Viewer, Query(mut fields): Query) -> Result<Page, Fault> {
    let text = fields.take("q").unwrap_or_default();
    let before = fields.take("before").map(|text| text.parse::<AuditId>()).transpose();
    let before = before.map_err(|error| {
        Fault::invalid("before", error.to_string(), "follow a link of the page Audit")
    })?;
    fields.finish()?;
    let pattern = NamePattern::new(&text).map_err(|error| {
        Fault::invalid("q", error.to_string(), "write a name, with * for any text")
    })?;
    let wanted = |entry: &AuditEntry| match &entry.record.name {
        _ if text.is_empty() => true,
        Some(name) => pattern.matches(name),
        None => false,
    };
    let request = AuditRequest { since_ms: 0, before, limit: ROWS };
    let records = match viewer.site.store.audit(&viewer.identity, &request, wanted).await {
        Ok(page) => Some(page),
        Err(problem) if problem.kind() == Kind::Unsupported => None,
        Err(problem) => return Err(problem.into()),
    };
    let main = html! {
        h1 { "Audit" }
        @match &records {
            Some(page) => {
                p {
                    "What operators did: by the command line, the API and these pages. The store "
                    "keeps about the newest 10000 records. Requests that were refused with 403 are "
                    "not recorded."
                }
                form.filter method="get" action=(viewer.link("/audit")) {
                    label {
                        "Name"
                        input type="search" name="q" value=(text) maxlength=(MAX_NAME_BYTES);
                    }
                    button { "Filter" }
                }
                div #audit data-live="" { (table_of(&viewer, page, &text)) }
            }
            None => p {
                "This store keeps no audit trail. The records of this server go to the file of its "
                "setting " code { "audit_file" } ", if there is one."
            },
        }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Audit".to_owned(), main })
}

const RECORDS: [Head; 8] = [
    Column("Time"),
    Column("Who"),
    Column("From"),
    Column("Action"),
    Column("Name"),
    Figures("Token"),
    Column("Reason"),
    Column("Outcome"),
];

fn table_of(viewer: &Viewer, page: &AuditPage, text: &str) -> Markup {
    let rows = html! { @for entry in &page.entries { (row(viewer, entry)) } };
    html! {
        @if page.entries.is_empty() { p { "There are no records." } } @else {
            (table("audit-records", "Records", &RECORDS, &rows))
        }
        @if let Some(before) = page.before {
            @let older = query(&[("q", text), ("before", &before.to_string())]);
            nav.pages aria-label="Pages of the table" {
                a href=(viewer.link("/audit") + &older) rel="next" { "Older records" }
            }
        }
    }
}

fn row(viewer: &Viewer, AuditEntry { id, record }: &AuditEntry) -> Markup {
    let AuditRecord { action, who, from, name, fencing_token, reason, outcome, detail } = record;
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(id.at_ms));
    let class = match outcome {
        AuditOutcome::Done | AuditOutcome::Notified => "good",
        AuditOutcome::NothingThere | AuditOutcome::Refused => "warn",
        AuditOutcome::Unknown => "bad",
    };
    html! {
        tr {
            th scope="row" { @if let Some(at) = at { (moment(at)) } @else { "?" } }
            td { (or_dash(who)) }
            td { (or_dash(from)) }
            td { (cell(action)) }
            td {
                @if let Some(name) = name {
                    (lock_link(viewer, name.as_str()))
                } @else { span.muted { "the store" } }
            }
            td.number { (figure(fencing_token.as_ref())) }
            td.prose { (or_dash(reason)) }
            td {
                span class=(class) { (outcome.word().replace('_', " ")) }
                @if !detail.is_empty() { ": " (cell(detail)) }
            }
        }
    }
}
