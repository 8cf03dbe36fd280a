//! How many replicas have what was just written.
//!
//! `WAIT` covers what its own connection wrote, and holds up all that comes behind it there. So it
//! has a connection of its own, on which something is written first: what comes behind a grant in
//! the stream of the master is at a replica only when the grant is.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, LockError};

use super::Watcher;
use crate::error::unavailable;
use crate::node::{Node, Words};
use crate::options::Replicas;

/// Asks for the acknowledgements of replicas.
pub(crate) struct Copies {
    node: Node,
    watcher: Arc<Watcher>,
    wanted: Replicas,
    key: Vec<u8>,
    deadline: Duration,
}

impl Copies {
    pub(crate) fn new(
        node: Node,
        watcher: Arc<Watcher>,
        wanted: Replicas,
        key: Vec<u8>,
        deadline: Duration,
    ) -> Copies {
        Copies { node, watcher, wanted, key, deadline }
    }

    /// Waits until as many replicas as are wanted have what this run of a server has written.
    ///
    /// # Errors
    /// `Unavailable`, unknown: they are too few. What was written stands all the same.
    pub(crate) async fn confirm(&self, run: Option<&str>) -> Result<(), LockError> {
        let known = self.watcher.known().map_or(0, |seen| seen.replicas);
        let Some(wanted) = self.wanted.of(known) else {
            let message = format!("the sentinels know {known} replicas, which are too few");
            return Err(unavailable(message, Certainty::Unknown));
        };
        match self.confirmed_by(wanted, run).await {
            Ok(count) if count >= wanted => Ok(()),
            Ok(count) => {
                let message = format!("{count} of {wanted} replicas have it");
                Err(unavailable(message, Certainty::Unknown))
            }
            Err(error) => {
                let message = format!("nobody knows which replicas have it: {error}");
                Err(unavailable(message, Certainty::Unknown))
            }
        }
    }

    async fn confirmed_by(&self, wanted: u64, run: Option<&str>) -> Result<u64, LockError> {
        let mark = self.node.random().to_string();
        let words: [&[u8]; 4] = [b"HSET", &self.key, b"c", mark.as_bytes()];
        self.node.send_to(run, &Words::from(words), self.deadline).await?;
        let patience = (self.deadline / 2).as_millis().max(1).to_string();
        let words = Words::from(["WAIT", &wanted.to_string(), &patience]);
        let count = self.node.send_to(run, &words, self.deadline).await?;
        Ok(count.as_integer().and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
    }
}
