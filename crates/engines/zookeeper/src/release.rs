//! Releasing: a grant or a place in the queue. The queue itself hands over the name.

use std::sync::Arc;

use holdline_core::{LeaseId, LockError, LockName, ReleaseReply, ReleaseRequest};
use tokio::join;

use crate::connection::Connection;
use crate::error::RequestError;
use crate::keys::parse_node;
use crate::known_contenders::KnownContender;
use crate::queue::Queue;
use crate::store::Store;

impl Store {
    pub(crate) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let _turn = self.contenders.turn(name, id).await;
        if request.ending.for_good {
            // Before anything can fail: a later try may delete the node.
            self.contenders.give_up(id, self.clock.now());
        }
        let contender = self.contenders.find(name, id);
        let connection = match contender.as_ref().map(|contender| contender.session.connection()) {
            Some(Ok(connection)) => connection,
            _ => self.connection().await?,
        };
        let path = contender.as_ref().and_then(|contender| self.path(name, contender));
        let (paths, waited) =
            match (path, contender.as_ref().is_some_and(|contender| contender.token.is_some())) {
                (Some(path), true) => (vec![path], false),
                // The reply depends on its position.
                _ => self.where_it_stands(&connection, name, id).await?,
            };
        let known = contender.as_ref().and_then(|contender| self.path(name, contender));
        let mut deleted = false;
        let mut known_deleted = false;
        for path in paths {
            let sent = self.clock.now();
            if connection.delete(&path, None).await? {
                deleted = true;
                known_deleted |= Some(&path) == known.as_ref();
                // A majority has committed it, so the session existed.
                contender.iter().for_each(|contender| contender.session.prove(sent));
            }
        }
        let reply = match (deleted, waited) {
            (true, true) => ReleaseReply::Withdrawn,
            (true, false) => ReleaseReply::Released { held_for: None },
            (false, _) => {
                let revoked = self.marks(&connection, id).await?.revoked;
                ReleaseReply::NotHeld { revoked }
            }
        };
        self.contenders.leave(name, id, known_deleted, self.clock.now());
        Ok(reply)
    }

    /// Deletes the contender of a lease id that is held no longer.
    pub(crate) async fn delete(
        &self,
        connection: &Connection,
        name: &LockName,
        id: LeaseId,
        contender: &KnownContender,
    ) -> Result<(), RequestError> {
        if let Some(path) = self.path(name, contender) {
            return connection.delete(&path, None).await.map(drop);
        }
        // A request that uses the lease id again meanwhile sees the present nodes, and a node that
        // it creates belongs to it (H4).
        let _turn = self.contenders.turn(name, id).await;
        let present = self.contenders.find(name, id);
        if present.as_ref().is_some_and(|present| Arc::ptr_eq(&present.session, &contender.session))
        {
            return Ok(());
        }
        let kept = present.and_then(|present| self.path(name, &present));
        for path in self.nodes_of(connection, name, id).await?.0 {
            if Some(&path) != kept.as_ref() {
                connection.delete(&path, None).await?;
            }
        }
        Ok(())
    }

    /// Returns the paths of all nodes of a lease id, and all children of the queue.
    async fn nodes_of(
        &self,
        connection: &Connection,
        name: &LockName,
        id: LeaseId,
    ) -> Result<(Vec<String>, Vec<String>), RequestError> {
        let path = self.layout.queue(name);
        let (caught_up, children) = join!(connection.catch_up(&path), connection.children(&path));
        caught_up?;
        let children = children?.unwrap_or_default();
        let is_its = |child: &&String| {
            parse_node(child).is_some_and(|parsed| parsed.ours && parsed.id == id)
        };
        let its = children.iter().filter(is_its);
        Ok((its.map(|child| self.layout.child(name, child)).collect(), children))
    }

    /// Returns the paths of all nodes of a lease id, and whether it waits. No other node prevents
    /// the release.
    async fn where_it_stands(
        &self,
        connection: &Connection,
        name: &LockName,
        id: LeaseId,
    ) -> Result<(Vec<String>, bool), RequestError> {
        let (paths, children) = self.nodes_of(connection, name, id).await?;
        let waited = match Queue::read(children) {
            Ok(queue) => queue.find(id).is_some_and(|(_, waits)| waits.is_some()),
            // With a foreign node in the queue the order is unknown; it was not known to hold.
            Err(_) if !paths.is_empty() => true,
            Err(foreign) => return Err(foreign.into()),
        };
        Ok((paths, waited))
    }
}
