//! Asking for a name: a fresh request, asking again, and what a lost answer means.
//!
//! - A1: nothing is written before a look has shown that the name allows it, this one or one of a
//!   short while ago (`seen`); what happened between the look and the writing is seen by the look
//!   after it, and then our node is taken back.
//! - A2: the look after a creation sees all nodes that stand before ours: it goes the same way,
//!   behind it.
//! - A3: no node is made under a lease id that this process has given up (`tombstones`).

use std::sync::Arc;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, LockError, Marks, Moment, Record,
};
use tokio::join;

use crate::error::{ENGINE, Trouble, not_applied, unavailable};
use crate::held::Held;
use crate::keys::stander;
use crate::queue::{Queue, WORN_OUT};
use crate::session::Session;
use crate::sessions::Key;
use crate::store::Store;
use crate::wire::Wire;

/// How often a request is tried whose session, or whose queue's node, goes in between.
const ATTEMPTS: usize = 8;

impl Store {
    pub(crate) async fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        let _turn = self.held.turn(&request.name, request.lease_id).await;
        match self.held.find(&request.name, request.lease_id) {
            Some(held) => self.ask_again(request, held).await,
            None if request.known => self.unknown(request).await,
            None => self.ask_fresh(request).await,
        }
    }

    /// Says why a lease id is not known that was.
    async fn unknown(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let wire = self.wire().await?;
        self.marks(&wire, request.lease_id).await?.check(ENGINE)?;
        Ok(AcquireReply::Unknown)
    }

    /// Says that what was asked for stood, and is over.
    async fn ended(
        &self,
        wire: &Wire,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        self.marks(wire, request.lease_id).await?.check(ENGINE)?;
        match request.known {
            true => Ok(AcquireReply::Unknown),
            false => Err(ended_on_the_way()),
        }
    }

    /// Answers for a lease id that was asked before.
    async fn ask_again(
        &self,
        request: &AcquireRequest,
        mut held: Held,
    ) -> Result<AcquireReply, LockError> {
        let (name, id) = (&request.name, request.lease_id);
        let since = self.clock.now();
        if held.asked != request.hold {
            return Err(asked_otherwise());
        }
        let Ok(wire) = held.session.wire() else {
            self.held.forget(name, id);
            return self.unknown(request).await;
        };
        // Whoever holds nothing yet keeps its place by asking. A grant has its renewals for that.
        if held.token.is_none() && !held.sessions.heard(held.group, since) {
            return self.ended(&wire, request).await;
        }
        if held.child.is_none() {
            // The answer to its creation was lost: it is there, or will never be.
            match self.find_again(&wire, request, &held).await? {
                Some(found) => held = found,
                None if request.known => return Ok(AcquireReply::Unknown),
                None => {
                    self.held.forget(name, id);
                    return self.ask_fresh(request).await;
                }
            }
        }
        let queue = self.queue(&wire, name).await?;
        let Some((place, waits)) = queue.find(id) else {
            self.held.forget(name, id);
            return self.ended(&wire, request).await;
        };
        if place.mode() != request.mode {
            return Err(asked_otherwise());
        }
        self.learn(name, id, &queue)?;
        // A place may be older than what is known of its session: then a majority is asked.
        if waits.is_none() && !held.session.is_sure(since) {
            held.session.keep(&*self.clock).await?;
        }
        self.stands(&wire, request, &queue, since).await
    }

    /// Looks for the node whose creation was not answered.
    async fn find_again(
        &self,
        wire: &Wire,
        request: &AcquireRequest,
        held: &Held,
    ) -> Result<Option<Held>, Trouble> {
        let (name, id) = (&request.name, request.lease_id);
        wire.catch_up(self.layout.root()).await?;
        let queue = self.queue(wire, name).await?;
        let Some((place, _)) = queue.find(id) else { return Ok(None) };
        let path = self.layout.child(name, &place.child);
        let Some(stat) = wire.stat(&path).await? else { return Ok(None) };
        let child = Some(place.child.clone());
        let found = Held { child, czxid: stat.czxid, version: stat.version, ..held.clone() };
        self.held.note(name, id, found.clone());
        Ok(Some(found))
    }

    async fn ask_fresh(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        if self.held.was_given_up(request.lease_id, self.clock.now()) {
            return Err(not_applied(ErrorKind::Cancelled));
        }
        let group = Key::of(request.client, request.hold);
        for _ in 0..ATTEMPTS {
            let since = self.clock.now();
            let session = self.sessions.obtain(group).await?;
            self.sessions.begin(group, since);
            match self.enter(request, &session, group, since).await {
                Err(error) if session.is_over() && error.certainty() == Certainty::NotApplied => {}
                told => return told,
            }
        }
        Err(unavailable("the session ends again and again", Certainty::NotApplied))
    }

    /// Makes the node if the name allows it.
    async fn enter(
        &self,
        request: &AcquireRequest,
        session: &Arc<Session>,
        group: Key,
        since: Moment,
    ) -> Result<AcquireReply, LockError> {
        let (name, id) = (&request.name, request.lease_id);
        // Nothing has left yet.
        let wire = session.wire().map_err(not_sent)?;
        let path = self.layout.contender(name, id, request.mode);
        let data = Record::new(request.hold, &request.metadata).to_bytes();
        let mut looked = self.seen.allows(request, self.capabilities.max_waiters, since);
        for _ in 0..ATTEMPTS {
            if !looked && let Some(refusal) = self.look(&wire, request).await.map_err(not_sent)? {
                return Ok(refusal);
            }
            looked = true;
            let group = (group, self.sessions.clone());
            self.held.note(name, id, Held::new(session.clone(), group, request.hold));
            let sent = self.clock.now();
            let creating = wire.create_contender(&path, &data);
            let (created, queue, marks) =
                join!(creating, self.queue(&wire, name), self.marks(&wire, id));
            let (child, stat) = match created {
                Ok(created) => created,
                Err(Trouble::NoNode) => {
                    let made = wire.make_container(&self.layout.queue(name)).await;
                    self.or_forget(request, made.map_err(not_sent))?;
                    continue;
                }
                Err(trouble) => return self.or_forget(request, Err(trouble.into_error())),
            };
            session.prove(sent);
            self.held.update(name, id, |held| {
                (held.child, held.czxid) = (Some(child.clone()), stat.czxid);
                held.version = stat.version;
            });
            let made = Made { wire: &wire, child, since };
            if made.number() >= WORN_OUT {
                self.seen.forget(name);
                self.take_back(&made, request).await?;
                looked = false;
                continue;
            }
            return self.entered(&made, request, (queue, marks)).await;
        }
        self.held.forget(name, id);
        Err(unavailable("the queue's node goes again and again", Certainty::NotApplied))
    }

    /// Forgets a lease id of which nothing was left.
    fn or_forget<T>(
        &self,
        request: &AcquireRequest,
        told: Result<T, LockError>,
    ) -> Result<T, LockError> {
        told.inspect_err(|error| {
            if error.certainty() == Certainty::NotApplied {
                self.held.forget(&request.name, request.lease_id);
            }
        })
    }

    /// Says why a name is not to be had; `None` when a node may be made.
    async fn look(
        &self,
        wire: &Wire,
        request: &AcquireRequest,
    ) -> Result<Option<AcquireReply>, Trouble> {
        let (queue, marks) =
            join!(self.queue(wire, &request.name), self.marks(wire, request.lease_id));
        let queue = queue?;
        marks?.check(ENGINE)?;
        queue.check_kind(request.mode, self.layout.family_of(request.mode))?;
        if queue.find(request.lease_id).is_some() {
            return Err(used_by_another().into());
        }
        if queue.is_worn_out() {
            return self.wear_out(wire, request, &queue).await;
        }
        self.seen.note(request, &queue, self.clock.now());
        let limit = self.capabilities.max_waiters;
        if !queue.holders().is_empty() && request.queue && queue.waiting().len() >= limit {
            return Err(not_applied(ErrorKind::TooManyWaiters { limit }).into());
        }
        match request.queue || queue.admits(request.mode) {
            true => Ok(None),
            false => Ok(Some(self.busy(wire, request, &queue).await?)),
        }
    }

    /// Lets nobody into a queue that is worn out, and begins with a new one when it is empty (Q3 of
    /// `queue`). `None` when a node may be made.
    async fn wear_out(
        &self,
        wire: &Wire,
        request: &AcquireRequest,
        queue: &Queue,
    ) -> Result<Option<AcquireReply>, Trouble> {
        let path = self.layout.queue(&request.name);
        if queue.contenders().is_empty() && wire.delete_empty(&path).await? {
            return Ok(None);
        }
        tracing::debug!(name = %request.name, "a worn-out queue lets nobody in until it is empty");
        Ok(Some(self.busy(wire, request, queue).await?))
    }

    async fn busy(
        &self,
        wire: &Wire,
        request: &AcquireRequest,
        queue: &Queue,
    ) -> Result<AcquireReply, Trouble> {
        let Some((holder, record)) = self.first(wire, &request.name, queue).await? else {
            let next_look = QUEUE_HEARTBEAT;
            return Ok(AcquireReply::Busy { holder: None, at_most: None, next_look });
        };
        // Of another process it is known how it was asked for: it may have been kept just now.
        let left = holder.left.or(record.and_then(|record| record.hold.duration()));
        let at_most = left.filter(|_| queue.holders().len() == 1);
        Ok(AcquireReply::Busy { holder: Some(holder), at_most, next_look: QUEUE_HEARTBEAT })
    }

    /// Answers for a node that was made, by what was seen behind it.
    async fn entered(
        &self,
        made: &Made<'_>,
        request: &AcquireRequest,
        (queue, marks): (Result<Queue, Trouble>, Result<Marks, Trouble>),
    ) -> Result<AcquireReply, LockError> {
        let (name, id) = (&request.name, request.lease_id);
        let seen = match (queue, marks) {
            (Err(trouble), _) | (_, Err(trouble)) => Err(trouble.into_error()),
            (Ok(queue), Ok(marks)) => {
                let family = self.layout.family_of(request.mode);
                let checked =
                    marks.check(ENGINE).and_then(|()| queue.check_kind(request.mode, family));
                let twin = queue.all_of(id).any(|place| place.child != made.child);
                checked.and_then(|()| if twin { Err(used_by_another()) } else { Ok(queue) })
            }
        };
        let queue = match seen {
            Ok(queue) => queue,
            // Nobody knows how it stands: the node is there.
            Err(error) if error.certainty() == Certainty::Unknown => return Err(error),
            Err(error) => {
                self.seen.forget(name);
                self.take_back(made, request).await?;
                return Err(error);
            }
        };
        self.seen.note(request, &queue, self.clock.now());
        let Some((_, waits)) = queue.find(id) else { return Err(ended_on_the_way()) };
        let limit = self.capabilities.max_waiters;
        if waits.is_some_and(|at| at >= limit) {
            self.take_back(made, request).await?;
            return Err(not_applied(ErrorKind::TooManyWaiters { limit }));
        }
        if waits.is_some() && !request.queue {
            let busy = self.busy(made.wire, request, &queue).await;
            self.take_back(made, request).await?;
            return Ok(busy?);
        }
        self.learn(name, id, &queue)?;
        self.stands(made.wire, request, &queue, made.since).await
    }

    /// Deletes a node that should not be.
    async fn take_back(&self, made: &Made<'_>, request: &AcquireRequest) -> Result<(), LockError> {
        let (name, id) = (&request.name, request.lease_id);
        // It may stand yet, whatever this failure says of itself.
        made.wire.delete(&self.layout.child(name, &made.child), None).await.map_err(|trouble| {
            let message = format!("a node could not be taken back: {}", trouble.into_error());
            unavailable(message, Certainty::Unknown)
        })?;
        self.held.forget(name, id);
        Ok(())
    }

    /// Says how a lease id that has a node stands.
    async fn stands(
        &self,
        wire: &Wire,
        request: &AcquireRequest,
        queue: &Queue,
        since: Moment,
    ) -> Result<AcquireReply, LockError> {
        let (name, id) = (&request.name, request.lease_id);
        let Some((place, waits)) = queue.find(id) else { return Ok(AcquireReply::Unknown) };
        if let Some(at) = waits {
            let holder = match self.first(wire, name, queue).await.map_err(Trouble::into_error) {
                Ok(first) => first.map(|(holder, _)| holder),
                Err(error) if error.certainty() == Certainty::Unknown => return Err(error),
                // It may stand there and be none that we can read: our place is ours all the same.
                Err(error) => {
                    tracing::debug!(%name, %error, "whoever holds the name cannot be described");
                    None
                }
            };
            let next_look = QUEUE_HEARTBEAT;
            return Ok(AcquireReply::Queued { position: Some(at), holder, next_look });
        }
        let Some((held, token)) =
            self.held.find(name, id).and_then(|held| held.token.map(|token| (held, token)))
        else {
            return Err(ended_on_the_way());
        };
        let left = held.left(since);
        let told = held.told || !request.queue;
        if !left.is_zero() && (told || held.session.is_sure(since)) {
            self.held.update(name, id, |held| held.told = true);
            return Ok(AcquireReply::Granted { token, left: Some(left), anchor: None });
        }
        if told || held.lasts(since).is_zero() {
            return Err(ended_on_the_way());
        }
        // It stands first, and its session proves too little: this process has just stood still.
        if held.session.is_useless(self.clock.now()) {
            let made = Made { wire, child: place.child.clone(), since };
            self.take_back(&made, request).await?;
            return self.ended(wire, request).await;
        }
        let next_look = held.session.next_look();
        Ok(AcquireReply::Queued { position: Some(0), holder: None, next_look })
    }
}

/// A node that was made just now, by a request that left at `since`.
struct Made<'w> {
    wire: &'w Wire,
    child: String,
    since: Moment,
}

impl Made<'_> {
    fn number(&self) -> i64 {
        stander(&self.child).map_or(0, |stander| stander.number)
    }
}

/// Nothing has left that could be carried out.
fn not_sent(trouble: Trouble) -> LockError {
    not_applied(trouble.into_error().kind().clone())
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
