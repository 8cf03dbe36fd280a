//! One watch on the server: what it covers, and which of its events matter.
//!
//! Read next: W1 of `crate::watcher`.

use std::collections::HashSet;

use holdline_core::hints::Watches;
use holdline_core::{Hint, LeaseId};

use super::Predecessors;
use crate::client::Client;
use crate::keys::Span;
use crate::ops::{Answers, get, key_alone};
use crate::proto::{
    DELETED, Event, KeyValue, RangeRequest, TxnRequest, WatchCreateRequest, WatchRequest, WatchWhat,
};
use crate::queue::MOST_WATCHES;

/// How many operations a transaction may have: the servers' default.
const PARTS: usize = 128;

/// One watch on the server.
#[derive(Debug)]
pub(super) struct ServerWatch {
    pub(super) id: LeaseId,
    pub(super) span: Span,
    /// The first revision to watch.
    pub(super) from: i64,
    /// The keys whose deletion matters. `None`: the own key, of which every event matters.
    pub(super) keys: Option<HashSet<Vec<u8>>>,
}

/// An event that matters to a contender.
pub(super) enum EventOf {
    OwnKey,
    /// This key, which blocked it, was deleted.
    Deletion(Vec<u8>),
}

impl Predecessors {
    /// Returns the watches of these keys for a lease id: one for each, unless there are many.
    pub(super) fn watches(&self, id: LeaseId) -> Vec<ServerWatch> {
        let from = self.from;
        let keys: HashSet<Vec<u8>> = self.blockers.keys().cloned().collect();
        if keys.len() > MOST_WATCHES {
            return vec![ServerWatch { id, span: self.queue.clone(), from, keys: Some(keys) }];
        }
        let of_key = |key: Vec<u8>| {
            let keys = Some(HashSet::from([key.clone()]));
            ServerWatch { id, span: (key, Vec::new()), from, keys }
        };
        keys.into_iter().map(of_key).collect()
    }
}

impl ServerWatch {
    /// Returns whether this watch reports all that the other one would, and nothing else.
    pub(super) fn covers_as(&self, other: &ServerWatch) -> bool {
        self.span == other.span && self.keys == other.keys
    }

    /// Returns whether a change between the read and the start of the watch, which is at the
    /// revision `newest`, may have been missed.
    pub(super) fn may_have_missed(&self, created: bool, newest: i64) -> bool {
        created && self.keys.is_some() && newest >= self.from
    }

    /// Returns what an event means, if it matters. Each deletion counts once.
    pub(super) fn matters(&mut self, event: &Event) -> Option<EventOf> {
        let Some(keys) = &mut self.keys else { return Some(EventOf::OwnKey) };
        if event.kind != DELETED {
            return None;
        }
        keys.take(&event.kv.as_ref()?.key).map(EventOf::Deletion)
    }

    /// Returns what is to be read because a change may have been missed before the revision
    /// `newest`.
    pub(super) fn recheck(&self, newest: i64) -> Recheck {
        let one = self.keys.as_ref().filter(|_| self.span.1.is_empty());
        Recheck { id: self.id, key: one.map(|_| self.span.0.clone()), from: self.from, newest }
    }
}

/// A read of the key before a contender, whose deletion the watch may have missed.
#[derive(Debug)]
pub(super) struct Recheck {
    id: LeaseId,
    /// `None`: there are several keys.
    key: Option<Vec<u8>>,
    from: i64,
    newest: i64,
}

/// Reads these keys, and notifies each contender unless its key was there all the time. The reads
/// are serializable, and points: that is much cheaper than the request that a hint leads to.
pub(super) async fn run_rechecks(rechecks: Vec<Recheck>, client: &Client, watches: &Watches) {
    for rechecks in rechecks.chunks(PARTS) {
        let keys = rechecks.iter().filter_map(|recheck| recheck.key.clone());
        let read = |key| get(RangeRequest { serializable: true, ..key_alone(key) });
        let success: Vec<_> = keys.map(read).collect();
        let mut answers = None;
        if !success.is_empty() {
            let txn = TxnRequest { success, ..TxnRequest::default() };
            answers = client.txn(txn).await.ok().map(Answers::new);
        }
        for recheck in rechecks {
            let unchanged = match (&recheck.key, &mut answers) {
                (Some(_), Some(answers)) => {
                    let kvs = answers.keys();
                    kvs.is_ok_and(|kvs| recheck.shows_no_change(answers.revision, &kvs))
                }
                _ => false,
            };
            if !unchanged {
                watches.notify(recheck.id, Hint::LookAgain);
            }
        }
    }
}

impl Recheck {
    /// The key exists at a revision that the watch includes, and was made before the first read:
    /// Go's mutex makes the same key again when its session locks again. A member that lags
    /// behind shows nothing.
    fn shows_no_change(&self, revision: i64, found: &[KeyValue]) -> bool {
        let same = |kv: &KeyValue| kv.create_revision < self.from;
        revision >= self.newest && found.first().is_some_and(same)
    }
}

pub(super) fn create(watch_id: i64, target: &ServerWatch) -> WatchRequest {
    let (key, range_end) = target.span.clone();
    // 0: the current revision.
    let start_revision = if target.keys.is_some() { 0 } else { target.from };
    let create = WatchCreateRequest { key, range_end, start_revision, watch_id };
    WatchRequest { what: Some(WatchWhat::Create(create)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_between_the_read_and_the_watch_is_noticed() {
        let id = LeaseId::from_bytes([1; 16]);
        let span = (b"a".to_vec(), Vec::new());
        let keys = Some(HashSet::from([b"a".to_vec()]));
        let before = ServerWatch { id, span: span.clone(), from: 8, keys };
        let own = ServerWatch { id, span, from: 8, keys: None };
        // The read was at revision 7.
        assert!(!before.may_have_missed(true, 7));
        assert!(before.may_have_missed(true, 8) && before.may_have_missed(true, 20));
        assert!(!before.may_have_missed(false, 20), "an event follows");
        let begins = |target: &ServerWatch| match create(1, target).what {
            Some(WatchWhat::Create(create)) => create.start_revision,
            _ => -1,
        };
        assert_eq!((begins(&before), begins(&own)), (0, 8));
        assert!(!own.may_have_missed(true, 20), "the server starts at the requested revision");
    }

    #[test]
    fn only_the_same_key_at_a_revision_that_the_watch_includes_shows_that_nothing_was_missed() {
        let keys = Some(HashSet::from([b"a".to_vec()]));
        let span = (b"a".to_vec(), Vec::new());
        let target = ServerWatch { id: LeaseId::from_bytes([1; 16]), span, from: 8, keys };
        let recheck = target.recheck(12);
        assert_eq!(recheck.key.as_deref(), Some(&b"a"[..]));
        let shows_no_change = |revision, created: Option<i64>| {
            let found =
                created.map(|create_revision| KeyValue { create_revision, ..KeyValue::default() });
            recheck.shows_no_change(revision, found.as_slice())
        };
        assert!(shows_no_change(12, Some(5)));
        assert!(!shows_no_change(11, Some(5)), "a member that lags behind");
        assert!(!shows_no_change(12, Some(9)), "it was made again");
        assert!(!shows_no_change(12, None), "it is gone");
        let span = (b"a".to_vec(), b"b".to_vec());
        assert_eq!(ServerWatch { span, ..target }.recheck(12).key, None, "there are several keys");
    }
}
