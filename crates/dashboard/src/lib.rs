//! The dashboard: pages over the server's API that show who holds what, who waits and what to do.
//!
//! No rule about locks lives here. Pages read what the server reads, and their actions are the
//! functions behind the API's own, with the same rights, stores and prefixes.
//!
//! - P1: pages need no script to be read. The script only exchanges the parts of a page that have
//!   changed.
//! - P2: a page loads its own style and script from this binary and nothing else; its policy
//!   (`Content-Security-Policy`) allows nothing more. Markup has no inline style or script, so a
//!   length is an attribute of SVG, `<meter>` or `<progress>`.
//! - P3: every text from outside passes `text::Text`: escaped for HTML, and control and
//!   bidirectional characters shown as `\u{…}`.
//! - P4: a request that changes something is a POST with the token of its form, and passes the
//!   server's check of `Origin`.
//! - P5: a bearer token arrives in the body of one POST, and stands in no URL, page or log. The
//!   browser then has the id of a session (`browser_sessions`).
//! - P6: what is shown of the past is what this server has seen since its start, and pages say so.
//!
//! # Adding a page
//! 1. A module in `pages` with `pub(crate) const SECTION: Section`, whose `path` is below
//!    `/dashboard` and whose `routes` are handlers of the form
//!    `async fn show(viewer: Viewer, query: Query) -> Result<Page, Fault>`.
//! 2. A row in `pages::SECTIONS`: it makes the routes and the entry of the navigation.
//! 3. The handler takes each parameter from `query` (a `fields::Fields`), calls `finish`, and
//!    returns a `layout::Page`. An action takes a `site::Form` instead of the query: the token
//!    of the form is checked before the handler runs.
//! 4. Elements with `data-live` and an `id` are exchanged when the store has changed. Forms stay
//!    outside of them: what has `data-forms` and an `id` is exchanged when that value differs,
//!    while nobody uses it.
//!
//! The handler has `viewer.identity` for rights (`covers` for names), `viewer.site.store` for the
//! store, `viewer.site.dashboard.server` for the server, and `viewer.link("/locks")` for links.
//!
//! # Reading order
//! `site` for what a request can reach, `layout` for the frame, `pages` for the pages.

mod assets;
mod browser_sessions;
mod chart;
mod checks;
mod fault;
mod fields;
mod history;
mod layout;
mod live;
mod mount;
mod pages;
mod shell;
mod site;
mod store_follower;
mod table;
mod text;

pub use mount::mount;
