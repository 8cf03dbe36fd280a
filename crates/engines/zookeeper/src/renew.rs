//! Renewal: a majority is asked whether the sessions stand, and every node is looked at behind it.
//!
//! - R1: a grant is renewed when its session was kept *and* its node is there: either alone may be
//!   gone without the other.
//! - R2: a grant may be renewed to a longer lease, but never longer than its session proves.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Certainty, Hold, LockError, Moment, Purpose, RenewReply, RenewRequest, Renewed,
};
use tokio::{join, select};
use zookeeper_client::Stat;

use crate::error::{ENGINE, Trouble, unavailable};
use crate::held::Held;
use crate::session::Session;
use crate::sessions::Key;
use crate::store::{Store, record};

/// How often a change of a record is tried while others change it.
const ATTEMPTS: usize = 5;

/// Which part of the shortest lease those that were answered wait for others, and how long at
/// least.
const PART: u32 = 8;
const SHORTEST_GRACE: Duration = Duration::from_millis(150);

/// What has come of keeping a session.
#[derive(Clone, Copy)]
enum Kept {
    Yes,
    Gone,
    Unanswered,
}

type Keeping<'s> = Shared<BoxFuture<'s, Kept>>;

/// What the look brought for a line.
struct Seen {
    /// The node's record as it stands.
    own: Option<(Vec<u8>, Stat)>,
    /// Whether what stands before it is still there.
    blocked: bool,
}

/// How long those that were answered wait for others, whose session may be with a member that
/// hangs: a part of the shortest lease, and of the heartbeat.
fn grace(batch: &[RenewRequest]) -> Duration {
    let lease = |line: &RenewRequest| match line.purpose {
        Purpose::Keep(hold) => hold.duration(),
        Purpose::Wait => None,
    };
    let shortest = batch.iter().filter_map(lease).min();
    shortest.map_or(QUEUE_HEARTBEAT / 2, |lease| (lease / PART).max(SHORTEST_GRACE))
}

impl Store {
    pub(crate) async fn renew(&self, batch: &[RenewRequest]) -> Renewed {
        let since = self.clock.now();
        let mut keeping: Vec<(Arc<Session>, Keeping<'_>)> = Vec::new();
        let mut asked = FuturesUnordered::new();
        for (at, line) in batch.iter().enumerate() {
            let held = self.held.find(&line.name, line.lease_id);
            let keeping = held.map(|held| self.keep_once(&mut keeping, held.session));
            let renewing = self.renew_line(line, keeping, since);
            asked.push(async move { (at, renewing.await) });
        }
        let silent = || unavailable("others were answered long before", Certainty::Unknown);
        let mut answers: Vec<_> = batch.iter().map(|_| Err(silent())).collect();
        let mut end = None;
        loop {
            let late = async {
                match end {
                    Some(end) => self.clock.sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            let next = select! { biased; next = asked.next() => next, () = late => None };
            let Some((at, answer)) = next else { return Ok(answers) };
            answers[at] = answer;
            end.get_or_insert_with(|| self.clock.now().after(grace(batch)));
        }
    }

    /// Has a session kept, for all lines of a batch that hang on it.
    fn keep_once<'s>(
        &'s self,
        keeping: &mut Vec<(Arc<Session>, Keeping<'s>)>,
        session: Arc<Session>,
    ) -> Keeping<'s> {
        if let Some((_, known)) = keeping.iter().find(|(known, _)| Arc::ptr_eq(known, &session)) {
            return known.clone();
        }
        let kept = session.clone();
        let keep = async move {
            match kept.keep(&*self.clock).await {
                Ok(()) => Kept::Yes,
                Err(Trouble::SessionGone) => Kept::Gone,
                Err(_) => Kept::Unanswered,
            }
        };
        let keep = keep.boxed().shared();
        keeping.push((session, keep.clone()));
        keep
    }

    /// Renews a line as its session is kept, and its node is looked at in the same moment.
    async fn renew_line(
        &self,
        line: &RenewRequest,
        keeping: Option<Keeping<'_>>,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let keeping = async {
            match keeping {
                Some(keeping) => keeping.await,
                None => Kept::Gone,
            }
        };
        let (kept, seen) = join!(keeping, self.look_at(line));
        self.judge(line, seen, kept, since).await
    }

    async fn look_at(&self, line: &RenewRequest) -> Result<Option<Seen>, Trouble> {
        let held = self.held.find(&line.name, line.lease_id);
        let Some(held) = held else { return Ok(None) };
        let Some(path) = self.path(&line.name, &held) else { return Ok(None) };
        let Ok(wire) = held.session.wire() else { return Ok(None) };
        let before = held.blocker().map(|child| self.layout.child(&line.name, child));
        let looking = async {
            match &before {
                Some(path) => Ok(wire.stat(path).await?.is_some()),
                None => Ok::<bool, Trouble>(false),
            }
        };
        let (own, blocked) = join!(wire.data(&path), looking);
        Ok(Some(Seen { own: own?, blocked: blocked? }))
    }

    async fn judge(
        &self,
        line: &RenewRequest,
        seen: Result<Option<Seen>, Trouble>,
        kept: Kept,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let (name, id) = (&line.name, line.lease_id);
        let Some(held) = self.held.find(name, id) else { return self.missing(line).await };
        let seen = match seen {
            Ok(seen) => seen,
            Err(Trouble::SessionGone) => None,
            Err(trouble) => return Err(trouble.into_error()),
        };
        let Some((own, seen)) = seen.and_then(|mut seen| Some((seen.own.take()?, seen))) else {
            return self.missing(line).await;
        };
        match kept {
            Kept::Gone => return self.missing(line).await,
            Kept::Unanswered if held.session.left(since).is_zero() => {
                let message = "the session could not be kept";
                return Err(unavailable(message, Certainty::Unknown));
            }
            _ => {}
        }
        if !held.sessions.heard(held.group, since) {
            return self.missing(line).await;
        }
        let left = held.left(since);
        if seen.blocked {
            return Ok(RenewReply::Queued { position: None, next_look: QUEUE_HEARTBEAT });
        }
        if held.token.is_none() {
            let queue = self.queue(&held.session.wire()?, name).await?;
            self.learn(name, id, &queue)?;
            match queue.find(id) {
                None => return self.missing(line).await,
                Some((_, Some(at))) => {
                    let (position, next_look) = (Some(at), QUEUE_HEARTBEAT);
                    return Ok(RenewReply::Queued { position, next_look });
                }
                Some((_, None)) => {}
            }
        }
        match line.purpose {
            // A claim would be told the same: this process has just stood still. One whose session
            // is of no use any more is to come for it, and is told to come anew.
            Purpose::Wait
                if !held.told
                    && !held.session.is_sure(since)
                    && !held.session.is_useless(self.clock.now()) =>
            {
                let next_look = held.session.next_look();
                Ok(RenewReply::Queued { position: Some(0), next_look })
            }
            Purpose::Wait => Ok(RenewReply::Handed { claim_within: Some(left) }),
            Purpose::Keep(hold) => self.keep_grant(line, hold, &held, own, since).await,
        }
    }

    /// Renews a grant whose session was kept.
    async fn keep_grant(
        &self,
        line: &RenewRequest,
        hold: Hold,
        held: &Held,
        mut own: (Vec<u8>, Stat),
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let left = held.left(since);
        if own.1.version == held.version && hold.duration() <= held.terms.duration() {
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        let (wire, path) = match (held.session.wire(), self.path(&line.name, held)) {
            (Ok(wire), Some(path)) => (wire, path),
            _ => return self.missing(line).await,
        };
        for _ in 0..ATTEMPTS {
            let (data, stat) = &own;
            let mut record = record(data)?;
            if let Some(reason) = record.revoked {
                return Ok(RenewReply::Revoked { reason, left: Some(left) });
            }
            let mut version = stat.version;
            if hold.duration() > record.hold.duration() {
                record.hold = hold;
                match wire.set(&path, &record.to_bytes(), version).await {
                    Ok(stat) => version = stat.version,
                    Err(Trouble::BadVersion) => {
                        match wire.data(&path).await? {
                            Some(found) => own = found,
                            None => return self.missing(line).await,
                        }
                        continue;
                    }
                    Err(Trouble::NoNode) => return self.missing(line).await,
                    Err(trouble) => return Err(trouble.into_error()),
                }
                let group = Key::of(line.client, record.hold);
                held.sessions.begin(group, since);
                self.held.update(&line.name, line.lease_id, |held| held.group = group);
            }
            self.held.update(&line.name, line.lease_id, |held| {
                (held.version, held.terms) = (version, record.hold);
            });
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        Err(unavailable("others change the grant's record again and again", Certainty::NotApplied))
    }

    /// Says why a lease id has no node, or none that we could keep.
    async fn missing(&self, line: &RenewRequest) -> Result<RenewReply, LockError> {
        let wire = self.wire().await?;
        let path = self.layout.queue(&line.name);
        // A member that lags shows nodes of ours whose session has ended: they are no other's.
        let (caught_up, queue, marks) = join!(
            wire.catch_up(&path),
            self.queue(&wire, &line.name),
            self.marks(&wire, line.lease_id)
        );
        caught_up?;
        let found = queue?.find(line.lease_id).is_some();
        let known = self.held.find(&line.name, line.lease_id).is_some();
        // Of one that was ours the node may be there until its session is closed.
        if found && !known && !self.held.was_ours(line.lease_id) {
            let lacks = "renewal by another process than the one whose session it is";
            return Err(LockError::unsupported(ENGINE, lacks));
        }
        let marks = marks?;
        self.held.forget(&line.name, line.lease_id);
        Ok(marks.into_renew_reply())
    }
}
