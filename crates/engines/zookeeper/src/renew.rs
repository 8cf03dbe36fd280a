//! Renewal: a majority proves that the sessions of grants exist, and every node is read.
//!
//! - R1: a grant is renewed if its session was proven *and* its node exists: either may be gone
//!   without the other.
//! - R2: a grant may be renewed to a longer lease, but never longer than its session proves.
//! - R3: a renewal forgets no lease id whose node may still be created (H4 of `known_contenders`):
//!   the session of that request is where a release finds the node.
//! - R4: the heartbeat of a waiter only reads, so a crowd that waits writes nothing. When the reads
//!   show that it is first, its session is proven before the reply says so.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Certainty, Hold, LockError, Moment, Purpose, RenewReply, RenewRequest, Renewed,
};
use tokio::{join, select};

use crate::connection::NodeContent;
use crate::error::{ENGINE, RequestError, unavailable};
use crate::known_contenders::KnownContender;
use crate::session::ZooKeeperSession;
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
enum SessionProof {
    /// None was requested (R4).
    NotNeeded,
    Given,
    Gone,
    Unanswered,
}

type SharedProof<'s> = Shared<BoxFuture<'s, SessionProof>>;

/// What the reads have shown for one request.
struct ObservedNodes {
    /// The node's record.
    own: Option<NodeContent>,
    /// Whether all nodes that exclude it together still exist.
    blocked: bool,
}

/// Returns how long a batch waits for the other answers after the first: their session may be with
/// a member that hangs.
fn grace(batch: &[RenewRequest]) -> Duration {
    let lease = |renewal: &RenewRequest| match renewal.purpose {
        Purpose::Keep(hold) => hold.duration(),
        Purpose::Wait => None,
    };
    let shortest = batch.iter().filter_map(lease).min();
    shortest.map_or(QUEUE_HEARTBEAT / 2, |lease| (lease / PART).max(SHORTEST_GRACE))
}

impl Store {
    pub(crate) async fn renew(&self, batch: &[RenewRequest]) -> Renewed {
        let since = self.clock.now();
        let mut proofs: Vec<(Arc<ZooKeeperSession>, SharedProof<'_>)> = Vec::new();
        let mut asked = FuturesUnordered::new();
        for (at, renewal) in batch.iter().enumerate() {
            let seen = self.contenders.find(&renewal.name, renewal.lease_id);
            let proven = seen.as_ref().filter(|seen| seen.needs_proof(renewal.purpose));
            let session = proven.map(|seen| seen.session.clone());
            let proof = session.map(|session| self.prove_once(&mut proofs, session));
            let renewed = self.renew_one(renewal, seen, proof, since);
            asked.push(async move { (at, renewed.await) });
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
    fn prove_once<'s>(
        &'s self,
        proofs: &mut Vec<(Arc<ZooKeeperSession>, SharedProof<'s>)>,
        session: Arc<ZooKeeperSession>,
    ) -> SharedProof<'s> {
        if let Some((_, known)) = proofs.iter().find(|(known, _)| Arc::ptr_eq(known, &session)) {
            return known.clone();
        }
        let kept = session.clone();
        let keep = async move {
            match kept.keep(&*self.clock).await {
                Ok(()) => SessionProof::Given,
                Err(RequestError::SessionGone) => SessionProof::Gone,
                Err(_) => SessionProof::Unanswered,
            }
        };
        let keep = keep.boxed().shared();
        proofs.push((session, keep.clone()));
        keep
    }

    /// Renews one lease or place: proves its session, if need be, and reads its node concurrently.
    async fn renew_one(
        &self,
        renewal: &RenewRequest,
        seen: Option<KnownContender>,
        proof: Option<SharedProof<'_>>,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let proof = async {
            match proof {
                Some(proof) => proof.await,
                None => SessionProof::NotNeeded,
            }
        };
        let (proof, observed) = join!(proof, self.observe(renewal, seen.as_ref()));
        self.judge(renewal, seen, observed, proof, since).await
    }

    async fn observe(
        &self,
        renewal: &RenewRequest,
        seen: Option<&KnownContender>,
    ) -> Result<Option<ObservedNodes>, RequestError> {
        let Some(contender) = seen else { return Ok(None) };
        let Some(path) = self.path(&renewal.name, contender) else { return Ok(None) };
        let Ok(connection) = contender.session.connection() else { return Ok(None) };
        let blockers = contender.few_blockers();
        let before: Vec<String> =
            blockers.iter().map(|child| self.layout.child(&renewal.name, child)).collect();
        let looking = try_join_all(before.iter().map(|path| connection.stat(path)));
        let (own, found) = join!(connection.data(&path), looking);
        let blocked = !blockers.is_empty() && found?.iter().all(Option::is_some);
        Ok(Some(ObservedNodes { own: own?, blocked }))
    }

    async fn judge(
        &self,
        renewal: &RenewRequest,
        seen: Option<KnownContender>,
        observed: Result<Option<ObservedNodes>, RequestError>,
        proof: SessionProof,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let name = &renewal.name;
        let id = renewal.lease_id;
        let Some(contender) = self.contenders.find(name, id) else {
            return self.missing(renewal, None).await;
        };
        // Another request asks for the lease id, or has asked for it since the reads (R3).
        let read =
            contender.child.is_some() && seen.is_some_and(|seen| seen.has_node_of(&contender));
        if !read && !contender.session.is_over() {
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
            return self.missing(renewal, Some(&contender)).await;
        };
        match proof {
            SessionProof::Gone => return self.missing(renewal, Some(&contender)).await,
            SessionProof::Unanswered if contender.session.left(since).is_zero() => {
                let message = "the session could not be proven";
                return Err(unavailable(message, Certainty::Unknown));
            }
            SessionProof::NotNeeded | SessionProof::Given | SessionProof::Unanswered => {}
        }
        if !contender.sessions.refresh(contender.group, since) {
            return self.missing(renewal, Some(&contender)).await;
        }
        if observed.blocked {
            return Ok(RenewReply::Queued { position: None, next_look: QUEUE_HEARTBEAT });
        }
        if contender.token.is_none()
            && let Some(reply) = self.place_of(renewal, &contender, since).await?
        {
            return Ok(reply);
        }
        let left = contender.left(since);
        match renewal.purpose {
            // This process was just paused, so a repeated request would get the same reply. If the
            // session is of no use any more, it is wanted: the waiter joins the queue again.
            Purpose::Wait
                if !contender.reported
                    && !contender.session.is_sure(since)
                    && !contender.session.is_useless(self.clock.now()) =>
            {
                let next_look = contender.session.next_look();
                Ok(RenewReply::Queued { position: Some(0), next_look })
            }
            Purpose::Wait => Ok(RenewReply::Held { left: Some(left) }),
            Purpose::Keep(hold) => self.keep_grant(renewal, hold, &contender, own, since).await,
        }
    }

    /// Returns the reply for a contender that waits, by a read of the queue; `None` if it is first,
    /// and its session proven (R4).
    async fn place_of(
        &self,
        renewal: &RenewRequest,
        contender: &KnownContender,
        since: Moment,
    ) -> Result<Option<RenewReply>, LockError> {
        let name = &renewal.name;
        let id = renewal.lease_id;
        let queue = self.queue(&contender.session.connection()?, name).await?;
        self.learn(name, id, &queue)?;
        match queue.find(id) {
            None => return self.missing(renewal, Some(contender)).await.map(Some),
            Some((_, Some(at))) if !self.contenders.holds(name, id) => {
                let position = Some(at);
                return Ok(Some(RenewReply::Queued { position, next_look: QUEUE_HEARTBEAT }));
            }
            Some(_) => {}
        }
        match contender.session.prove_for_grant(&*self.clock, since).await {
            Ok(()) => Ok(None),
            Err(RequestError::SessionGone) => {
                self.missing(renewal, Some(contender)).await.map(Some)
            }
            Err(failure) => Err(failure.into_error()),
        }
    }

    /// Renews a grant whose session was proven.
    async fn keep_grant(
        &self,
        renewal: &RenewRequest,
        hold: Hold,
        contender: &KnownContender,
        mut own: NodeContent,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let left = contender.left(since);
        if own.stat.version == contender.version && hold.duration() <= contender.terms.duration() {
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        let (connection, path) =
            match (contender.session.connection(), self.path(&renewal.name, contender)) {
                (Ok(connection), Some(path)) => (connection, path),
                _ => return self.missing(renewal, Some(contender)).await,
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
                            None => return self.missing(renewal, Some(contender)).await,
                        }
                        continue;
                    }
                    Err(RequestError::NoNode) => {
                        return self.missing(renewal, Some(contender)).await;
                    }
                    Err(failure) => return Err(failure.into_error()),
                }
                let group = Group::of(renewal.client, record.hold);
                contender.sessions.begin(group, since);
                self.contenders
                    .update(&renewal.name, renewal.lease_id, |contender| contender.group = group);
            }
            self.contenders.update(&renewal.name, renewal.lease_id, |contender| {
                contender.version = version;
                contender.terms = record.hold;
            });
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        Err(unavailable("other clients keep changing the grant's record", Certainty::NotApplied))
    }

    /// Returns why a lease id has no node, or none that can be renewed. Forgets what was known of
    /// it, unless another request has asked for it meanwhile.
    async fn missing(
        &self,
        renewal: &RenewRequest,
        seen: Option<&KnownContender>,
    ) -> Result<RenewReply, LockError> {
        let connection = self.connection().await?;
        let path = self.layout.queue(&renewal.name);
        // A member that lags may show nodes of an expired session of this process.
        let (caught_up, queue, marks) = join!(
            connection.catch_up(&path),
            self.queue(&connection, &renewal.name),
            self.marks(&connection, renewal.lease_id)
        );
        caught_up?;
        let found = queue?.find(renewal.lease_id).is_some();
        let known = self.contenders.find(&renewal.name, renewal.lease_id).is_some();
        // A node of this process may exist until its session is closed.
        if found && !known && !self.contenders.was_ours(renewal.lease_id) {
            let lacks = "renewal by a process that does not own the session";
            return Err(LockError::unsupported(ENGINE, lacks));
        }
        let marks = marks?;
        if let Some(seen) = seen {
            self.contenders.forget_seen(&renewal.name, renewal.lease_id, seen);
        }
        Ok(marks.into_renew_reply())
    }
}
