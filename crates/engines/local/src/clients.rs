//! What this process has in the directory: its clients' liveness files and its live grants.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;

use holdline_core::{Anchor, ClientId, FencingToken, LeaseId};

use crate::error::Fault;
use crate::inbox::Inbox;
use crate::liveness::{self, Liveness};

/// How many remote clients have a name for wake-ups; those of others that wait learn of a hand-off
/// by their heartbeat. A server that runs for months has asked for very many.
const MOST_REMOTE: usize = 1_024;

/// What this process has in the directory.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) liveness: Arc<Liveness>,
    inbox: Arc<Inbox>,
    files: HashMap<ClientId, ClientFile>,
    /// The remote clients that have a name for wake-ups, the newest last.
    remote: VecDeque<ClientId>,
    anchors: HashMap<LeaseId, (FencingToken, Anchor)>,
    /// Live grants of a transaction that is not committed yet.
    uncommitted: Vec<LeaseId>,
}

/// A locked liveness file. Of a process's many clients only the first has one of its own: the
/// others' are further names of it.
#[derive(Debug)]
enum ClientFile {
    Own { file: File, alone: bool },
    NameOf(ClientId),
}

impl Clients {
    pub(crate) fn new(liveness: Arc<Liveness>, inbox: Arc<Inbox>) -> Clients {
        let (files, anchors) = (HashMap::new(), HashMap::new());
        let remote = VecDeque::new();
        Clients { liveness, inbox, files, remote, anchors, uncommitted: Vec::new() }
    }

    /// Makes sure that others can see this client live, and can wake it. Inside the short lock.
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
        // A client that other engines have too keeps the socket of the first of them.
        if !matches!(file, ClientFile::Own { alone: false, .. }) {
            self.inbox.receive_for(client);
        }
        self.files.insert(client, file);
        Ok(())
    }

    /// Makes sure that a remote client is woken through this process. It has no liveness file: the
    /// death of this process is not that of the client.
    fn wake_remote(&mut self, client: ClientId) {
        if self.remote.iter().rev().any(|known| *known == client) {
            return;
        }
        if self.remote.len() == MOST_REMOTE
            && let Some(oldest) = self.remote.pop_front()
            && !self.inbox.forget(oldest)
        {
            self.remote.push_back(oldest);
        }
        self.inbox.receive_for(client);
        self.remote.push_back(client);
    }

    /// Gives our file one more name. Where that is not possible (a name that is taken, too many
    /// of them), the client gets a file of its own.
    fn link(&self, client: ClientId) -> Option<ClientId> {
        let own = |(id, file): (&ClientId, &ClientFile)| {
            matches!(file, ClientFile::Own { alone: true, .. }).then_some(*id)
        };
        let first = self.files.iter().find_map(own)?;
        let (from, to) = (self.liveness.files.client(first), self.liveness.files.client(client));
        std::fs::hard_link(from, to).ok().map(|()| first)
    }

    /// Tells whether a client is one of this process's.
    pub(crate) fn is_ours(&self, client: ClientId) -> bool {
        self.files.contains_key(&client)
    }

    /// Tells whether a live grant is one of this process's.
    pub(crate) fn has_anchor(&self, lease_id: LeaseId) -> bool {
        self.anchors.contains_key(&lease_id)
    }

    /// Returns what keeps a live grant: the copy that is kept here, or a new file's. Asking again
    /// must give the same, so a copy stays here until the grant is over.
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
            let message = "stands for a live grant of another process, which alone can hand it on";
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

    /// Lets go of the live grants of the transaction that was undone: their tokens will be drawn
    /// again, perhaps by another process.
    pub(crate) fn undone(&mut self) {
        for lease_id in std::mem::take(&mut self.uncommitted) {
            self.let_go(lease_id);
        }
    }

    /// Lets go of a grant that is over, if it was a live one of ours. Inside the short lock.
    pub(crate) fn let_go(&mut self, lease_id: LeaseId) {
        if let Some((token, _)) = self.anchors.remove(&lease_id) {
            self.liveness.remove_grant(token);
        }
    }

    /// Tells whether our file of a live grant still stands at its path.
    pub(crate) fn anchor_stands(&self, lease_id: LeaseId) -> bool {
        let Some((token, anchor)) = self.anchors.get(&lease_id) else { return true };
        let status = rustix::fs::fstat(anchor.descriptor());
        status.is_ok_and(|status| liveness::is_same(&self.liveness.files.grant(*token), &status))
    }

    /// Tells whether our file of a client still stands at its path.
    pub(crate) fn client_stands(&self, client: ClientId) -> bool {
        let own = match self.files.get(&client) {
            Some(ClientFile::NameOf(first)) => self.files.get(first),
            own => own,
        };
        let Some(ClientFile::Own { file, .. }) = own else { return true };
        let status = rustix::fs::fstat(file);
        status.is_ok_and(|status| liveness::is_same(&self.liveness.files.client(client), &status))
    }

    /// Removes what this process has. What cannot be removed now is swept by others, since its
    /// lock ends with the process.
    pub(crate) fn leave(&mut self) {
        for client in std::mem::take(&mut self.remote) {
            self.inbox.forget(client);
        }
        let own = std::mem::take(&mut self.files);
        for (client, file) in own {
            if !matches!(file, ClientFile::Own { alone: false, .. }) {
                self.liveness.remove_client(client);
            }
        }
    }
}
