//! A name, a clock and a record of the grants; every step checks the table's invariants.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{
    Command, Head, LockState, MemoryStore, Mutant, QueueEntry, Reply, Table, WakeUp,
};
use crate::contract::{
    AcquireReply, AcquireRequest, Ending, HAND_OVER_BATCH, Hint, MIN_HAND_OFF_LEASE, MIN_TOMBSTONE,
    Purpose, QUEUE_SILENCE, ReleaseRequest, RenewReply, RenewRequest,
};
use crate::operation::Operation;
use crate::{
    Capabilities, ClientId, Expiry, FencingToken, HandOff, Hold, LeaseId, LockKind, LockName,
    Metadata, Mode, Moment,
};

pub(super) const LEASE: Hold = Hold::Leased(Duration::from_secs(10));

pub(super) fn id(number: u8) -> LeaseId {
    LeaseId::from_bytes([number; 16])
}

pub(super) fn name() -> LockName {
    LockName::new("a").expect("a good name")
}

/// A request of client `number / 16` under lease id `number`.
pub(super) fn ask(number: u8, mode: Mode, queue: bool) -> AcquireRequest {
    AcquireRequest {
        name: name(),
        lease_id: id(number),
        client: ClientId::from_u64(u64::from(number / 16)),
        mode,
        kind: LockKind::Mutex,
        hold: LEASE,
        queue,
        known: false,
        hand_off_lease: MIN_HAND_OFF_LEASE,
        metadata: Metadata::default(),
    }
}

pub(super) fn renewal(number: u8, purpose: Purpose) -> RenewRequest {
    let client = ClientId::from_u64(u64::from(number / 16));
    RenewRequest { name: name(), lease_id: id(number), client, purpose }
}

pub(super) fn ending(number: u8, for_good: bool) -> ReleaseRequest {
    ReleaseRequest { name: name(), lease_id: id(number), ending: Ending { for_good, hold: LEASE } }
}

pub(super) struct World {
    pub(super) state: LockState,
    pub(super) counter: u64,
    pub(super) profile: Capabilities,
    pub(super) now: Moment,
    pub(super) mutant: Option<Mutant>,
    /// The tokens of the current grants.
    tokens: BTreeMap<LeaseId, FencingToken>,
    /// Until when given-up ids must not be used again.
    given_up: BTreeMap<LeaseId, Moment>,
    /// The largest token that was ever seen.
    largest: u64,
}

impl World {
    pub(super) fn new() -> World {
        let mut profile = Capabilities::reference("table", "test");
        profile.live = true;
        profile.max_waiters = 40;
        World {
            state: LockState::default(),
            counter: 0,
            profile,
            now: Moment::ORIGIN.after(Duration::from_secs(1_000)),
            mutant: None,
            tokens: BTreeMap::new(),
            given_up: BTreeMap::new(),
            largest: 0,
        }
    }

    /// A world in which leases end by session and hand-offs are direct.
    pub(super) fn of_sessions() -> World {
        let mut world = World::new();
        world.profile.expiry = Expiry::Session;
        world.profile.hand_off = HandOff::Direct;
        world.profile.lease.step = Duration::from_secs(1);
        world
    }

    fn has_sessions(&self) -> bool {
        self.profile.expiry == Expiry::Session
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    pub(super) fn acquire(&mut self, number: u8, mode: Mode, queue: bool) -> AcquireReply {
        match self.step(&Command::Acquire(ask(number, mode, queue))).0 {
            Reply::Acquire(Ok(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn grant(&mut self, number: u8, mode: Mode) -> FencingToken {
        match self.acquire(number, mode, true) {
            AcquireReply::Granted { token, .. } => token,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(super) fn renew(&mut self, number: u8, purpose: Purpose) -> RenewReply {
        match self.step(&Command::Renew(renewal(number, purpose))).0 {
            Reply::Renew(Ok(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn release(&mut self, number: u8, for_good: bool) -> (Reply, Vec<WakeUp>) {
        self.step(&Command::Release(ending(number, for_good)))
    }

    /// Returns the hint with which a watch of this lease id would begin.
    pub(super) fn pending(&mut self, number: u8) -> Option<Hint> {
        let (state, counter) = (&mut self.state, &mut self.counter);
        let mut store = MemoryStore { queue: &mut state.queue, counter };
        let mut table = Table::new(&mut state.head, &mut store, &self.profile, self.now);
        let Ok(hint) = table.pending_hint(id(number));
        hint
    }

    pub(super) fn operate(&mut self, operation: Operation) -> Reply {
        self.step(&Command::Operate(operation)).0
    }

    /// Carries out a command and checks every invariant.
    pub(super) fn step(&mut self, command: &Command) -> (Reply, Vec<WakeUp>) {
        let settled = self.settled();
        let (state, counter) = (&mut self.state, &mut self.counter);
        let (reply, wake_ups) = match self.mutant {
            Some(mutant) => mutant.apply(state, counter, &self.profile, command, self.now),
            None => state.apply(counter, &self.profile, command, self.now),
        };
        self.check_reply(&settled, command, &reply);
        self.check_hand_offs(&wake_ups);
        self.check_tokens(&settled);
        self.check_given_up(command);
        check_state(&self.state, self.now);
        if !self.has_sessions() {
            check_silence(&self.state, self.now);
        }
        (reply, wake_ups)
    }

    /// Returns the state as settling alone would leave it.
    fn settled(&self) -> LockState {
        let (mut state, mut counter) = (self.state.clone(), self.counter);
        let mut store = MemoryStore { queue: &mut state.queue, counter: &mut counter };
        let Ok(()) = Table::new(&mut state.head, &mut store, &self.profile, self.now).settle();
        let over = self.state.head.over_at() <= self.now;
        assert!(!over || state.head.is_idle() && counter == self.counter, "T9: over, and not idle");
        state
    }

    fn check_reply(&self, settled: &LockState, command: &Command, reply: &Reply) {
        match (command, reply) {
            (
                Command::Acquire(request),
                Reply::Acquire(Ok(AcquireReply::Granted { token, left, .. })),
            ) => {
                let before = settled.head.holder(request.lease_id);
                match before {
                    None => {
                        assert!(!request.known, "T7: an unknown id was granted anew");
                        assert!(
                            settled.queue.is_empty() && settled.head.freeze.is_none(),
                            "T2: a newcomer passed a queue or a freeze"
                        );
                    }
                    Some(before) => {
                        assert_eq!(*token, before.token, "T7: the token changed");
                        let mut expected = before.left(self.now);
                        if request.known && !self.has_sessions() && before.revoked.is_none() {
                            // The whole lease of a hand-off begins.
                            expected = expected.max(request.hold.duration());
                        }
                        assert_eq!(*left, expected, "T7: the duration changed");
                    }
                }
            }
            (Command::Renew(request), Reply::Renew(Ok(RenewReply::Renewed { .. }))) => {
                let before = settled.head.holder(request.lease_id);
                assert!(
                    before.is_some_and(|before| before.revoked.is_none()),
                    "T5: renewed what was over or revoked"
                );
            }
            (Command::Release(request), Reply::Release(_)) => {
                let known = |head: &Head| head.holder(request.lease_id).is_some();
                let queued =
                    settled.queue.entries().any(|entry| entry.lease_id == request.lease_id);
                if !known(&settled.head) && !queued {
                    assert_eq!(self.state.head.holders, settled.head.holders, "T6");
                    assert_eq!(self.state.queue, settled.queue, "T6");
                }
            }
            _ => {}
        }
        if let (Command::Renew(request), Some(before)) =
            (command, settled.head.holder(lease_id_of(command)))
            && request.purpose == Purpose::Wait
            && let Some(after) = self.state.head.holder(request.lease_id)
        {
            let extended = after.deadline > before.deadline && !self.has_sessions();
            assert!(!extended, "the heartbeat extended a grant");
        }
    }

    /// Checks that a hand-off lasts for as long as its contender was promised.
    fn check_hand_offs(&self, wake_ups: &[WakeUp]) {
        for wake_up in wake_ups {
            let Hint::Granted { token } = wake_up.hint else { continue };
            let Some(holder) = self.state.head.holder(wake_up.lease_id) else { continue };
            assert_eq!(token, holder.token, "T3: the notification has another token");
            let left = holder.left(self.now);
            assert!(left.is_none_or(|left| left >= MIN_HAND_OFF_LEASE), "a hand-off ends early");
        }
    }

    fn check_given_up(&mut self, command: &Command) {
        if let Command::Release(request) = command
            && request.ending.for_good
        {
            self.given_up.insert(request.lease_id, self.now.after(MIN_TOMBSTONE));
        }
        let holders = self.state.head.holders.iter().map(|holder| holder.lease_id);
        for id in holders.chain(self.state.queue.entries().map(|entry| entry.lease_id)) {
            let until = self.given_up.get(&id);
            assert!(until.is_none_or(|until| *until <= self.now), "T4: a given-up id came back");
        }
    }

    fn check_tokens(&mut self, settled: &LockState) {
        for head in [&settled.head, &self.state.head] {
            let live: BTreeMap<_, _> =
                head.holders.iter().map(|holder| (holder.lease_id, holder.token)).collect();
            let mut fresh: Vec<_> = Vec::new();
            for (lease_id, token) in &live {
                match self.tokens.get(lease_id) {
                    Some(known) => assert_eq!(known, token, "T3: a grant changed its token"),
                    None => fresh.push(*token),
                }
            }
            fresh.sort();
            for token in fresh {
                assert!(self.largest < token.get(), "T3: {token} is not larger");
                self.largest = token.get();
            }
            self.tokens = live;
        }
    }
}

fn lease_id_of(command: &Command) -> LeaseId {
    match command {
        Command::Acquire(request) => request.lease_id,
        Command::Renew(request) => request.lease_id,
        Command::Release(request) => request.lease_id,
        Command::Inspect(_) | Command::Operate(_) => id(255),
    }
}

/// Checks the invariants that a state alone can break.
pub(super) fn check_state(state: &LockState, now: Moment) {
    let head = &state.head;
    let exclusive = head.holders.iter().filter(|holder| holder.mode == Mode::Exclusive).count();
    assert!(exclusive == 0 || head.holders.len() == 1, "T1: {:?}", head.holders);
    let permits = head.holders.iter().map(|holder| match holder.mode {
        Mode::Permits { count, .. } => count,
        Mode::Exclusive | Mode::Shared => 0,
    });
    assert!(head.permits_of.is_none_or(|of| permits.sum::<u32>() <= of), "T1: permits");
    let mut ids: Vec<_> = head.holders.iter().map(|holder| holder.lease_id).collect();
    ids.extend(state.queue.entries().map(|entry| entry.lease_id));
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "T4: a lease id stands twice");
    assert!(ids.iter().all(|id| !head.is_given_up(*id)), "T4: a given-up id came back");
    assert_eq!(head.queued, state.queue.len(), "the count of the queue is wrong");
    assert!(state.queue.entries().all(|entry| entry.last_seen >= head.oldest_seen));
    assert!(head.holders.iter().all(|holder| holder.deadline > now), "T5: a dead grant stands");
    if let Some(first) = state.queue.entries().next()
        && head.freeze.is_none()
        && head.holders.len() < HAND_OVER_BATCH
    {
        assert!(!head.admits(first.mode), "T8: the head waits");
    }
    if head.is_idle() {
        assert_eq!((head.permits_of, state.queue.is_empty()), (None, true), "T9");
    }
}

/// Checks that no waiter has been silent for too long.
pub(super) fn check_silence(state: &LockState, now: Moment) {
    let seen = |entry: &QueueEntry| entry.last_seen.after(QUEUE_SILENCE) > now;
    assert!(state.queue.entries().all(seen), "T8: a silent contender waits");
}
