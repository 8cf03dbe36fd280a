//! A cache of recently read names. The queue of a cached name is not read before a node is created,
//! because it is read after that anyway.
//!
//! - N1: an entry may allow a node to be created, but never grants the name. If the entry is
//!   outdated, the read after the creation shows it, and the node is deleted again.
//! - N2: a name with foreign nodes, or nodes of another library, is not cached.

use std::collections::HashMap;
use std::time::Duration;

use holdline_core::{AcquireRequest, LockName, Moment};
use parking_lot::Mutex;

use crate::queue::Queue;

/// How long an entry is valid.
const FRESH: Duration = Duration::from_secs(60);
/// How many names are cached, at most.
const MOST: usize = 4_096;

/// The last known state of a name.
#[derive(Clone, Copy, Debug)]
struct CachedName {
    at: Moment,
    permits_of: Option<u32>,
    /// Whether there was no contender besides the one that read the queue.
    free: bool,
    waiting: usize,
}

/// All cached names.
#[derive(Default)]
pub(crate) struct NameCache(Mutex<HashMap<LockName, CachedName>>);

impl NameCache {
    /// Caches what a read has shown.
    pub(crate) fn note(&self, request: &AcquireRequest, queue: &Queue, now: Moment) {
        let mut names = self.0.lock();
        if queue.has_others() {
            names.remove(&request.name);
            return;
        }
        if names.len() >= MOST && !names.contains_key(&request.name) {
            names.retain(|_, cached| now < cached.at.after(FRESH));
            if names.len() >= MOST {
                names.clear();
            }
        }
        let cached = CachedName {
            at: now,
            permits_of: request.mode.permits_of(),
            free: queue.is_alone(request.lease_id),
            waiting: queue.waiting().len(),
        };
        names.insert(request.name.clone(), cached);
    }

    /// Updates an entry: a contender stands in the queue, and so many wait.
    pub(crate) fn note_waiters(&self, name: &LockName, waiting: usize) {
        if let Some(cached) = self.0.lock().get_mut(name) {
            cached.free = false;
            cached.waiting = waiting;
        }
    }

    pub(crate) fn forget(&self, name: &LockName) {
        self.0.lock().remove(name);
    }

    /// Returns whether a node may be created without a read: by the cached state, the request would
    /// hold the name, or may wait for it.
    pub(crate) fn allows(&self, request: &AcquireRequest, limit: usize, now: Moment) -> bool {
        let names = self.0.lock();
        names.get(&request.name).is_some_and(|cached| {
            now < cached.at.after(FRESH)
                && cached.permits_of == request.mode.permits_of()
                && (cached.free || (request.queue && cached.waiting < limit))
        })
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::{ClientId, Hold, LeaseId, LockKind, Metadata, Mode};

    use super::*;

    fn request(mode: Mode, queue: bool) -> AcquireRequest {
        AcquireRequest {
            name: LockName::new("a").expect("a good name"),
            lease_id: LeaseId::from_bytes([1; 16]),
            client: ClientId::from_u64(1),
            mode,
            kind: LockKind::Mutex,
            hold: Hold::Leased(Duration::from_secs(30)),
            queue,
            known: false,
            hand_off_lease: Duration::from_secs(1),
            metadata: Metadata::default(),
        }
    }

    fn queue(ids: &[u8]) -> Queue {
        let children = ids.iter().zip(1..).map(|(id, number): (&u8, u32)| {
            format!("_c_{}-lock-{number:010}", LeaseId::from_bytes([*id; 16]).to_hex())
        });
        Queue::read(children.collect()).expect("ours")
    }

    #[test]
    fn a_cached_name_needs_no_read_if_the_request_would_hold_it_or_may_wait() {
        let now = Moment::from_nanos(1_000_000_000);
        let mine = request(Mode::Exclusive, false);
        let waits = request(Mode::Exclusive, true);
        let cache = NameCache::default();
        assert!(!cache.allows(&waits, 2, now), "never seen");
        for (ids, tries, queues) in [
            (&[][..], true, true),
            (&[1], true, true),
            (&[2], false, true),
            (&[2, 3], false, true),
            (&[2, 3, 4], false, false),
        ] {
            cache.note(&mine, &queue(ids), now);
            assert_eq!(cache.allows(&mine, 2, now), tries, "{ids:?}");
            assert_eq!(cache.allows(&waits, 2, now), queues, "{ids:?}");
        }
        cache.note(&mine, &queue(&[1]), now);
        for (waiting, queues) in [(1, true), (2, false)] {
            cache.note_waiters(&mine.name, waiting);
            assert_eq!(
                (cache.allows(&mine, 2, now), cache.allows(&waits, 2, now)),
                (false, queues)
            );
        }
        cache.note(&mine, &queue(&[]), now);
        assert!(!cache.allows(&mine, 2, now.after(FRESH)));
        let permits = Mode::permits(1, 3).expect("a good mode");
        assert!(!cache.allows(&request(permits, true), 2, now));
        cache.forget(&mine.name);
        assert!(!cache.allows(&mine, 2, now));
        let theirs = "_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-0000000001".to_owned();
        cache.note(&mine, &Queue::read(vec![theirs]).expect("one of Curator's"), now);
        assert!(!cache.allows(&waits, 2, now), "another library's");
    }
}
