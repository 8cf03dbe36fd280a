//! Renewal: the sessions are kept, and in the same moment every key is looked at.
//!
//! - R1: a grant is renewed when its session was kept *and* its key is there: either alone may be
//!   gone without the other.
//! - R2: what must be decided by the whole queue, a mark or a record is read in a second step,
//!   which a grant that nobody has touched does not need.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Certainty, Hold, LockError, Moment, Purpose, RenewReply, RenewRequest, Renewed,
};
use tokio::join;

use crate::error::{Trouble, unavailable};
use crate::held::Held;
use crate::ops::{all_of, get, key_alone, key_value, keys_of, put, written_at};
use crate::proto::{KeyValue, TxnRequest};
use crate::queue::{self, Queue};
use crate::sessions::{Key, Session};
use crate::store::{self, Store, record};

/// How many parts one transaction may have, as servers have it unless told otherwise.
const PARTS: usize = 128;
/// How often a change of a record is tried while others change it.
const ATTEMPTS: usize = 5;

/// What the first look brought for a line.
enum Seen {
    /// The key as it stands, and whether what stands before it is still there.
    Key { kv: Option<KeyValue>, blocked: bool },
    /// The lease id was not known here: the whole queue.
    Queue(Result<Queue, LockError>),
}

impl Store {
    pub(crate) async fn renew(&self, lines: &[RenewRequest]) -> Renewed {
        let since = self.clock.now();
        let held: Vec<Option<Held>> =
            lines.iter().map(|line| self.held.find(&line.name, line.lease_id)).collect();
        let (seen, kept) = join!(self.look_at(lines, &held), self.keep_all(&held));
        let mut answers = Vec::with_capacity(lines.len());
        for ((line, seen), held) in lines.iter().zip(seen?).zip(held) {
            answers.push(self.judge(line, seen, held, &kept, since).await);
        }
        Ok(answers)
    }

    /// Keeps each session once.
    async fn keep_all(&self, held: &[Option<Held>]) -> HashMap<i64, Result<(), Trouble>> {
        let mut sessions: HashMap<i64, Arc<Session>> = HashMap::new();
        for held in held.iter().flatten() {
            sessions.entry(held.session.lease).or_insert_with(|| held.session.clone());
        }
        let keep =
            async |session: Arc<Session>| (session.lease, self.sessions.keep(&session).await);
        join_all(sessions.into_values().map(keep)).await.into_iter().collect()
    }

    /// Looks at the keys of all lines, in as few transactions as they fit into.
    async fn look_at(
        &self,
        lines: &[RenewRequest],
        held: &[Option<Held>],
    ) -> Result<Vec<Seen>, LockError> {
        let mut seen = Vec::with_capacity(lines.len());
        let pairs: Vec<_> = lines.iter().zip(held).collect();
        for pairs in pairs.chunks(PARTS / 2) {
            let parts = pairs.iter().flat_map(|(line, held)| match held {
                Some(held) => {
                    let blocker = held.blocker();
                    let own = get(key_alone(held.key.clone()));
                    vec![Some(own), blocker.map(|key| get(key_alone(key.clone())))]
                }
                None => vec![Some(get(keys_of(self.layout.queue(&line.name))))],
            });
            let mut answers = self.read(parts.flatten().collect()).await?;
            for (line, held) in pairs {
                seen.push(match held {
                    Some(held) => {
                        let kv = answers.keys()?.pop();
                        let blocked = held.blocker().is_some() && !answers.keys()?.is_empty();
                        Seen::Key { kv, blocked }
                    }
                    None => {
                        let kvs = answers.keys()?;
                        Seen::Queue(queue::read_keys(&self.layout, &line.name, kvs))
                    }
                });
            }
        }
        Ok(seen)
    }

    async fn judge(
        &self,
        line: &RenewRequest,
        seen: Seen,
        held: Option<Held>,
        kept: &HashMap<i64, Result<(), Trouble>>,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let id = line.lease_id;
        let (held, kv, blocked) = match (seen, held) {
            (Seen::Key { kv, blocked }, Some(held)) => (held, kv, blocked),
            (Seen::Queue(queue), _) => match queue?.find(id) {
                Some((place, _)) => {
                    let Some(held) = self.adopt(&line.name, id, place).await? else {
                        return self.missing(line).await;
                    };
                    self.sessions.keep(&held.session).await.or_else(or_gone)?;
                    (held, Some(place.kv.clone()), false)
                }
                None => return self.missing(line).await,
            },
            (Seen::Key { .. }, None) => return self.missing(line).await,
        };
        let Some(kv) = kv else { return self.missing(line).await };
        match kept.get(&held.session.lease) {
            Some(Err(Trouble::LeaseGone)) => return self.missing(line).await,
            Some(Err(_)) if held.session.left(since).is_zero() => {
                let message = "the session could not be kept";
                return Err(unavailable(message, Certainty::Unknown));
            }
            _ => {}
        }
        let left = held.session.left(since);
        if left.is_zero() {
            return self.missing(line).await;
        }
        if blocked {
            return Ok(RenewReply::Queued { position: None, next_look: QUEUE_HEARTBEAT });
        }
        if held.token.is_none() {
            let (queue, revision) = self.queue(&line.name).await?;
            self.learn(&line.name, id, &queue, revision)?;
            match queue.find(id) {
                None => return self.missing(line).await,
                Some((_, Some(at))) => {
                    return Ok(RenewReply::Queued {
                        position: Some(at),
                        next_look: QUEUE_HEARTBEAT,
                    });
                }
                Some((_, None)) => {}
            }
        }
        match line.purpose {
            Purpose::Wait => Ok(RenewReply::Handed { claim_within: Some(left) }),
            Purpose::Keep(hold) => self.keep_grant(line, hold, &held, &kv, since).await,
        }
    }

    /// Renews a grant whose session was kept.
    async fn keep_grant(
        &self,
        line: &RenewRequest,
        hold: Hold,
        held: &Held,
        kv: &KeyValue,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let left = held.session.left(since);
        let same = held.terms.is_some_and(|terms| needs_no_move(terms, hold));
        if kv.mod_revision == held.written && same {
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        for _ in 0..ATTEMPTS {
            let Some(kv) = self.client.range(key_value(held.key.clone())).await?.kvs.pop() else {
                return self.missing(line).await;
            };
            let mut record = record(&kv.value)?;
            if let Some(reason) = record.revoked {
                return Ok(RenewReply::Revoked { reason, left: Some(left) });
            }
            self.held.update(&line.name, line.lease_id, |held| {
                (held.written, held.terms) = (kv.mod_revision, Some(record.hold));
            });
            if needs_no_move(record.hold, hold) {
                return Ok(RenewReply::Renewed { left: Some(left) });
            }
            record.hold = moved(record.hold, hold);
            let key = Key::of(line.client, line.lease_id, record.hold);
            let session = self.sessions.obtain(key).await?;
            self.sessions.keep(&session).await.or_else(or_gone)?;
            let compare = vec![written_at(held.key.clone(), kv.mod_revision)];
            let success = vec![put(held.key.clone(), record.to_bytes(), session.lease)];
            let txn = TxnRequest { compare, success, failure: Vec::new() };
            match self.txn(txn).await {
                Err(Trouble::LeaseGone) => session.end(),
                Err(trouble) => return Err(trouble.into_error()),
                Ok(answers) if !answers.succeeded => {}
                Ok(answers) => {
                    let left = session.left(since);
                    self.held.update(&line.name, line.lease_id, |held| {
                        (held.session, held.written) = (session, answers.revision);
                        held.terms = Some(record.hold);
                    });
                    return Ok(RenewReply::Renewed { left: Some(left) });
                }
            }
        }
        Err(unavailable("others change the grant's record again and again", Certainty::NotApplied))
    }

    /// Says why a lease id has no key.
    async fn missing(&self, line: &RenewRequest) -> Result<RenewReply, LockError> {
        self.held.forget(&line.name, line.lease_id);
        let marks = self.layout.marks(&line.name, line.lease_id);
        let reply = self.client.range(all_of(marks)).await?;
        Ok(store::marks(&reply.kvs).into_renew_reply())
    }
}

/// A session that is over is seen by what is left of it.
fn or_gone(trouble: Trouble) -> Result<(), LockError> {
    match trouble {
        Trouble::LeaseGone => Ok(()),
        other => Err(other.into_error()),
    }
}

fn is_detached(hold: Hold) -> bool {
    matches!(hold, Hold::Detached(_))
}

/// Tells whether a grant with this hold already has what a renewal asks for.
fn needs_no_move(has: Hold, asked: Hold) -> bool {
    is_detached(has) == is_detached(asked) && asked.duration() <= has.duration()
}

/// The hold that a renewal makes of another: never a shorter one.
fn moved(has: Hold, asked: Hold) -> Hold {
    let duration = has.duration().max(asked.duration()).unwrap_or_default();
    match is_detached(asked) {
        true => Hold::Detached(duration),
        false => Hold::Leased(duration),
    }
}
