//! This process's part of the directory: its clients' liveness files and its live grants.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;

use holdline_core::{Anchor, ClientId, FencingToken, LeaseId};

use crate::error::Fault;
use crate::liveness::{self, Liveness};
use crate::wake_socket::WakeSocket;

/// How many remote clients have a name for wake-ups; waiters of other clients learn of a hand-off
/// by their heartbeat. A server that runs for months has requests of very many clients.
const MAX_REMOTE: usize = 1_024;

/// This process's files in the directory.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) liveness: Arc<Liveness>,
    wake_socket: Arc<WakeSocket>,
    files: HashMap<ClientId, ClientFile>,
    /// The remote clients that have a name for wake-ups, the newest last.
    remote: VecDeque<ClientId>,
    anchors: HashMap<LeaseId, (FencingToken, Anchor)>,
    /// Live grants of a transaction that is not committed yet.
    uncommitted: Vec<LeaseId>,
}

/// A locked liveness file. Only the first client of a process has a file of its own; the others are
/// hard links to it.
#[derive(Debug)]
enum ClientFile {
    Own { file: File, alone: bool },
    NameOf(ClientId),
}

impl Clients {
    pub(crate) fn new(liveness: Arc<Liveness>, wake_socket: Arc<WakeSocket>) -> Clients {
        let files = HashMap::new();
        let anchors = HashMap::new();
        let remote = VecDeque::new();
        Clients { liveness, wake_socket, files, remote, anchors, uncommitted: Vec::new() }
    }

    /// Ensures that other processes can see that this client lives, and can wake it. Inside the
    /// short lock.
    pub(crate) fn register(&mut self, client: ClientId) -> Result<(), Fault> {
        if client.is_remote() {
            self.wake_remote(client);
            return Ok(());
        }
        if self.files.contains_key(&client) {
            return Ok(());
        }
        let file = match self.link(client) {
            Some(first) => ClientFile::NameOf(first),
            None => {
                let (file, alone) = self.liveness.client(client)?;
                ClientFile::Own { file, alone }
            }
        };
        // A client of several engines keeps the socket of the first engine.
        if !matches!(file, ClientFile::Own { alone: false, .. }) {
            self.wake_socket.receive_for(client);
        }
        self.files.insert(client, file);
        Ok(())
    }

    /// Ensures that a remote client is woken through this process. It has no liveness file: when
    /// this process dies, the client need not be dead.
    fn wake_remote(&mut self, client: ClientId) {
        if self.remote.iter().rev().any(|known| *known == client) {
            return;
        }
        if self.remote.len() >= MAX_REMOTE
            && let Some(oldest) = self.remote.pop_front()
            && !self.wake_socket.forget(oldest)
        {
            // The socket is bound by its name, which stays: the next one goes.
            if let Some(next) = self.remote.pop_front() {
                self.wake_socket.forget(next);
            }
            self.remote.push_front(oldest);
        }
        self.wake_socket.receive_for(client);
        self.remote.push_back(client);
    }

    /// Adds a hard link to our file. If that is not possible (the name exists, or too many links),
    /// the client gets a file of its own.
    fn link(&self, client: ClientId) -> Option<ClientId> {
        let own = |(id, file): (&ClientId, &ClientFile)| {
            matches!(file, ClientFile::Own { alone: true, .. }).then_some(*id)
        };
        let first = self.files.iter().find_map(own)?;
        let from = self.liveness.files.client(first);
        let to = self.liveness.files.client(client);
        std::fs::hard_link(from, to).ok().map(|()| first)
    }

    /// Returns whether a client is one of this process's.
    pub(crate) fn is_ours(&self, client: ClientId) -> bool {
        self.files.contains_key(&client)
    }

    /// Returns whether a live grant is one of this process's.
    pub(crate) fn has_anchor(&self, lease_id: LeaseId) -> bool {
        self.anchors.contains_key(&lease_id)
    }

    /// Returns the anchor of a live grant: the copy that is kept here, or a new file's. A repeated
    /// request must get the same anchor, so a copy stays here until the grant is over.
    pub(crate) fn anchor(
        &mut self,
        lease_id: LeaseId,
        token: FencingToken,
    ) -> Result<Anchor, Fault> {
        if let Some((known, anchor)) = self.anchors.get(&lease_id)
            && *known == token
        {
            return Ok(anchor.clone());
        }
        if !self.liveness.is_grant_dead(token)? {
            let message =
                "belongs to a live grant of another process, and only that process can pass it on";
            return Err(Fault::invalid("lease_id", message));
        }
        let anchor = self.liveness.anchor(token)?;
        self.anchors.insert(lease_id, (token, anchor.clone()));
        self.uncommitted.push(lease_id);
        Ok(anchor)
    }

    /// Keeps the live grants of the transaction that was committed.
    pub(crate) fn committed(&mut self) {
        self.uncommitted.clear();
    }

    /// Releases the anchors of the transaction that was rolled back: their tokens will be drawn
    /// again, perhaps by another process.
    pub(crate) fn rolled_back(&mut self) {
        for lease_id in std::mem::take(&mut self.uncommitted) {
            self.release_anchor(lease_id);
        }
    }

    /// Releases the anchor of a grant that is over, if it is ours. Inside the short lock.
    pub(crate) fn release_anchor(&mut self, lease_id: LeaseId) {
        if let Some((token, _)) = self.anchors.remove(&lease_id) {
            self.liveness.remove_grant(token);
        }
    }

    /// Returns whether our file of a live grant is still at its path.
    pub(crate) fn anchor_stands(&self, lease_id: LeaseId) -> bool {
        let Some((token, anchor)) = self.anchors.get(&lease_id) else { return true };
        let status = rustix::fs::fstat(anchor.descriptor());
        status.is_ok_and(|status| liveness::is_same(&self.liveness.files.grant(*token), &status))
    }

    /// Returns whether our file of a client is still at its path.
    pub(crate) fn client_stands(&self, client: ClientId) -> bool {
        let own = match self.files.get(&client) {
            Some(ClientFile::NameOf(first)) => self.files.get(first),
            own => own,
        };
        let Some(ClientFile::Own { file, .. }) = own else { return true };
        let status = rustix::fs::fstat(file);
        status.is_ok_and(|status| liveness::is_same(&self.liveness.files.client(client), &status))
    }

    /// Removes the files of this process. Others sweep the rest, since its locks end with the
    /// process.
    pub(crate) fn remove_all(&mut self) {
        // The name by which the socket is bound too: nobody is to be woken by it any more.
        for client in std::mem::take(&mut self.remote) {
            self.liveness.remove_client(client);
        }
        let own = std::mem::take(&mut self.files);
        for (client, file) in own {
            if !matches!(file, ClientFile::Own { alone: false, .. }) {
                self.liveness.remove_client(client);
            }
        }
    }
}
