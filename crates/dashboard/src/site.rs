//! What a request can reach, and who sends it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use holdline_server::{DEFAULT_STORE, Identity, Right, ServerHandle, StoreHandle};
use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use maud::{Markup, html};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::browser_sessions::BrowserSessions;
use crate::checks::Checks;
use crate::fault::Fault;
use crate::fields::Fields;
use crate::store_follower::StoreFollower;

/// How many bytes a form may have.
const MOST_BYTES: usize = 16 * 1024;
/// How long a form may take to arrive.
const ARRIVES: Duration = Duration::from_secs(10);
/// The field of a form that proves that the form is ours.
const FORM_TOKEN: &str = "form_token";

/// The pages of one store. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Site(Arc<SiteParts>);

pub(crate) struct SiteParts {
    pub(crate) dashboard: Arc<Dashboard>,
    pub(crate) store: StoreHandle,
    pub(crate) follower: StoreFollower,
}

/// The dashboard of the server: what the pages of all its stores share.
pub(crate) struct Dashboard {
    pub(crate) server: ServerHandle,
    pub(crate) sessions: BrowserSessions,
    pub(crate) since: SystemTime,
    pub(crate) stores: Vec<StoreEntry>,
    /// Titles and paths of the navigation.
    pub(crate) sections: Vec<(&'static str, &'static str)>,
    pub(crate) cookie: String,
    secret: String,
}

/// What the dashboard knows of a store of the server.
pub(crate) struct StoreEntry {
    pub(crate) store: StoreHandle,
    /// The path before `/dashboard`.
    pub(crate) base: String,
    /// `None`: its URL is unknown.
    pub(crate) checks: Option<Checks>,
}

impl StoreEntry {
    pub(crate) fn new(store: StoreHandle, urls: &BTreeMap<String, String>) -> StoreEntry {
        let base = match store.name() {
            DEFAULT_STORE => String::new(),
            name => format!("/stores/{name}"),
        };
        let checks = urls.get(store.name()).map(|url| Checks::new(url));
        StoreEntry { store, base, checks }
    }
}

impl Dashboard {
    pub(crate) fn new(
        server: ServerHandle,
        stores: Vec<StoreEntry>,
        sections: Vec<(&'static str, &'static str)>,
    ) -> Dashboard {
        let secret = server.draw_secret() + &server.draw_secret();
        Dashboard {
            sessions: BrowserSessions::default(),
            since: SystemTime::now(),
            stores,
            sections,
            // Cookies do not distinguish ports: each server of a machine has its own name.
            cookie: format!("holdline_{}", server.address().map_or(0, |address| address.port())),
            secret,
            server,
        }
    }

    /// Returns the id of the session that a request names.
    pub(crate) fn session<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|c| c.split_once('='));
        pairs.find(|(name, _)| name.trim() == self.cookie).map(|(_, value)| value.trim())
    }

    fn identify(&self, parts: &Parts) -> Result<Identity, Fault> {
        let session = self.session(&parts.headers);
        let login = session.and_then(|id| self.sessions.token(id, Instant::now()));
        self.server.identify(parts, login.as_ref()).map_err(|problem| {
            if problem.status() != StatusCode::UNAUTHORIZED {
                return problem.into();
            }
            let fault = Fault::new(
                StatusCode::UNAUTHORIZED,
                "Log in",
                "The dashboard shows what a token of the server may see",
            );
            if self.server.has_tokens() {
                let here = parts.uri.path_and_query().map_or("", |path| path.as_str());
                fault.with(login_form(here))
            } else {
                fault.fix("open the dashboard through the proxy that authenticates people")
            }
        })
    }

    /// Makes the token of the forms of one viewer, which nobody else can make.
    fn form_token(&self, parts: &Parts, identity: &Identity) -> String {
        let session = self.session(&parts.headers).unwrap_or_default();
        let mut digest = Sha256::new();
        for part in [self.secret.as_str(), session, identity.name()] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        digest.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The form to log in; `next` is where to go then.
pub(crate) fn login_form(next: &str) -> Markup {
    html! {
        form.stack method="post" action="/dashboard/login" {
            input type="hidden" name="next" value=(next);
            label {
                "Token"
                input type="password" name="token" required autocomplete="current-password";
            }
            div { button.primary { "Log in" } }
        }
    }
}

impl Site {
    pub(crate) fn new(
        dashboard: Arc<Dashboard>,
        store: StoreHandle,
        follower: StoreFollower,
    ) -> Site {
        Site(Arc::new(SiteParts { dashboard, store, follower }))
    }

    /// Returns the path before `/dashboard`.
    pub(crate) fn base(&self) -> &str {
        self.entry().map_or("", |entry| entry.base.as_str())
    }

    /// Returns the checks of the store; `None`: its URL is unknown.
    #[cfg(feature = "redis")]
    pub(crate) fn checks(&self) -> Option<&Checks> {
        self.entry()?.checks.as_ref()
    }

    fn entry(&self) -> Option<&StoreEntry> {
        self.dashboard.stores.iter().find(|entry| entry.store.name() == self.store.name())
    }
}

impl std::ops::Deref for Site {
    type Target = SiteParts;

    fn deref(&self) -> &SiteParts {
        &self.0
    }
}

/// Who looks at a page. They have the right to view.
pub(crate) struct Viewer {
    pub(crate) site: Site,
    pub(crate) identity: Identity,
    /// Whether there is a session to log out of.
    pub(crate) has_session: bool,
    form_token: String,
}

impl Viewer {
    /// Returns the path of a page of this store.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}/dashboard{path}", self.site.base())
    }

    /// Returns the stores that they may use. The others have no name here.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &StoreEntry> {
        let may_use = |entry: &&StoreEntry| entry.store.may_be_used_by(&self.identity).is_ok();
        self.site.dashboard.stores.iter().filter(may_use)
    }

    /// Returns whether they may revoke and freeze this name.
    pub(crate) fn may_operate(&self, name: &str) -> bool {
        self.identity.may_on(Right::Operate, name).is_ok()
    }

    /// Checks that they may see what servers of a store say of themselves: addresses, settings and
    /// users. It is no matter of one prefix.
    pub(crate) fn may_see_servers(&self) -> Result<(), Fault> {
        Ok(self.identity.may_on(Right::View, "")?)
    }

    /// Returns the hidden field that each form needs.
    pub(crate) fn form_token(&self) -> Markup {
        html! { input type="hidden" name=(FORM_TOKEN) value=(self.form_token); }
    }

    fn of(parts: &Parts, site: &Site) -> Result<Viewer, Fault> {
        let identity = site.dashboard.identify(parts)?;
        site.store.may_be_used_by(&identity)?;
        identity.may(Right::View)?;
        let form_token = site.dashboard.form_token(parts, &identity);
        let has_session = site.dashboard.session(&parts.headers).is_some();
        Ok(Viewer { site: site.clone(), identity, has_session, form_token })
    }
}

impl FromRequestParts<Site> for Viewer {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Viewer, Fault> {
        Viewer::of(parts, site)
    }
}

/// The fields behind the `?`.
pub(crate) struct Query(pub(crate) Fields);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query, Fault> {
        Fields::read(parts.uri.query().unwrap_or_default().as_bytes()).map(Query)
    }
}

/// A form of one of our pages: its token is right.
pub(crate) struct Form(pub(crate) Viewer, pub(crate) Fields);

impl FromRequest<Site> for Form {
    type Rejection = Fault;

    async fn from_request(request: Request, site: &Site) -> Result<Form, Fault> {
        let (parts, body) = request.into_parts();
        let viewer = Viewer::of(&parts, site)?;
        let mut fields = read_form(body).await?;
        let token = fields.take(FORM_TOKEN).unwrap_or_default();
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        // Digests, so that the time of the comparison reveals nothing of the token.
        if digest(&token) != digest(&viewer.form_token) {
            let fault = Fault::new(
                StatusCode::FORBIDDEN,
                "The form is not one of this dashboard, or too old",
                "Nothing was changed",
            );
            return Err(fault.fix("load the page again, and send its form"));
        }
        Ok(Form(viewer, fields))
    }
}

/// Reads the body of a form.
pub(crate) async fn read_form(body: axum::body::Body) -> Result<Fields, Fault> {
    let bytes = timeout(ARRIVES, to_bytes(body, MOST_BYTES)).await;
    let bytes = bytes.map_err(|_| {
        Fault::new(StatusCode::REQUEST_TIMEOUT, "The form did not arrive in time", "Try again")
    })?;
    let bytes = bytes.map_err(|_| {
        let detail = format!("A form may have {MOST_BYTES} bytes");
        Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "The form is too large", detail)
    })?;
    Fields::read(&bytes)
}
