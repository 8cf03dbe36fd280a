//! The frame of every page: navigation, stores, who looks at it, since when this server has seen.

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use maud::{Markup, html};

use crate::shell::Shell;
use crate::site::{Site, StoreEntry, Viewer};
use crate::text::{Text, cell, moment, query};

/// A page of the navigation.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// The path below `/dashboard`; empty for the first page.
    pub(crate) path: &'static str,
    /// The routes, with paths from `/dashboard` on.
    pub(crate) routes: fn() -> Router<Site>,
}

/// Links to the page of a lock.
pub(crate) fn lock_link(viewer: &Viewer, name: &str) -> Markup {
    let href = viewer.link("/lock") + &query(&[("name", name)]);
    html! { a.name href=(href) { (cell(name)) } }
}

/// A page, ready to be sent.
pub(crate) struct Page {
    pub(crate) viewer: Viewer,
    /// The path of its section.
    pub(crate) section: &'static str,
    pub(crate) title: String,
    pub(crate) main: Markup,
}

impl Page {
    fn banner(&self) -> Markup {
        let viewer = &self.viewer;
        let dashboard = &viewer.site.dashboard;
        html! {
            a.brand href=(viewer.link("")) { "Holdline" }
            nav aria-label="Pages" {
                ul {
                    @for (title, path) in &dashboard.sections {
                        @let current = (*path == self.section).then_some("page");
                        li { a href=(viewer.link(path)) aria-current=[current] { (title) } }
                    }
                }
            }
            @if dashboard.stores.len() > 1 {
                nav aria-label="Stores" {
                    ul {
                        @for StoreEntry { store, base, .. } in viewer.stores() {
                            @let name = store.name();
                            @let current = (name == viewer.site.store.name()).then_some("true");
                            @let path = format!("{base}/dashboard{}", self.section);
                            li { a href=(path) aria-current=[current] { (name) } }
                        }
                    }
                }
            }
            div.who {
                span #live-status role="status" {}
                button #live-pause type="button" hidden aria-pressed="false" { "Pause" }
                span { "You are " (Text(viewer.identity.name())) }
                @if viewer.has_session {
                    form method="post" action=(viewer.link("/logout")) {
                        (viewer.form_token())
                        button { "Log out" }
                    }
                }
            }
        }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let banner = self.banner();
        let Page { viewer, title, main, .. } = self;
        let footer = html! {
            p {
                "History is what this server has seen since "
                (moment(viewer.site.dashboard.since))
                ". Figures of a store are as old as the last look at it."
            }
        };
        let live = Some(viewer.link("/live"));
        Shell { title: &title, banner, live, main, footer }.response(StatusCode::OK)
    }
}
