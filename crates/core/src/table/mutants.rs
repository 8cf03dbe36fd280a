//! Mutants of the rules: each breaks one rule, and the tests of the rules must detect it.
//!
//! A mutant is a decorator around [`LockState::apply`]. It changes the command, hides a part of the
//! state while the rules run, or changes the state afterwards. So the rules contain no test code.

use std::mem;
use std::time::Duration;

use super::state::deadline_of;
use super::{Command, LockState, MemoryStore, Reply, Table, WakeUp};
use crate::capabilities::Capabilities;
use crate::contract::{AcquireReply, AcquireRequest, Ending, Hint, Purpose, ReleaseRequest};
use crate::lease_id::LeaseId;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::token::FencingToken;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// A newcomer takes a free name although others queue for it.
    NewcomerPassesQueue,
    /// A shared contender joins shared holders although an exclusive one waits.
    ReaderPassesWriter,
    /// Any lease id releases a grant.
    ReleaseWithoutCompare,
    /// A grant that has expired is renewed.
    RenewalResurrects,
    /// A hand-off gives the token of the grant before it.
    HandOffKeepsToken,
    /// Asking again draws a new token.
    AskingAgainDrawsToken,
    /// Asking again extends a grant that was never queued for.
    AskingAgainExtends,
    /// The queue heartbeat extends a grant.
    HeartbeatExtends,
    /// The store frees a name before the lease of a hand-off is over.
    HandOffEndsEarly,
    /// Giving up for good leaves no tombstone.
    NoTombstone,
    /// A revoked grant is renewed.
    RevokedRenews,
    /// Silent contenders stay in the queue.
    SilentStay,
    /// One permit too many is given.
    OnePermitTooMany,
    /// A release hands over to no contender.
    ReleaseForgetsQueue,
    /// A newcomer takes a frozen name.
    FreezeWaits,
    /// An id that was dropped from the queue is queued anew, unseen.
    UnknownQueuesAnew,
}

/// The state machine, and what its wake-ups have been so far.
struct MutantRun<'a> {
    state: &'a mut LockState,
    counter: &'a mut u64,
    profile: &'a Capabilities,
    now: Moment,
    wake_ups: Vec<WakeUp>,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 16] = [
        Mutant::NewcomerPassesQueue,
        Mutant::ReaderPassesWriter,
        Mutant::ReleaseWithoutCompare,
        Mutant::RenewalResurrects,
        Mutant::HandOffKeepsToken,
        Mutant::AskingAgainDrawsToken,
        Mutant::AskingAgainExtends,
        Mutant::HeartbeatExtends,
        Mutant::HandOffEndsEarly,
        Mutant::NoTombstone,
        Mutant::RevokedRenews,
        Mutant::SilentStay,
        Mutant::OnePermitTooMany,
        Mutant::ReleaseForgetsQueue,
        Mutant::FreezeWaits,
        Mutant::UnknownQueuesAnew,
    ];

    /// Carries out a command as [`LockState::apply`] does, except for the broken rule.
    pub fn apply(
        self,
        state: &mut LockState,
        counter: &mut u64,
        profile: &Capabilities,
        command: &Command,
        now: Moment,
    ) -> (Reply, Vec<WakeUp>) {
        let mut run = MutantRun { state, counter, profile, now, wake_ups: Vec::new() };
        if self == Mutant::RenewalResurrects {
            run.postpone_end(command);
        }
        let last_seen = run.last_seen();
        if self == Mutant::SilentStay {
            run.state.queue.entries.values_mut().for_each(|entry| entry.last_seen = now);
        }
        run.settle();
        self.change_hand_offs(&mut run, 0);
        let settled = run.wake_ups.len();
        let reply = self.carry_out(&mut run, command);
        self.change_hand_offs(&mut run, settled);
        if self == Mutant::SilentStay {
            run.restore_last_seen(&last_seen, command);
        }
        (reply, run.wake_ups)
    }

    /// Changes the hand-offs of which the wake-ups from this one on notify.
    fn change_hand_offs(self, run: &mut MutantRun<'_>, from: usize) {
        for wake_up in &mut run.wake_ups[from..] {
            let Hint::Granted { token } = &mut wake_up.hint else { continue };
            let Some(holder) = run.state.head.holder_mut(wake_up.lease_id) else { continue };
            if self == Mutant::HandOffKeepsToken {
                *token = FencingToken::new(token.get() - 1).unwrap_or(*token);
                holder.token = *token;
            }
            if self == Mutant::HandOffEndsEarly {
                holder.deadline = run.now.after(run.now.until(holder.deadline) / 2);
            }
        }
    }

    /// Carries out a command on a settled state.
    fn carry_out(self, run: &mut MutantRun<'_>, command: &Command) -> Reply {
        match (self, command) {
            (Mutant::NewcomerPassesQueue, Command::Acquire(request)) => run.pass_queue(request),
            (Mutant::ReaderPassesWriter, Command::Acquire(request))
                if request.mode == Mode::Shared =>
            {
                run.pass_queue(request)
            }
            (Mutant::FreezeWaits, Command::Acquire(request)) => run.pass_freeze(request),
            (Mutant::OnePermitTooMany, Command::Acquire(request)) => run.hide_permit(request),
            (Mutant::AskingAgainDrawsToken, Command::Acquire(request)) => run.redraw(request),
            (Mutant::AskingAgainExtends, Command::Acquire(request)) if !request.known => {
                run.extend(request.lease_id);
                run.apply(command)
            }
            (Mutant::UnknownQueuesAnew, Command::Acquire(request)) => {
                run.apply(&Command::Acquire(AcquireRequest { known: false, ..request.clone() }))
            }
            (Mutant::HeartbeatExtends, Command::Renew(request)) => {
                run.extend(request.lease_id);
                run.apply(command)
            }
            (Mutant::RevokedRenews, Command::Renew(request)) => {
                let holder = run.state.head.holder_mut(request.lease_id);
                let revoked = holder.and_then(|holder| holder.revoked.take());
                let reply = run.apply(command);
                if let Some(holder) = run.state.head.holder_mut(request.lease_id) {
                    holder.revoked = revoked;
                }
                reply
            }
            (Mutant::NoTombstone, Command::Release(request)) => {
                let ending = Ending { for_good: false, ..request.ending };
                run.apply(&Command::Release(ReleaseRequest { ending, ..request.clone() }))
            }
            (Mutant::ReleaseWithoutCompare, Command::Release(request)) => run.release_any(request),
            (Mutant::ReleaseForgetsQueue, Command::Release(request)) => run.release_only(request),
            _ => run.apply(command),
        }
    }
}

impl MutantRun<'_> {
    fn apply(&mut self, command: &Command) -> Reply {
        let (reply, wake_ups) = self.state.apply(self.counter, self.profile, command, self.now);
        self.wake_ups.extend(wake_ups);
        reply
    }

    fn settle(&mut self) {
        let LockState { head, queue } = &mut *self.state;
        let mut store = MemoryStore { queue, counter: self.counter };
        let mut table = Table::new(head, &mut store, self.profile, self.now);
        let Ok(()) = table.settle();
        self.wake_ups.extend(table.into_wake_ups());
    }

    fn last_seen(&self) -> Vec<(LeaseId, Moment)> {
        let entries = self.state.queue.entries();
        entries.map(|entry| (entry.lease_id, entry.last_seen)).collect()
    }

    /// Gives back to each entry when it was last seen, except to the one that the command concerns.
    fn restore_last_seen(&mut self, last_seen: &[(LeaseId, Moment)], command: &Command) {
        let seen_now = match command {
            Command::Acquire(request) => Some(request.lease_id),
            Command::Renew(request) => Some(request.lease_id),
            Command::Release(_) | Command::Inspect(_) | Command::Operate(_) => None,
        };
        for entry in self.state.queue.entries.values_mut() {
            let known = last_seen.iter().find(|(lease_id, _)| *lease_id == entry.lease_id);
            if let Some((lease_id, moment)) = known
                && Some(*lease_id) != seen_now
            {
                entry.last_seen = *moment;
            }
        }
        let oldest = self.state.queue.entries().map(|entry| entry.last_seen).min();
        self.state.head.oldest_seen = oldest.unwrap_or(Moment::NEVER);
    }

    /// Lets the grant that a renewal names last until just after now.
    fn postpone_end(&mut self, command: &Command) {
        let Command::Renew(request) = command else { return };
        let now = self.now;
        let keeps = matches!(request.purpose, Purpose::Keep(_));
        if let Some(holder) = self.state.head.holder_mut(request.lease_id)
            && keeps
        {
            holder.deadline = holder.deadline.max(now.after(Duration::from_nanos(1)));
        }
    }

    /// Gives a grant its whole lease from now.
    fn extend(&mut self, lease_id: LeaseId) {
        let now = self.now;
        if let Some(holder) = self.state.head.holder_mut(lease_id) {
            holder.deadline = deadline_of(now, holder.hold);
        }
    }

    /// Carries out an acquire on a copy of the state, which `hide` has changed, and keeps the copy
    /// only if the name is granted. `restore` undoes the change.
    fn grant_on_copy(
        &mut self,
        request: &AcquireRequest,
        hide: impl FnOnce(&mut LockState),
        restore: impl FnOnce(&mut LockState, LockState),
    ) -> Reply {
        let original = self.state.clone();
        let counter = *self.counter;
        hide(self.state);
        let command = Command::Acquire(request.clone());
        let (reply, wake_ups) = self.state.apply(self.counter, self.profile, &command, self.now);
        if matches!(reply, Reply::Acquire(Ok(AcquireReply::Granted { .. }))) {
            self.wake_ups.extend(wake_ups);
            restore(self.state, original);
            return reply;
        }
        *self.state = original;
        *self.counter = counter;
        self.apply(&command)
    }

    fn pass_queue(&mut self, request: &AcquireRequest) -> Reply {
        if self.state.queue.entries().any(|entry| entry.lease_id == request.lease_id) {
            return self.apply(&Command::Acquire(request.clone()));
        }
        let hide = |state: &mut LockState| {
            state.queue = Default::default();
            state.head.queued = 0;
        };
        self.grant_on_copy(request, hide, |state, original| {
            state.queue = original.queue;
            state.head.queued = original.head.queued;
        })
    }

    fn pass_freeze(&mut self, request: &AcquireRequest) -> Reply {
        if self.state.head.queued > 0 {
            return self.apply(&Command::Acquire(request.clone()));
        }
        let hide = |state: &mut LockState| state.head.freeze = None;
        self.grant_on_copy(request, hide, |state, original| {
            state.head.freeze = original.head.freeze;
        })
    }

    fn hide_permit(&mut self, request: &AcquireRequest) -> Reply {
        let command = Command::Acquire(request.clone());
        let head = &mut self.state.head;
        if head.queued > 0 || head.holder(request.lease_id).is_some() {
            return self.apply(&command);
        }
        let Some((lease_id, mode)) = head.holders.first_mut().and_then(|holder| {
            let Mode::Permits { count, of } = holder.mode else { return None };
            let fewer = Mode::Permits { count: count.saturating_sub(1), of };
            Some((holder.lease_id, mem::replace(&mut holder.mode, fewer)))
        }) else {
            return self.apply(&command);
        };
        let reply = self.apply(&command);
        if let Some(holder) = self.state.head.holder_mut(lease_id) {
            holder.mode = mode;
        }
        reply
    }

    fn redraw(&mut self, request: &AcquireRequest) -> Reply {
        let held = self.state.head.holder(request.lease_id).is_some();
        let mut reply = self.apply(&Command::Acquire(request.clone()));
        if held
            && let Reply::Acquire(Ok(AcquireReply::Granted { token, .. })) = &mut reply
            && let Some(holder) = self.state.head.holder_mut(request.lease_id)
        {
            *self.counter += 1;
            *token = FencingToken::new(*self.counter).unwrap_or(*token);
            holder.token = *token;
        }
        reply
    }

    fn release_any(&mut self, request: &ReleaseRequest) -> Reply {
        let mut request = request.clone();
        if self.state.head.holder(request.lease_id).is_none()
            && let Some(last) = self.state.head.holders.last()
        {
            request.lease_id = last.lease_id;
            request.ending.for_good = false;
        }
        self.apply(&Command::Release(request))
    }

    fn release_only(&mut self, request: &ReleaseRequest) -> Reply {
        let command = Command::Release(request.clone());
        if self.state.head.holder(request.lease_id).is_none() {
            return self.apply(&command);
        }
        let queue = mem::take(&mut self.state.queue);
        let head = &mut self.state.head;
        let queued = mem::take(&mut head.queued);
        let permits_of = head.permits_of;
        let freeze = head.freeze.take();
        let reply = self.apply(&command);
        self.state.queue = queue;
        let head = &mut self.state.head;
        head.queued = queued;
        head.permits_of = permits_of;
        head.freeze = freeze;
        reply
    }
}
