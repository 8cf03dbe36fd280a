//! Acquire: a fresh request, and a repeated one.

use std::time::Duration;

use super::state::{Freeze, Holder, QueueEntry, deadline_of};
use super::store::Store;
use super::{Outcome, Table};
use crate::contract::{AcquireReply, AcquireRequest, QUEUE_HEARTBEAT};
use crate::error::{Certainty, ErrorKind, LockError, LostReason};
use crate::lease::Hold;
use crate::lease_id::LeaseId;
use crate::metadata::{HolderFields, Metadata};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::snapshot::HolderSummary;
use crate::token::FencingToken;

impl<S: Store> Table<'_, S> {
    /// Carries out an acquire request.
    ///
    /// # Errors
    /// Outer: the store's own failure. Inner: `Invalid`, `Unsupported`, `Cancelled` (the id was
    /// given up), `Lost` (the id was revoked), `TooManyWaiters`; none of them is applied.
    pub fn acquire(&mut self, request: &AcquireRequest) -> Outcome<AcquireReply, S::Error> {
        if let Err(error) = request.check(self.profile) {
            return Ok(Err(error.with_name(&request.name)));
        }
        self.settle()?;
        let reply = match self.answer_known(request)? {
            Some(reply) => reply,
            None => {
                self.keep_for(request)?;
                self.acquire_fresh(request)?
            }
        };
        Ok(reply.map_err(|error| error.with_name(&request.name)))
    }

    /// Replies to a request under a lease id that the name already knows; `None` for other ids.
    fn answer_known(
        &mut self,
        request: &AcquireRequest,
    ) -> Result<Option<Result<AcquireReply, LockError>>, S::Error> {
        let engine = self.profile.engine;
        let sessions = self.has_sessions();
        let now = self.now;
        let id = request.lease_id;
        if let Some(kind) = self.dead_id(id) {
            if !request.known {
                self.keep_for(request)?;
            }
            return Ok(Some(Err(not_applied(engine, kind))));
        }
        if let Some(holder) = self.head.holder_mut(id) {
            if (holder.mode, holder.asked) != (request.mode, request.hold) {
                return Ok(Some(Err(other_terms(engine))));
            }
            // A live grant that was handed over is whole once its holder has the anchor.
            if holder.hold == Hold::Live {
                holder.deadline = Moment::NEVER;
            }
            // A contender that was queued asks about its hand-off, which began with a short lease.
            if request.known && !sessions {
                holder.begin_whole_lease(now);
            }
            let token = holder.token;
            let left = holder.left(now);
            return Ok(Some(Ok(AcquireReply::Granted { token, left, anchor: None })));
        }
        let entry = match self.head.queued {
            0 => None,
            _ => self.store.find(id)?,
        };
        let Some(entry) = entry else {
            return Ok(request.known.then_some(Ok(AcquireReply::Unknown)));
        };
        if (entry.mode, entry.hold) != (request.mode, request.hold) {
            return Ok(Some(Err(other_terms(engine))));
        }
        self.store.touch(entry.place, self.now)?;
        let position = self.store.ahead_of(entry.place)?;
        Ok(Some(Ok(self.queued_reply(position))))
    }

    /// Returns why a lease id must not be used again, if so.
    fn dead_id(&self, id: LeaseId) -> Option<ErrorKind> {
        if self.head.is_given_up(id) {
            return Some(ErrorKind::Cancelled);
        }
        let reason = LostReason::Revoked(self.head.revoked_reason(id)?.to_owned());
        Some(ErrorKind::Lost { reason })
    }

    fn acquire_fresh(
        &mut self,
        request: &AcquireRequest,
    ) -> Result<Result<AcquireReply, LockError>, S::Error> {
        if let Err(error) = self.check_kind(request.mode) {
            return Ok(Err(error));
        }
        if self.is_open_to(request.mode) {
            let token = self.store.next_token()?;
            return Ok(Ok(self.grant(request, token)));
        }
        if !request.queue {
            let at_most = self.head.all_free();
            return Ok(Ok(AcquireReply::Busy {
                holder: self.blocker(),
                at_most: (at_most != Moment::NEVER).then(|| self.now.until(at_most)),
                next_look: self.next_look(0),
            }));
        }
        let limit = self.profile.max_waiters;
        if self.head.queued >= limit {
            let kind = ErrorKind::TooManyWaiters { limit };
            return Ok(Err(not_applied(self.profile.engine, kind)));
        }
        let position = self.head.queued;
        self.enqueue(request)?;
        Ok(Ok(self.queued_reply(position)))
    }

    /// Checks that a mode may be used beside those in use.
    fn check_kind(&self, mode: Mode) -> Result<(), LockError> {
        let in_use = !self.head.holders.is_empty() || self.head.queued > 0;
        if in_use { mode.check_beside(self.head.permits_of, self.profile.engine) } else { Ok(()) }
    }

    fn is_open_to(&self, mode: Mode) -> bool {
        self.head.freeze.is_none() && self.head.queued == 0 && self.head.admits(mode)
    }

    fn grant(&mut self, request: &AcquireRequest, token: FencingToken) -> AcquireReply {
        let holder = Holder {
            lease_id: request.lease_id,
            client: request.client,
            mode: request.mode,
            asked: request.hold,
            hold: request.hold,
            token,
            since: self.now,
            deadline: deadline_of(self.now, request.hold),
            revoked: None,
            metadata: request.metadata.clone(),
        };
        let left = holder.left(self.now);
        self.head.permits_of = request.mode.permits_of();
        self.head.holders.push(holder);
        AcquireReply::Granted { token, left, anchor: None }
    }

    fn enqueue(&mut self, request: &AcquireRequest) -> Result<(), S::Error> {
        let place = self.head.next_place;
        self.store.push(QueueEntry {
            place,
            lease_id: request.lease_id,
            client: request.client,
            mode: request.mode,
            hold: request.hold,
            hand_off_lease: request.hand_off_lease,
            queued_at: self.now,
            last_seen: self.now,
            metadata: request.metadata.clone(),
        })?;
        if self.head.queued == 0 {
            self.head.oldest_seen = self.now;
        }
        self.head.next_place += 1;
        self.head.queued += 1;
        self.head.permits_of = request.mode.permits_of();
        Ok(())
    }

    fn queued_reply(&self, position: usize) -> AcquireReply {
        let next_look = self.next_look(position);
        AcquireReply::Queued { position: Some(position), holder: self.blocker(), next_look }
    }

    /// Returns when a contender at this position should look again: with the heartbeat, and at the
    /// head also when the first grant expires.
    pub(super) fn next_look(&self, position: usize) -> Duration {
        match position {
            0 => self.now.until(self.head.next_free()).min(QUEUE_HEARTBEAT),
            _ => QUEUE_HEARTBEAT,
        }
    }

    /// Returns what blocks the name: the oldest holder, or else the operator's freeze.
    fn blocker(&self) -> Option<Box<HolderSummary>> {
        let holder = self.head.holders.first().map(|holder| self.summary(holder));
        let freeze = || self.head.freeze.as_ref().map(|freeze| self.freeze_summary(freeze));
        holder.or_else(freeze).map(Box::new)
    }

    fn freeze_summary(&self, freeze: &Freeze) -> HolderSummary {
        let fields = HolderFields {
            program: "an operator's freeze".into(),
            reason: freeze.reason.clone(),
            ..HolderFields::default()
        };
        HolderSummary {
            lease_id: LeaseId::from_bytes([0; 16]).short(),
            token: freeze.token,
            mode: Mode::Exclusive,
            held_for: None,
            left: Some(self.now.until(freeze.until)),
            no_expiry: false,
            // A reason with many escaped characters may not fit; then the freeze is shown without
            // it.
            metadata: Metadata::new(&fields).unwrap_or_default(),
        }
    }

    pub(super) fn summary(&self, holder: &Holder) -> HolderSummary {
        HolderSummary {
            lease_id: holder.lease_id.short(),
            token: Some(holder.token),
            mode: holder.mode,
            held_for: Some(holder.since.until(self.now)),
            left: holder.left(self.now),
            no_expiry: false,
            metadata: holder.metadata.clone(),
        }
    }
}

fn not_applied(engine: &'static str, kind: ErrorKind) -> LockError {
    LockError::new(engine, kind, Certainty::NotApplied)
}

fn other_terms(engine: &'static str) -> LockError {
    let message = "was used before with another mode or lease; draw a new lease id";
    LockError::invalid(engine, "lease_id", message)
}

/// Returns whether a renewal may turn one kind of hold into the other.
pub(super) fn may_become(from: Hold, to: Hold) -> bool {
    (from == Hold::Live) == (to == Hold::Live)
}
