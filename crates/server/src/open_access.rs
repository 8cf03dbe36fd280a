//! Whether a request that stays open may go on: its token may expire, be removed, or lose a right.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;

use crate::access::Caller;
use crate::app::App;
use crate::identity::Identity;
use crate::problem::Problem;
use crate::rights::Right;

/// What a request has shown about its sender, to be checked anew.
pub(crate) struct OpenAccess {
    app: App,
    proof: HeaderMap,
    caller: Caller,
}

impl FromRequestParts<App> for OpenAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<OpenAccess, Problem> {
        let caller = parts.extensions.get::<Caller>().ok_or_else(Problem::unauthenticated)?;
        let proof = app.access.read().proof(&parts.headers);
        Ok(OpenAccess { app: app.clone(), proof, caller: caller.clone() })
    }
}

impl OpenAccess {
    /// Resolves when the sender no longer has this right on a name, or on all names with a prefix:
    /// within a moment after the token has expired or the settings were read again.
    pub(crate) async fn ended(&self, right: Right, name: &str) {
        let mut changed = self.app.access_changed.subscribe();
        loop {
            changed.mark_unchanged();
            let Ok(identity) = self.identify(right, name) else { return };
            let expired = async {
                match identity.expires_in() {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => {}
                _ = changed.changed() => {}
            }
        }
    }

    fn identify(&self, right: Right, name: &str) -> Result<Identity, Problem> {
        let access = self.app.access.read().clone();
        let identity = access.identify(&self.proof, &self.caller, None)?;
        identity.may_use(&self.app.store)?;
        identity.may_on(right, name)?;
        Ok(identity)
    }
}
