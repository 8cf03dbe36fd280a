//! What this engine has seen of names: so that one which it knows need not be looked at before a
//! node is made in it, since it is looked at behind that anyway.
//!
//! - N1: what is remembered lets a request be made, never granted. If it is wrong by now, the look
//!   behind the node shows it, and the node is taken back.
//! - N2: a name where something foreign, or another library's, was seen is looked at each time.

use std::collections::HashMap;
use std::time::Duration;

use holdline_core::{AcquireRequest, LockName, Moment};
use parking_lot::Mutex;

use crate::queue::Queue;

/// How long a name is remembered.
const FRESH: Duration = Duration::from_secs(60);
/// How many names are, at most.
const MOST: usize = 4_096;

/// How a name was last seen.
#[derive(Clone, Copy, Debug)]
struct Sight {
    at: Moment,
    permits_of: Option<u32>,
    /// Whether nobody but perhaps the one who looked stood there.
    free: bool,
    waiting: usize,
}

/// All names that were seen.
#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<LockName, Sight>>);

impl Seen {
    /// Notes what a look has shown.
    pub(crate) fn note(&self, request: &AcquireRequest, queue: &Queue, now: Moment) {
        let mut names = self.0.lock();
        if queue.has_others() {
            names.remove(&request.name);
            return;
        }
        if names.len() >= MOST && !names.contains_key(&request.name) {
            names.retain(|_, sight| now < sight.at.after(FRESH));
            if names.len() >= MOST {
                names.clear();
            }
        }
        let sight = Sight {
            at: now,
            permits_of: request.mode.permits_of(),
            free: queue.is_alone(request.lease_id),
            waiting: queue.waiting().len(),
        };
        names.insert(request.name.clone(), sight);
    }

    pub(crate) fn forget(&self, name: &LockName) {
        self.0.lock().remove(name);
    }

    /// Tells whether a node may be made without a look: as the name was seen, it would be let in,
    /// or queue.
    pub(crate) fn allows(&self, request: &AcquireRequest, limit: usize, now: Moment) -> bool {
        let names = self.0.lock();
        names.get(&request.name).is_some_and(|sight| {
            now < sight.at.after(FRESH)
                && sight.permits_of == request.mode.permits_of()
                && (sight.free || (request.queue && sight.waiting < limit))
        })
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::{ClientId, Hold, LeaseId, Metadata, Mode};

    use super::*;

    fn request(mode: Mode, queue: bool) -> AcquireRequest {
        AcquireRequest {
            name: LockName::new("a").expect("a good name"),
            lease_id: LeaseId::from_bytes([1; 16]),
            client: ClientId::from_u64(1),
            mode,
            hold: Hold::Leased(Duration::from_secs(30)),
            queue,
            known: false,
            claim_window: Duration::from_secs(1),
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
    fn a_name_need_not_be_looked_at_if_it_was_seen_to_let_us_in_or_wait() {
        let now = Moment::from_nanos(1_000_000_000);
        let (mine, waits) = (request(Mode::Exclusive, false), request(Mode::Exclusive, true));
        let seen = Seen::default();
        assert!(!seen.allows(&waits, 2, now), "never seen");
        for (ids, tries, queues) in [
            (&[][..], true, true),
            (&[1], true, true),
            (&[2], false, true),
            (&[2, 3], false, true),
            (&[2, 3, 4], false, false),
        ] {
            seen.note(&mine, &queue(ids), now);
            assert_eq!(seen.allows(&mine, 2, now), tries, "{ids:?}");
            assert_eq!(seen.allows(&waits, 2, now), queues, "{ids:?}");
        }
        seen.note(&mine, &queue(&[]), now);
        assert!(!seen.allows(&mine, 2, now.after(FRESH)));
        let permits = Mode::permits(1, 3).expect("a good mode");
        assert!(!seen.allows(&request(permits, true), 2, now));
        seen.forget(&mine.name);
        assert!(!seen.allows(&mine, 2, now));
        let theirs = "_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-0000000001".to_owned();
        seen.note(&mine, &Queue::read(vec![theirs]).expect("one of Curator's"), now);
        assert!(!seen.allows(&waits, 2, now), "another library's");
    }
}
