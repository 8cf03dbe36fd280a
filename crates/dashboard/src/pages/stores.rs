//! The checks of each store, and what to do: the page of `holdline doctor`.

use axum::Router;
use axum::routing::get;
use futures_util::future::join_all;
use holdline_core::{Checkup, Health};
use maud::{Markup, html};

use crate::checks::{Checked, Checks};
use crate::fault::Fault;
use crate::layout::{Page, Section};
use crate::site::{Query, Site, StoreEntry, Viewer};
use crate::table::{Column, Head, table};
use crate::text::{Text, moment};

pub(crate) const SECTION: Section = Section { title: "Stores", path: "/stores", routes };

fn routes() -> Router<Site> {
    Router::new().route("/dashboard/stores", get(show))
}

async fn show(viewer: Viewer, Query(fields): Query) -> Result<Page, Fault> {
    fields.finish()?;
    viewer.may_see_servers()?;
    let checked =
        viewer.stores().enumerate().map(async |(at, StoreEntry { store, checks, .. })| {
            let result = match checks {
                Some(checks) => checks.checkup.result().await,
                None => None,
            };
            one(at, store.name(), checks.as_ref(), result.as_deref())
        });
    let checked = join_all(checked).await;
    let main = html! {
        h1 { "Stores" }
        p { "The checks of " code { "holdline doctor" } ". They change nothing and lock nothing." }
        @for store in &checked { (store) }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Stores".to_owned(), main })
}

/// One store.
fn one(
    at: usize,
    name: &str,
    checks: Option<&Checks>,
    result: Option<&Checked<Checkup>>,
) -> Markup {
    let id = format!("store-{at}");
    let heading = format!("store-{at}-name");
    html! {
        section #(id) data-live="" aria-labelledby=(heading) {
            h2 #(heading) { (name) }
            @match (checks, result.map(|checked| (&checked.result, checked.at))) {
                (None, _) => p { "This server was started without the URL of the store." },
                (Some(checks), None) => {
                    p { code { (Text(&checks.url)) } }
                    p { "The checks have no result yet. The page of a slow store needs a while." }
                }
                (Some(checks), Some((Err(message), _))) => {
                    p { code { (Text(&checks.url)) } }
                    p.bad { "It cannot be checked: " (Text(message)) "." }
                }
                (Some(checks), Some((Ok(checkup), at))) => {
                    p {
                        code { (Text(&checks.url)) } ", engine " (checkup.engine()) ": "
                        (health(checkup.health())) ". "
                        span.muted { "Checked " (moment(at)) "." }
                    }
                    (findings(name, &id, checkup))
                }
            }
        }
    }
}

const FINDINGS: [Head; 4] =
    [Column("Check"), Column("Result"), Column("Found"), Column("What to do")];

fn findings(store: &str, id: &str, checkup: &Checkup) -> Markup {
    let label = format!("Checks of {store}");
    let rows = html! {
        @for finding in checkup.findings() {
            tr {
                th scope="row" { (finding.check()) }
                td { (health(finding.health())) }
                td.prose {
                    (Text(finding.found()))
                    @if finding.health() != Health::Ok {
                        br;
                        span.muted { "It matters: " (finding.matters()) "." }
                    }
                }
                td.prose {
                    @match finding.fix() {
                        Some(fix) => (Text(fix)),
                        None => span.muted { "–" },
                    }
                }
            }
        }
    };
    html! {
        (table(&format!("{id}-checks"), &label, &FINDINGS, &rows))
    }
}

/// The result of a check, as a word and a colour.
fn health(health: Health) -> Markup {
    let class = match health {
        Health::Ok => "good",
        Health::Warning => "warn",
        Health::Error => "bad",
    };
    html! { span class=(class) { (health) } }
}
