//! Renewal: a majority proves that the sessions exist, and every node is read.
//!
//! - R1: a grant is renewed if its session was proven *and* its node exists: either may be gone
//!   without the other.
//! - R2: a grant may be renewed to a longer lease, but never longer than its session proves.
//! - R3: a renewal forgets no lease id whose node may still be created (H4 of `held`): the session
//!   of that request is where a release finds the node.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Certainty, Hold, LockError, Moment, Purpose, RenewReply, RenewRequest, Renewed,
};
use tokio::{join, select};

use crate::connection::NodeContent;
use crate::error::{ENGINE, RequestError, unavailable};
use crate::held::Held;
use crate::session::Session;
use crate::sessions::Group;
use crate::store::{Store, record};

/// How often a change of a record is tried while other clients change it.
const ATTEMPTS: usize = 5;

/// After its first answer a batch waits for the others: for this part of the shortest lease, and at
/// least for this time.
const PART: u32 = 8;
const SHORTEST_GRACE: Duration = Duration::from_millis(150);

/// The outcome of proving a session.
#[derive(Clone, Copy)]
enum Kept {
    Yes,
    Gone,
    Unanswered,
}

type Keeping<'s> = Shared<BoxFuture<'s, Kept>>;

/// What the reads have shown for one request.
struct Observed {
    /// The node's record.
    own: Option<NodeContent>,
    /// Whether the node that blocks it still exists.
    blocked: bool,
}

/// Returns how long a batch waits for the other answers after the first: their session may be with
/// a member that hangs.
fn grace(batch: &[RenewRequest]) -> Duration {
    let lease = |request: &RenewRequest| match request.purpose {
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
        for (at, request) in batch.iter().enumerate() {
            let seen = self.held.find(&request.name, request.lease_id);
            let session = seen.as_ref().map(|seen| seen.session.clone());
            let keeping = session.map(|session| self.keep_once(&mut keeping, session));
            let renewing = self.renew_line(request, seen, keeping, since);
            asked.push(async move { (at, renewing.await) });
        }
        let silent =
            || unavailable("no answer, long after the others of the batch", Certainty::Unknown);
        let mut answers: Vec<_> = batch.iter().map(|_| Err(silent())).collect();
        let mut end = Moment::NEVER;
        loop {
            let next = select! {
                biased;
                next = asked.next() => next,
                () = self.clock.sleep_until(end) => None,
            };
            let Some((at, answer)) = next else { return Ok(answers) };
            answers[at] = answer;
            end = end.min(self.clock.now().after(grace(batch)));
        }
    }

    /// Proves a session once, for all requests of a batch that belong to it.
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
                Err(RequestError::SessionGone) => Kept::Gone,
                Err(_) => Kept::Unanswered,
            }
        };
        let keep = keep.boxed().shared();
        keeping.push((session, keep.clone()));
        keep
    }

    /// Renews one lease: proves its session and reads its node concurrently.
    async fn renew_line(
        &self,
        request: &RenewRequest,
        seen: Option<Held>,
        keeping: Option<Keeping<'_>>,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let keeping = async {
            match keeping {
                Some(keeping) => keeping.await,
                None => Kept::Gone,
            }
        };
        let (kept, observed) = join!(keeping, self.observe(request, seen.as_ref()));
        self.judge(request, seen, observed, kept, since).await
    }

    async fn observe(
        &self,
        request: &RenewRequest,
        seen: Option<&Held>,
    ) -> Result<Option<Observed>, RequestError> {
        let Some(held) = seen else { return Ok(None) };
        let Some(path) = self.path(&request.name, held) else { return Ok(None) };
        let Ok(connection) = held.session.connection() else { return Ok(None) };
        let before = held.blocker().map(|child| self.layout.child(&request.name, child));
        let looking = async {
            match &before {
                Some(path) => Ok(connection.stat(path).await?.is_some()),
                None => Ok::<bool, RequestError>(false),
            }
        };
        let (own, blocked) = join!(connection.data(&path), looking);
        Ok(Some(Observed { own: own?, blocked: blocked? }))
    }

    async fn judge(
        &self,
        request: &RenewRequest,
        seen: Option<Held>,
        observed: Result<Option<Observed>, RequestError>,
        kept: Kept,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let Some(held) = self.held.find(name, id) else { return self.missing(request, None).await };
        // Another request asks for the lease id, or has asked for it since the reads (R3).
        let read = held.child.is_some() && seen.is_some_and(|seen| seen.has_node_of(&held));
        if !read && !held.session.is_over() {
            let message = "it is not known whether the node was created";
            return Err(unavailable(message, Certainty::Unknown));
        }
        let observed = match observed {
            Ok(observed) => observed,
            Err(RequestError::SessionGone) => None,
            Err(failure) => return Err(failure.into_error()),
        };
        let Some((own, observed)) =
            observed.and_then(|mut observed| Some((observed.own.take()?, observed)))
        else {
            return self.missing(request, Some(&held)).await;
        };
        match kept {
            Kept::Gone => return self.missing(request, Some(&held)).await,
            Kept::Unanswered if held.session.left(since).is_zero() => {
                let message = "the session could not be proven";
                return Err(unavailable(message, Certainty::Unknown));
            }
            _ => {}
        }
        if !held.sessions.refresh(held.group, since) {
            return self.missing(request, Some(&held)).await;
        }
        let left = held.left(since);
        if observed.blocked {
            return Ok(RenewReply::Queued { position: None, next_look: QUEUE_HEARTBEAT });
        }
        if held.token.is_none() {
            let queue = self.queue(&held.session.connection()?, name).await?;
            self.learn(name, id, &queue)?;
            match queue.find(id) {
                None => return self.missing(request, Some(&held)).await,
                Some((_, Some(at))) => {
                    let position = Some(at);
                    let next_look = QUEUE_HEARTBEAT;
                    return Ok(RenewReply::Queued { position, next_look });
                }
                Some((_, None)) => {}
            }
        }
        match request.purpose {
            // This process was just paused, so a repeated request would get the same reply. If the
            // session is of no use any more, it is wanted: the waiter joins the queue again.
            Purpose::Wait
                if !held.reported
                    && !held.session.is_sure(since)
                    && !held.session.is_useless(self.clock.now()) =>
            {
                let next_look = held.session.next_look();
                Ok(RenewReply::Queued { position: Some(0), next_look })
            }
            Purpose::Wait => Ok(RenewReply::Held { left: Some(left) }),
            Purpose::Keep(hold) => self.keep_grant(request, hold, &held, own, since).await,
        }
    }

    /// Renews a grant whose session was proven.
    async fn keep_grant(
        &self,
        request: &RenewRequest,
        hold: Hold,
        held: &Held,
        mut own: NodeContent,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let left = held.left(since);
        if own.stat.version == held.version && hold.duration() <= held.terms.duration() {
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        let (connection, path) = match (held.session.connection(), self.path(&request.name, held)) {
            (Ok(connection), Some(path)) => (connection, path),
            _ => return self.missing(request, Some(held)).await,
        };
        for _ in 0..ATTEMPTS {
            let mut record = record(&own.data)?;
            if let Some(reason) = record.revoked {
                return Ok(RenewReply::Revoked { reason, left: Some(left) });
            }
            let mut version = own.stat.version;
            if hold.duration() > record.hold.duration() {
                record.hold = hold;
                match connection.set(&path, &record.to_bytes(), version).await {
                    Ok(stat) => version = stat.version,
                    Err(RequestError::BadVersion) => {
                        match connection.data(&path).await? {
                            Some(found) => own = found,
                            None => return self.missing(request, Some(held)).await,
                        }
                        continue;
                    }
                    Err(RequestError::NoNode) => return self.missing(request, Some(held)).await,
                    Err(failure) => return Err(failure.into_error()),
                }
                let group = Group::of(request.client, record.hold);
                held.sessions.begin(group, since);
                self.held.update(&request.name, request.lease_id, |held| held.group = group);
            }
            self.held.update(&request.name, request.lease_id, |held| {
                held.version = version;
                held.terms = record.hold;
            });
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        Err(unavailable("other clients keep changing the grant's record", Certainty::NotApplied))
    }

    /// Returns why a lease id has no node, or none that can be renewed. Forgets what was known of
    /// it, unless another request has asked for it meanwhile.
    async fn missing(
        &self,
        request: &RenewRequest,
        seen: Option<&Held>,
    ) -> Result<RenewReply, LockError> {
        let connection = self.connection().await?;
        let path = self.layout.queue(&request.name);
        // A member that lags may show nodes of an expired session of this process.
        let (caught_up, queue, marks) = join!(
            connection.catch_up(&path),
            self.queue(&connection, &request.name),
            self.marks(&connection, request.lease_id)
        );
        caught_up?;
        let found = queue?.find(request.lease_id).is_some();
        let known = self.held.find(&request.name, request.lease_id).is_some();
        // A node of this process may exist until its session is closed.
        if found && !known && !self.held.was_ours(request.lease_id) {
            let lacks = "renewal by a process that does not own the session";
            return Err(LockError::unsupported(ENGINE, lacks));
        }
        let marks = marks?;
        if let Some(seen) = seen {
            self.held.forget_seen(&request.name, request.lease_id, seen);
        }
        Ok(marks.into_renew_reply())
    }
}
