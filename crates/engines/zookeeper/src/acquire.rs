//! Acquiring: a fresh request, a repeated request, and a request whose answer was lost.
//!
//! ```text
//! fresh:
//!   obtain a session whose timeout is the lease
//!   a read has shown that the name allows it: no freeze, no foreign node, room in the queue
//!   create an ephemeral sequential node; on the same connection, read the queue behind it, unless
//!                                  the node is directly behind one of this process (H5)
//!   no node before it           -> granted once a majority has proven the session
//!   may not queue               -> delete the node, busy
//!   otherwise                   -> queued, behind the nodes before it
//! repeated:
//!   the node exists             -> read the queue; behind that read, prove the session, unless it
//!                                  was proven lately; by the nodes before it: granted or queued
//!   its answer was lost         -> search for it by the lease id in its name
//!   it is gone                  -> cancelled, revoked or unknown
//! a waiter watches the node before its own; for permits, the nearest nodes that leave too few for
//! it. When one of them is deleted, it asks again. If it holds the name by then, as the watch or a
//! release of this process has learned, the answer takes no request (H6)
//! its heartbeat only reads: nothing depends on its session before the grant
//! a wait ends with its limit, with the caller, or with the session
//! ```
//!
//! - A1: no node is created before a read has shown that the name allows it, either now or a short
//!   while ago (`name_cache`). The read after the creation shows what has changed in between; then
//!   the node is deleted again.
//! - A2: the read after a creation sees all nodes before the new one, because both are sent over
//!   the same connection, in this order.
//! - A3: no node is created under a lease id that this process has given up (`tombstones`).
//! - A4: a node of a lease id that this process has asked for before, and of which it knows none,
//!   was left by an ended session of this process. Nobody relies on it, so it is deleted.
//!
//! H4 to H6 are those of `known_contenders`.

use std::sync::Arc;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, LockError, Marks, Mode, Moment, Record,
};
use tokio::join;

use crate::connection::Connection;
use crate::error::{ENGINE, RequestError, not_applied, unavailable};
use crate::keys::parse_node;
use crate::known_contenders::KnownContender;
use crate::queue::{EXHAUSTED, Queue, QueueEntry};
use crate::session::ZooKeeperSession;
use crate::sessions::Group;
use crate::store::Store;

/// How often a request is tried while its session, or the node of its queue, goes away.
const ATTEMPTS: usize = 8;

impl Store {
    pub(crate) async fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        let _turn = self.contenders.turn(&request.name, request.lease_id).await;
        match self.contenders.find(&request.name, request.lease_id) {
            Some(contender) => self.ask_again(request, contender).await,
            None if request.known => self.unknown(request).await,
            None => self.ask_fresh(request).await,
        }
    }

    /// Answers a waiter that is known to hold the name, without a request (H6).
    pub(crate) fn learned_grant(&self, request: &AcquireRequest) -> Option<AcquireReply> {
        let now = self.clock.now();
        let id = request.lease_id;
        let contender = self.contenders.take_learned(&request.name, id, now)?;
        let token = contender.token?;
        let as_before = contender.asked == request.hold && contender.mode() == Some(request.mode);
        if !request.known || !as_before || !contender.session.is_well_proven(now) {
            return None;
        }
        let kept = contender.sessions.refresh(contender.group, now);
        let left = contender.left(now);
        if !kept || left.is_zero() {
            return None;
        }
        self.contenders.update(&request.name, id, KnownContender::report);
        Some(AcquireReply::Granted { token, left: Some(left), anchor: None })
    }

    /// Returns why a lease id is not known any more.
    async fn unknown(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let connection = self.connection().await?;
        self.marks(&connection, request.lease_id).await?.check(ENGINE)?;
        Ok(AcquireReply::Unknown)
    }

    /// Returns the answer for a contender that existed and is gone.
    async fn ended(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        self.marks(connection, request.lease_id).await?.check(ENGINE)?;
        if request.known { Ok(AcquireReply::Unknown) } else { Err(ended_on_the_way()) }
    }

    /// Answers for a lease id that was asked for before.
    async fn ask_again(
        &self,
        request: &AcquireRequest,
        mut contender: KnownContender,
    ) -> Result<AcquireReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let since = self.clock.now();
        if contender.asked != request.hold {
            return Err(asked_otherwise());
        }
        let Ok(connection) = contender.session.connection() else {
            self.contenders.forget(name, id);
            return self.unknown(request).await;
        };
        // A waiter keeps its position by asking; a holder keeps its grant by renewals.
        if !contender.reported && !contender.sessions.refresh(contender.group, since) {
            return self.ended(&connection, request).await;
        }
        if contender.child.is_none() {
            // The answer to the creation was lost: the node exists, or never will.
            match self.find_again(&connection, request, &contender).await? {
                Some(found) => contender = found,
                None if request.known => return Ok(AcquireReply::Unknown),
                None => {
                    self.contenders.forget(name, id);
                    return self.ask_fresh(request).await;
                }
            }
        }
        // The proof that a grant needs is sent behind the read (S6 of `session`), so a grant after
        // a long wait takes one commit, and no round trip more.
        let proving = contender.session.prove_for_grant(&*self.clock, since);
        let (queue, proof) = join!(self.queue(&connection, name), proving);
        let queue = queue?;
        let Some((entry, _)) = queue.find(id) else {
            self.contenders.forget(name, id);
            return self.ended(&connection, request).await;
        };
        if entry.mode() != request.mode {
            return Err(asked_otherwise());
        }
        self.learn(name, id, &queue)?;
        // A waiter needs none.
        if self.contenders.holds(name, id) {
            proof?;
        }
        self.reply_for(&connection, request, &queue, since).await
    }

    /// Searches for the node whose creation was not answered.
    async fn find_again(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
        contender: &KnownContender,
    ) -> Result<Option<KnownContender>, RequestError> {
        let name = &request.name;
        let id = request.lease_id;
        connection.catch_up(self.layout.root()).await?;
        let queue = self.queue(connection, name).await?;
        let Some((entry, _)) = queue.find(id) else { return Ok(None) };
        let path = self.layout.child(name, &entry.child);
        let Some(stat) = connection.stat(&path).await? else { return Ok(None) };
        let mut found = contender.clone();
        found.child = Some(entry.child.clone());
        found.czxid = stat.czxid;
        found.version = stat.version;
        self.contenders.note(name, id, found.clone());
        Ok(Some(found))
    }

    async fn ask_fresh(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        if self.contenders.was_given_up(request.lease_id, self.clock.now()) {
            return Err(not_applied(ErrorKind::Cancelled));
        }
        let group = Group::of(request.client, request.hold);
        for _ in 0..ATTEMPTS {
            let since = self.clock.now();
            let session = self.sessions.obtain(group).await?;
            self.sessions.begin(group, since);
            match self.enter(request, &session, group, since).await {
                Err(error) if session.is_over() && error.certainty() == Certainty::NotApplied => {}
                outcome => return outcome,
            }
        }
        Err(unavailable("the session ends again and again", Certainty::NotApplied))
    }

    /// Creates the node if the name allows it.
    async fn enter(
        &self,
        request: &AcquireRequest,
        session: &Arc<ZooKeeperSession>,
        group: Group,
        since: Moment,
    ) -> Result<AcquireReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        // Nothing was sent yet.
        let connection = session.connection().map_err(not_sent)?;
        let path = self.layout.contender(name, id, request.mode);
        let data = Record::new(request.hold, &request.metadata).to_bytes();
        // An id that was used before may have a node (A4).
        let is_new = !self.contenders.was_ours(id);
        let mut checked =
            is_new && self.names.allows(request, self.capabilities.max_waiters, since);
        let skips_read = is_new
            && request.queue
            && request.mode == Mode::Exclusive
            && self.contenders.ends_with_ours(name);
        for _ in 0..ATTEMPTS {
            if !checked
                && let Some(refusal) =
                    self.check_name(&connection, request).await.map_err(not_sent)?
            {
                return Ok(refusal);
            }
            checked = true;
            self.contenders.note(name, id, self.new_contender(request, session, group));
            let sent = self.clock.now();
            let reading = async {
                if skips_read { None } else { Some(self.read_behind(&connection, request).await) }
            };
            let (created, read) = join!(connection.create_contender(&path, &data), reading);
            let (child, stat) = match created {
                Ok(created) => created,
                Err(RequestError::NoNode) => {
                    let created_node = connection.make_container(&self.layout.queue(name)).await;
                    self.or_forget(request, created_node.map_err(not_sent))?;
                    continue;
                }
                Err(failure) => return self.or_forget(request, Err(failure.into_first_error())),
            };
            session.prove(sent);
            self.contenders.update(name, id, |contender| {
                contender.child = Some(child.clone());
                contender.czxid = stat.czxid;
                contender.version = stat.version;
            });
            let created_node = CreatedNode { connection: &connection, child, since };
            if created_node.number() >= EXHAUSTED {
                self.names.forget(name);
                self.take_back(&created_node, request).await?;
                checked = false;
                continue;
            }
            let read = match read {
                Some(read) => read,
                None => match self.behind_ours(&created_node, request) {
                    Some(reply) => return Ok(reply),
                    None => self.read_behind(&connection, request).await,
                },
            };
            return self.entered(&created_node, request, read).await;
        }
        self.contenders.forget(name, id);
        Err(unavailable("the node of the queue keeps being deleted", Certainty::NotApplied))
    }

    fn new_contender(
        &self,
        request: &AcquireRequest,
        session: &Arc<ZooKeeperSession>,
        group: Group,
    ) -> KnownContender {
        let sessions = self.sessions.clone();
        let metadata = request.metadata.clone();
        KnownContender::new(session.clone(), group, sessions, request.hold, metadata)
    }

    /// Reads the queue and the marks behind a creation.
    async fn read_behind(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
    ) -> Result<(Queue, Marks), RequestError> {
        let marks = self.new_marks(connection, request.lease_id);
        let (queue, marks) = join!(self.queue(connection, &request.name), marks);
        Ok((queue?, marks?))
    }

    /// Answers for a node that was created directly behind one of this process; `None` if it was
    /// not, and the queue must be read.
    fn behind_ours(
        &self,
        created_node: &CreatedNode<'_>,
        request: &AcquireRequest,
    ) -> Option<AcquireReply> {
        let number = created_node.number();
        let limit = self.capabilities.max_waiters;
        let (position, child) =
            self.contenders.stand_behind_ours(&request.name, request.lease_id, number, limit)?;
        self.names.note_waiters(&request.name, position + 1);
        let holder = parse_node(&child).map(|parsed| QueueEntry { child, parsed });
        let holder = holder.and_then(|holder| self.describe_own(&request.name, &holder));
        Some(AcquireReply::Queued {
            position: Some(position),
            holder: holder.map(Box::new),
            next_look: QUEUE_HEARTBEAT,
        })
    }

    /// Forgets a lease id if the error is certain that no node was created.
    fn or_forget<T>(
        &self,
        request: &AcquireRequest,
        outcome: Result<T, LockError>,
    ) -> Result<T, LockError> {
        outcome.inspect_err(|error| {
            if error.certainty() == Certainty::NotApplied {
                self.contenders.forget(&request.name, request.lease_id);
            }
        })
    }

    /// Returns why the name is not available; `None` if a node may be created. Then the node of the
    /// queue exists.
    async fn check_name(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
    ) -> Result<Option<AcquireReply>, RequestError> {
        let marks = self.new_marks(connection, request.lease_id);
        let (queue, marks) = join!(self.queue(connection, &request.name), marks);
        marks?.check(ENGINE)?;
        let queue = self.without_leftovers(connection, request, queue?, None).await?;
        queue.check_kind(request.mode, self.layout.family_of(request.mode))?;
        if queue.find(request.lease_id).is_some() {
            return Err(used_by_another().into());
        }
        if queue.is_exhausted() {
            return self.reject_exhausted(connection, request, &queue).await;
        }
        self.names.note(request, &queue, self.clock.now());
        let limit = self.capabilities.max_waiters;
        if !queue.holders().is_empty() && request.queue && queue.waiting().len() >= limit {
            return Err(not_applied(ErrorKind::TooManyWaiters { limit }).into());
        }
        if !request.queue && !queue.admits(request.mode) {
            return Ok(Some(self.busy(connection, request, &queue).await?));
        }
        if !queue.exists() {
            connection.make_container(&self.layout.queue(&request.name)).await?;
        }
        Ok(None)
    }

    /// Deletes nodes that ended sessions of this process have left, but not `own`, and reads the
    /// queue again (A4). If a member lags and only still shows one, the deletion makes it catch up.
    async fn without_leftovers(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
        queue: Queue,
        own: Option<&str>,
    ) -> Result<Queue, RequestError> {
        let name = &request.name;
        let id = request.lease_id;
        let is_left = |entry: &&QueueEntry| own != Some(entry.child.as_str());
        let left: Vec<&QueueEntry> = queue.all_of(id).filter(is_left).collect();
        if left.is_empty() || !self.contenders.was_ours(id) {
            return Ok(queue);
        }
        for entry in left {
            tracing::debug!(%name, node = %entry.child, "an ended session has left a node");
            connection.delete(&self.layout.child(name, &entry.child), None).await?;
        }
        self.queue(connection, name).await
    }

    /// Rejects a contender of an exhausted queue, and replaces the queue if it is empty (Q3 of
    /// `queue`). `None` if a node may be created.
    async fn reject_exhausted(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
        queue: &Queue,
    ) -> Result<Option<AcquireReply>, RequestError> {
        let path = self.layout.queue(&request.name);
        if queue.contenders().is_empty() && connection.delete_empty(&path).await? {
            return Ok(None);
        }
        tracing::debug!(name = %request.name, "an exhausted queue admits no contender");
        Ok(Some(self.busy(connection, request, queue).await?))
    }

    async fn busy(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
        queue: &Queue,
    ) -> Result<AcquireReply, RequestError> {
        let Some((holder, record)) = self.first(connection, &request.name, queue).await? else {
            let next_look = QUEUE_HEARTBEAT;
            return Ok(AcquireReply::Busy { holder: None, at_most: None, next_look });
        };
        // For a holder of another process only the duration is known; it may have been renewed just
        // now.
        let left = holder.left.or(record.and_then(|record| record.hold.duration()));
        let at_most = left.filter(|_| queue.holders().len() == 1);
        Ok(AcquireReply::Busy { holder: Some(holder), at_most, next_look: QUEUE_HEARTBEAT })
    }

    /// Answers for a node that was created, by the read after it.
    async fn entered(
        &self,
        created_node: &CreatedNode<'_>,
        request: &AcquireRequest,
        read: Result<(Queue, Marks), RequestError>,
    ) -> Result<AcquireReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let read = match read {
            Ok((queue, marks)) => {
                let own = Some(created_node.child.as_str());
                let connection = created_node.connection;
                let queue = self.without_leftovers(connection, request, queue, own).await;
                queue.map(|queue| (queue, marks))
            }
            Err(failure) => Err(failure),
        };
        let read = match read {
            // The node exists, whatever became of the read.
            Err(failure) => Err(failure.into_error()),
            Ok((queue, marks)) => {
                let family = self.layout.family_of(request.mode);
                let checked =
                    marks.check(ENGINE).and_then(|()| queue.check_kind(request.mode, family));
                let twin = queue.all_of(id).any(|entry| entry.child != created_node.child);
                checked.and_then(|()| if twin { Err(used_by_another()) } else { Ok(queue) })
            }
        };
        let queue = match read {
            Ok(queue) => queue,
            // The node exists, but its position is unknown.
            Err(error) if error.certainty() == Certainty::Unknown => return Err(error),
            Err(error) => {
                self.names.forget(name);
                self.take_back(created_node, request).await?;
                return Err(error);
            }
        };
        self.names.note(request, &queue, self.clock.now());
        let Some((_, waits)) = queue.find(id) else { return Err(ended_on_the_way()) };
        let limit = self.capabilities.max_waiters;
        if waits.is_some_and(|at| at >= limit) {
            self.take_back(created_node, request).await?;
            return Err(not_applied(ErrorKind::TooManyWaiters { limit }));
        }
        if waits.is_some() && !request.queue {
            let busy = self.busy(created_node.connection, request, &queue).await;
            self.take_back(created_node, request).await?;
            return Ok(busy?);
        }
        self.learn(name, id, &queue)?;
        self.reply_for(created_node.connection, request, &queue, created_node.since).await
    }

    /// Deletes a node that must not stay.
    async fn take_back(
        &self,
        created_node: &CreatedNode<'_>,
        request: &AcquireRequest,
    ) -> Result<(), LockError> {
        let name = &request.name;
        let id = request.lease_id;
        // The node may still exist, whatever certainty this failure has.
        let path = self.layout.child(name, &created_node.child);
        let deleted = created_node.connection.delete(&path, None).await.map_err(|failure| {
            let message = format!("a node could not be deleted again: {}", failure.into_error());
            unavailable(message, Certainty::Unknown)
        })?;
        self.contenders.leave(name, id, deleted, self.clock.now());
        Ok(())
    }

    /// Returns the state of a lease id that has a node.
    async fn reply_for(
        &self,
        connection: &Connection,
        request: &AcquireRequest,
        queue: &Queue,
        since: Moment,
    ) -> Result<AcquireReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let Some((entry, waits)) = queue.find(id) else { return Ok(AcquireReply::Unknown) };
        // It may be known to hold the name, and the member may not know it yet.
        if let Some(at) = waits.filter(|_| !self.contenders.holds(name, id)) {
            let own = queue.holders().first().and_then(|first| self.describe_own(name, first));
            let holder = match own {
                Some(own) => Ok(Some(Box::new(own))),
                None => self
                    .first(connection, name, queue)
                    .await
                    .map(|found| found.map(|(first, _)| first)),
            };
            let holder = match holder.map_err(RequestError::into_error) {
                Ok(holder) => holder,
                Err(error) if error.certainty() == Certainty::Unknown => return Err(error),
                // Its record may be unreadable. The position in the queue is valid all the same.
                Err(error) => {
                    tracing::debug!(%name, %error, "the holder of the name cannot be described");
                    None
                }
            };
            let next_look = QUEUE_HEARTBEAT;
            return Ok(AcquireReply::Queued { position: Some(at), holder, next_look });
        }
        let Some((contender, token)) = self
            .contenders
            .find(name, id)
            .and_then(|contender| contender.token.map(|token| (contender, token)))
        else {
            return Err(ended_on_the_way());
        };
        let left = contender.left(since);
        let reply = contender.reported || !request.queue;
        if !left.is_zero() && (reply || contender.session.is_sure(since)) {
            self.contenders.update(name, id, KnownContender::report);
            return Ok(AcquireReply::Granted { token, left: Some(left), anchor: None });
        }
        if reply || contender.lasts(since).is_zero() {
            return Err(ended_on_the_way());
        }
        // It is first in the queue, but its session counts for too little after a pause of this
        // process.
        if contender.session.is_useless(self.clock.now()) {
            let created_node = CreatedNode { connection, child: entry.child.clone(), since };
            self.take_back(&created_node, request).await?;
            return self.ended(connection, request).await;
        }
        let next_look = contender.session.next_look();
        Ok(AcquireReply::Queued { position: Some(0), holder: None, next_look })
    }
}

/// A node that was just created, by a request that was sent at `since`.
struct CreatedNode<'w> {
    connection: &'w Connection,
    child: String,
    since: Moment,
}

impl CreatedNode<'_> {
    fn number(&self) -> i64 {
        parse_node(&self.child).map_or(0, |parsed| parsed.number)
    }
}

/// Makes the error of a verb of which nothing was applied.
fn not_sent(failure: RequestError) -> LockError {
    not_applied(failure.into_error().kind().clone())
}

fn used_by_another() -> LockError {
    let message = "is in use by another client; draw a new lease id";
    LockError::invalid(ENGINE, "lease_id", message)
}

fn asked_otherwise() -> LockError {
    let message = "was asked before with another mode or lease; draw a new lease id";
    LockError::invalid(ENGINE, "lease_id", message)
}

fn ended_on_the_way() -> LockError {
    unavailable("the session ended while the name was asked for", Certainty::Unknown)
}
