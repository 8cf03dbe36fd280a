//! Puts the pages beside the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use holdline_server::{DEFAULT_STORE, Server};

use crate::checks::Checks;
use crate::pages::{OF_QUORUM, SECTIONS, login};
use crate::site::{Dashboard, Site, StoreEntry};
use crate::store_follower::StoreFollower;
use crate::{assets, live};

/// Serves the dashboard beside the API: `/dashboard`, and `/stores/NAME/dashboard` for each store.
///
/// It lists the stores in rounds for as long as the server runs, within the bounds that
/// `docs/dashboard.md` states. `urls` has the URL of each store by its name (the default one's is
/// [`DEFAULT_STORE`]): the pages Stores and Quorum ask its servers through connections of their
/// own, while somebody looks. Without a URL they have nothing to show.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use holdline::Client;
/// use holdline_server::{Server, ServerConfig};
///
/// let client = Client::connect("memory:shown").await?;
/// let config = ServerConfig::default().with_listen("127.0.0.1:0".parse()?);
/// let server = Server::bind(client.admin().engine().clone(), &config).await?;
/// let server = holdline_dashboard::mount(server, &Default::default());
/// println!("open http://{}/dashboard", server.address().expect("an address"));
/// server.run(async { /* until it is to stop */ }).await;
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// The server has a dashboard already.
#[must_use]
pub fn mount(server: Server, urls: &BTreeMap<String, String>) -> Server {
    let handle = server.handle();
    let stores = handle.stores().into_iter().map(|store| StoreEntry::new(store, urls));
    let stores: Vec<_> = stores.collect();
    let is_quorum = |store: &StoreEntry| store.checks.as_ref().is_some_and(Checks::has_quorum);
    let has_quorum = stores.iter().any(is_quorum);
    let sections = SECTIONS.iter().filter(|section| has_quorum || section.path != OF_QUORUM);
    let sections = sections.map(|section| (section.title, section.path)).collect();
    let dashboard = Arc::new(Dashboard::new(handle.clone(), stores, sections));
    let to_first = get(async || Redirect::to("/dashboard"));
    let mut server =
        server.with_pages(assets::routes()).with_pages(Router::new().route("/", to_first));
    for store in handle.stores() {
        let (follower, work) = StoreFollower::new(store.client().clone());
        let is_default = store.name() == DEFAULT_STORE;
        let site = Site::new(dashboard.clone(), store, follower);
        let pages = SECTIONS.iter().fold(live::routes(), |r, section| r.merge((section.routes)()));
        let pages = pages.merge(login::routes()).with_state(site.clone());
        let pages = if is_default { pages } else { Router::new().nest(site.base(), pages) };
        server = server.with_pages(pages).with_background(work);
    }
    server
}
