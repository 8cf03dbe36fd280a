//! Ending what a lease id has: a grant or a place in the queue. The queue itself hands over.

use holdline_core::{LeaseId, LockError, LockName, ReleaseReply, ReleaseRequest};
use tokio::join;

use crate::error::Trouble;
use crate::queue::Queue;
use crate::store::Store;
use crate::wire::Wire;

impl Store {
    pub(crate) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, LockError> {
        let (name, id) = (&request.name, request.lease_id);
        let held = self.held.find(name, id);
        let wire = match held.as_ref().map(|held| held.session.wire()) {
            Some(Ok(wire)) => wire,
            _ => self.wire().await?,
        };
        if request.ending.for_good {
            // First the mark: whoever makes the node after it sees it, and takes the node back.
            self.mark_gone(&wire, id).await?;
        }
        let path = held.as_ref().and_then(|held| self.path(name, held));
        let (path, waited) = match (path, held.as_ref().is_some_and(|held| held.token.is_some())) {
            (Some(path), true) => (Some(path), false),
            // Where it stood decides what it is told.
            _ => self.where_it_stands(&wire, name, id).await?,
        };
        let deleted = match path {
            Some(path) => wire.delete(&path, None).await?,
            None => false,
        };
        let reply = match (deleted, waited) {
            (true, true) => ReleaseReply::Withdrawn,
            (true, false) => ReleaseReply::Released { held_for: None },
            (false, _) => {
                let revoked = self.marks(&wire, id).await?.revoked;
                ReleaseReply::NotHeld { revoked }
            }
        };
        self.held.forget(name, id);
        Ok(reply)
    }

    /// The path of a lease id's node, and whether it waits.
    async fn where_it_stands(
        &self,
        wire: &Wire,
        name: &LockName,
        id: LeaseId,
    ) -> Result<(Option<String>, bool), Trouble> {
        let path = self.layout.queue(name);
        let (caught_up, children) = join!(wire.catch_up(&path), wire.children(&path));
        caught_up?;
        let queue = Queue::read(children?.unwrap_or_default())?;
        let found = queue.find(id);
        let path = found.map(|(place, _)| self.layout.child(name, &place.child));
        Ok((path, found.is_some_and(|(_, waits)| waits.is_some())))
    }
}
