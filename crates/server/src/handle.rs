//! What pages need that are served beside the API: the same checks, answers and limits.

use std::net::SocketAddr;

use holdline::Client;
use holdline_core::{
    AuditEntry, AuditPage, AuditRequest, LockName, Operation, OperationReply, Snapshot,
};
use http::request::Parts;

use crate::access::{Caller, TokenDigest};
use crate::app::App;
use crate::identity::Identity;
use crate::limits::Counted;
use crate::problem::Problem;
use crate::request_log::Sender;
use crate::rights::Right;

/// A server, for pages that are served beside the API. Clones are the same one.
#[derive(Clone)]
pub struct ServerHandle {
    app: App,
    address: Option<SocketAddr>,
    has_tls: bool,
}

/// A store of a server, for pages that are served beside the API. Clones are the same one.
#[derive(Clone)]
pub struct StoreHandle(App);

/// Who has logged in with a token.
pub struct Login {
    /// What a session keeps: it stands for the token as long as the settings have it.
    pub digest: TokenDigest,
    /// Whom the token is for.
    pub identity: Identity,
}

impl ServerHandle {
    pub(crate) fn new(app: App, address: Option<SocketAddr>, has_tls: bool) -> ServerHandle {
        ServerHandle { app, address, has_tls }
    }

    /// Returns the stores, the default one first.
    pub fn stores(&self) -> Vec<StoreHandle> {
        self.app.stores().cloned().map(StoreHandle).collect()
    }

    /// Returns the address of the server; `None` if it has a socket only.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns whether connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }

    /// Returns whether a token would be accepted, so that a form for it is of use.
    pub fn has_tokens(&self) -> bool {
        self.app.access.read().has_tokens()
    }

    /// Finds out who sends a request, as the API does. `login` is the token with which the browser
    /// has logged in; the header `Authorization` and the proxy's come before it.
    ///
    /// # Errors
    /// Nobody whom the server knows.
    pub fn identify(
        &self,
        parts: &Parts,
        login: Option<&TokenDigest>,
    ) -> Result<Identity, Problem> {
        let caller = parts.extensions.get::<Caller>().ok_or_else(Problem::unauthenticated)?;
        let access = self.app.access.read().clone();
        let identity = access.identify(&parts.headers, caller, login)?;
        if let Some(sender) = parts.extensions.get::<Sender>() {
            sender.note(&identity);
        }
        Ok(identity)
    }

    /// Finds out whom a token is for; `None` if the server does not know it, or it has expired.
    pub fn login(&self, token: &str) -> Option<Login> {
        let digest = TokenDigest::of(token);
        let identity = self.app.access.read().known(&digest)?;
        Some(Login { digest, identity })
    }

    /// Draws 128 bits that nobody can guess, as hexadecimal digits.
    pub fn draw_secret(&self) -> String {
        self.app.draw_id().to_hex()
    }

    /// Counts one more event stream of somebody, until the value is dropped.
    ///
    /// # Errors
    /// Their limit, or that of the server, is reached.
    pub fn open_stream(&self, identity: &Identity) -> Result<Counted, Problem> {
        self.app.limits.stream(identity.name())
    }

    /// Becomes ready when the server is to stop.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn stopping(&self) {
        self.app.stopping.cancelled().await;
    }
}

impl StoreHandle {
    /// Returns the name of the store in paths.
    pub fn name(&self) -> &str {
        &self.0.store
    }

    /// Returns the client of the store. It knows no rights.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// Checks that somebody may use the store.
    ///
    /// # Errors
    /// They may not.
    pub fn may_be_used_by(&self, identity: &Identity) -> Result<(), Problem> {
        identity.may_use(&self.0.store)
    }

    /// Returns the holders and the queue of a name.
    ///
    /// # Errors
    /// A right is missing, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn inspect(&self, identity: &Identity, name: &LockName) -> Result<Snapshot, Problem> {
        identity.may_on(Right::View, name.as_str())?;
        Ok(self.0.client.admin().inspect(name).await?)
    }

    /// Returns records of the audit trail that `wanted` accepts, about names that somebody may
    /// operate on, the newest first.
    ///
    /// # Errors
    /// A right is missing, the store keeps no trail, or it failed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn audit(
        &self,
        identity: &Identity,
        request: &AuditRequest,
        wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditPage, Problem> {
        self.0.audit(identity, request, wanted).await
    }

    /// Carries out an operator's command, as the API does.
    ///
    /// # Errors
    /// A right is missing, there is nothing to act on, the store cannot do it, or it failed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the command is carried out.
    pub async fn intervene(
        &self,
        identity: &Identity,
        operation: Operation,
    ) -> Result<OperationReply, Problem> {
        self.0.intervene(identity, operation).await
    }
}
