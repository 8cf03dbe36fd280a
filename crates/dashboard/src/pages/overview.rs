//! The first page.

use axum::Router;
use axum::routing::get;
use maud::html;

use crate::fault::Fault;
use crate::layout::{Page, Section};
use crate::site::{Query, Site, Viewer};

pub(crate) const SECTION: Section = Section { title: "Overview", path: "", routes };

fn routes() -> Router<Site> {
    Router::new().route("/dashboard", get(show))
}

async fn show(viewer: Viewer, Query(fields): Query) -> Result<Page, Fault> {
    fields.finish()?;
    let main = html! {
        h1 { "Overview" }
        p { "Store " (viewer.site.store.name()) }
    };
    Ok(Page { viewer, section: SECTION.path, title: "Overview".to_owned(), main })
}
