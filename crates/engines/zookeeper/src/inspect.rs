//! The state of names, for people and tools.

use std::collections::BTreeSet;

use futures_util::stream::{self, StreamExt};
use holdline_core::snapshot::MAX_VIEWS;
use holdline_core::{
    ErrorKind, GrantState, HolderView, ListPage, ListRequest, LockError, LockName, Snapshot,
    WaiterView,
};

use crate::queue::QueueEntry;
use crate::store::Store;

/// How many names are read at once.
const AT_ONCE: usize = 16;

impl Store {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let connection = self.connection().await?;
        connection.catch_up(&self.layout.queue(name)).await?;
        let queue = self.queue(&connection, name).await?;
        let first = |entries: &[QueueEntry], holds: bool| -> Vec<(bool, QueueEntry)> {
            entries.iter().take(MAX_VIEWS).map(|entry| (holds, entry.clone())).collect()
        };
        let mut shown = first(queue.holders(), true);
        shown.extend(first(queue.waiting(), false));
        let describe = async |(holds, entry): (bool, QueueEntry)| {
            (holds, self.describe(&connection, name, &entry).await)
        };
        let described: Vec<_> = stream::iter(shown).map(describe).buffered(AT_ONCE).collect().await;
        let mut snapshot = Snapshot::free(name.clone());
        for (holds, described) in described {
            let Some((summary, record)) = described? else { continue };
            if holds {
                let revoked = record.and_then(|record| record.revoked);
                snapshot.holders.push(HolderView {
                    state: revoked.map_or(GrantState::Held, GrantState::Revoked),
                    detached: false,
                    live: false,
                    pids: Vec::new(),
                    summary,
                });
            } else {
                snapshot.queue.push(WaiterView {
                    lease_id: summary.lease_id,
                    mode: summary.mode,
                    waited: None,
                    metadata: summary.metadata,
                });
            }
        }
        snapshot.holder_count = queue.holders().len();
        snapshot.queue_length = queue.waiting().len();
        snapshot.permits_of = queue.permits_of();
        Ok(snapshot)
    }

    /// Lists a page. All names are children of one node, which one request reads.
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        let limit = request.limit();
        let connection = self.connection().await?;
        connection.catch_up(self.layout.root()).await?;
        let children = connection.children(self.layout.root()).await?.unwrap_or_default();
        let names = children.iter().filter_map(|child| self.layout.name_of(child));
        let names: BTreeSet<LockName> = names.filter(|name| request.covers(name)).collect();
        let inspect = async |name: LockName| (name.clone(), self.inspect(&name).await);
        let mut shown = std::pin::pin!(stream::iter(names).map(inspect).buffered(AT_ONCE));
        let mut page = ListPage { names: Vec::new(), after: None };
        let mut last = None;
        while let Some((name, snapshot)) = shown.next().await {
            match snapshot {
                // `inspect` of this name returns the error.
                Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => {}
                // The servers have not yet removed the node of an empty queue.
                Ok(snapshot) if snapshot.holder_count == 0 => {}
                _ if page.names.len() == limit => {
                    page.after = last;
                    break;
                }
                other => {
                    page.names.push(other?);
                    last = Some(name);
                }
            }
        }
        Ok(page)
    }
}
