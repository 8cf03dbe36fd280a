//! The state of names, for people and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use holdline_core::sequenced_queue::Contender;
use holdline_core::snapshot::MAX_VIEWS;
use holdline_core::{
    ErrorKind, GrantState, Hold, HolderSummary, HolderView, ListPage, ListRequest, LockError,
    LockName, Snapshot, WaiterView,
};

use crate::ops::all_of;
use crate::proto::RangeRequest;
use crate::queue::{self, Queue, QueueEntry};
use crate::store::{Store, metadata_of, record_of, short, token};

/// How many keys one step of a listing reads.
const STEP: i64 = 1_000;
/// How many names or leases are read at once.
const AT_ONCE: usize = 16;

impl Store {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let reply = self.client.range(all_of(self.layout.queue(name))).await?;
        let queue = queue::read(&self.layout, name, reply.kvs)?;
        let lasts = self.last(&queue).await?;
        let mut snapshot = Snapshot::free(name.clone());
        for entry in queue.holders().iter().take(MAX_VIEWS) {
            snapshot.holders.push(holder(entry, &lasts)?);
        }
        for entry in queue.waiting().iter().take(MAX_VIEWS) {
            let record = record_of(entry)?;
            snapshot.queue.push(WaiterView {
                lease_id: short(entry),
                mode: entry.mode(),
                waited: None,
                metadata: metadata_of(entry, record),
            });
        }
        snapshot.holder_count = queue.holders().len();
        snapshot.queue_length = queue.waiting().len();
        snapshot.permits_of = queue.permits_of();
        Ok(snapshot)
    }

    /// Returns how long the etcd leases of the holders have left.
    async fn last(&self, queue: &Queue) -> Result<BTreeMap<i64, Duration>, LockError> {
        let leases: BTreeSet<i64> =
            queue.holders().iter().take(MAX_VIEWS).map(|entry| entry.kv.lease).collect();
        let ask = async |lease: i64| (lease, self.client.time_to_live(lease).await);
        let asked: Vec<_> = stream::iter(leases).map(ask).buffer_unordered(AT_ONCE).collect().await;
        let mut lasts = BTreeMap::new();
        for (lease, seconds) in asked {
            lasts.insert(lease, Duration::from_secs(u64::try_from(seconds?).unwrap_or(0)));
        }
        Ok(lasts)
    }

    /// Lists a page. Percent-encoding changes the order of names, so each page reads all keys, a
    /// thousand at a time, and keeps the names that come next in order.
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        let limit = request.limit();
        let mut names = self.names_after(request, limit + 1).await?;
        let more = names.len() > limit;
        if more {
            names.pop_last();
        }
        let after = names.last().cloned().filter(|_| more);
        let inspect = async |name: LockName| self.inspect(&name).await;
        let shown: Vec<_> = stream::iter(names).map(inspect).buffered(AT_ONCE).collect().await;
        let mut page = ListPage { names: Vec::new(), after };
        for snapshot in shown {
            match snapshot {
                // `inspect` of this name returns the error.
                Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => {}
                Ok(snapshot) if snapshot.holder_count == 0 => {}
                other => page.names.push(other?),
            }
        }
        Ok(page)
    }

    async fn names_after(
        &self,
        request: &ListRequest,
        most: usize,
    ) -> Result<BTreeSet<LockName>, LockError> {
        let (mut key, range_end) = self.layout.names(&request.prefix);
        let mut names = BTreeSet::new();
        loop {
            let range = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: STEP,
                keys_only: true,
                ..RangeRequest::default()
            };
            let reply = self.client.range(range).await?;
            for name in reply.kvs.iter().filter_map(|kv| self.layout.name_of(&kv.key)) {
                if request.covers(&name) && names.insert(name) && names.len() > most {
                    names.pop_last();
                }
            }
            match reply.kvs.last() {
                Some(last) if reply.more => {
                    key.clone_from(&last.key);
                    key.push(0);
                }
                _ => return Ok(names),
            }
        }
    }
}

fn holder(entry: &QueueEntry, lasts: &BTreeMap<i64, Duration>) -> Result<HolderView, LockError> {
    let record = record_of(entry)?;
    let state = match record.as_ref().and_then(|record| record.revoked.clone()) {
        Some(reason) => GrantState::Revoked(reason),
        None => GrantState::Held,
    };
    Ok(HolderView {
        state,
        detached: record.as_ref().is_some_and(|one| matches!(one.hold, Hold::Detached(_))),
        live: false,
        pids: Vec::new(),
        summary: HolderSummary {
            lease_id: short(entry),
            token: Some(token(entry)?),
            mode: entry.mode(),
            held_for: None,
            left: lasts.get(&entry.kv.lease).copied(),
            no_expiry: false,
            metadata: metadata_of(entry, record),
        },
    })
}
