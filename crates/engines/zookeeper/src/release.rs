//! Ending what a lease id has: a grant or a place in the queue. The queue itself hands over.

use holdline_core::{LeaseId, LockError, LockName, ReleaseReply, ReleaseRequest};
use tokio::join;

use crate::error::Trouble;
use crate::held::Held;
use crate::keys::stander;
use crate::queue::Queue;
use crate::store::Store;
use crate::wire::Wire;

impl Store {
    pub(crate) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, LockError> {
        let (name, id) = (&request.name, request.lease_id);
        let _turn = self.held.turn(name, id).await;
        if request.ending.for_good {
            // Before anything can fail: the node may be deleted by a later try.
            self.held.give_up(id, self.clock.now());
        }
        let held = self.held.find(name, id);
        let wire = match held.as_ref().map(|held| held.session.wire()) {
            Some(Ok(wire)) => wire,
            _ => self.wire().await?,
        };
        let path = held.as_ref().and_then(|held| self.path(name, held));
        let (paths, waited) = match (path, held.as_ref().is_some_and(|held| held.token.is_some())) {
            (Some(path), true) => (vec![path], false),
            // Where it stood decides what it is told.
            _ => self.where_it_stands(&wire, name, id).await?,
        };
        let mut deleted = false;
        for path in paths {
            deleted |= wire.delete(&path, None).await?;
        }
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

    /// Deletes what stands under a lease id that is held no longer.
    pub(crate) async fn delete(
        &self,
        wire: &Wire,
        name: &LockName,
        id: LeaseId,
        held: &Held,
    ) -> Result<(), Trouble> {
        if let Some(path) = self.path(name, held) {
            return wire.delete(&path, None).await.map(drop);
        }
        // Whoever asks again under the lease id meanwhile sees what stands there, and a node that
        // it makes is its own (H4).
        let _turn = self.held.turn(name, id).await;
        if self.held.find(name, id).is_some() {
            return Ok(());
        }
        for path in self.nodes_of(wire, name, id).await?.0 {
            wire.delete(&path, None).await?;
        }
        Ok(())
    }

    /// The paths of all nodes of a lease id, and all that stands in the queue.
    async fn nodes_of(
        &self,
        wire: &Wire,
        name: &LockName,
        id: LeaseId,
    ) -> Result<(Vec<String>, Vec<String>), Trouble> {
        let path = self.layout.queue(name);
        let (caught_up, children) = join!(wire.catch_up(&path), wire.children(&path));
        caught_up?;
        let children = children?.unwrap_or_default();
        let is_its = |child: &&String| {
            stander(child).is_some_and(|stander| stander.ours && stander.id == id)
        };
        let its = children.iter().filter(is_its);
        Ok((its.map(|child| self.layout.child(name, child)).collect(), children))
    }

    /// The paths of all nodes of a lease id, and whether it waits. What else stands there, ours or
    /// not, keeps nobody from going.
    async fn where_it_stands(
        &self,
        wire: &Wire,
        name: &LockName,
        id: LeaseId,
    ) -> Result<(Vec<String>, bool), Trouble> {
        let (paths, children) = self.nodes_of(wire, name, id).await?;
        let waited = match Queue::read(children) {
            Ok(queue) => queue.find(id).is_some_and(|(_, waits)| waits.is_some()),
            // Beside something foreign nobody can tell; it was not known to hold.
            Err(_) if !paths.is_empty() => true,
            Err(foreign) => return Err(foreign.into()),
        };
        Ok((paths, waited))
    }
}
