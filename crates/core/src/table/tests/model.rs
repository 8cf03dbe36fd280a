//! A small world, explored in full: two or three contenders, one name, a clock of whole seconds.
//!
//! The message of a hand-off may be lost, late or repeated, and one first request may go unanswered
//! and arrive late; all other requests and replies are atomic. The model checks the promise to
//! users: at most one contender *considers itself the holder*.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, Model, Property};

use super::super::{Command, LockState, Reply};
use super::world::{ask, check_silence, check_state, ending, name, renewal};
use crate::contract::{AcquireReply, AcquireRequest, Hint, Purpose, RenewReply};
use crate::operation::Operation;
use crate::validity::valid_until;
use crate::{Capabilities, FencingToken, Hold, Mode, Moment};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Hold = Hold::Leased(Duration::from_secs(3));
const HAND_OFF_LEASE: Duration = Duration::from_secs(2);

/// What a contender knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Contender {
    /// The lease id in use: the attempt's number.
    attempt: u8,
    asked: bool,
    /// A request under the id went unanswered.
    unsettled: bool,
    /// When the last request was sent that was answered as queued.
    queued_at: Option<Moment>,
    given_up: bool,
    /// Its lease ran out, so it only releases.
    lost: bool,
    /// Until when it considers itself the holder, and its token.
    holds: Option<(Moment, FencingToken)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    lock: LockState,
    counter: u64,
    now: Moment,
    contenders: Vec<Contender>,
    /// The messages of hand-offs, for whom they are and with which token. Each stays until its
    /// attempt is over, so it can be late, repeated or lost.
    messages: BTreeSet<(usize, u8, FencingToken)>,
    /// A copy of an unanswered request that is still on its way.
    late: Option<(usize, u8)>,
    unanswered: bool,
    revoked: bool,
    /// The largest token of any exclusive holder.
    largest: u64,
    broken: Option<&'static str>,
    seen: Seen,
}

/// What has happened so far, for the properties that must be reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    handed_over: bool,
    ended_unextended: bool,
    began_by_message: bool,
    arrived_late: bool,
    asked_again: bool,
    writer_stopped_reader: bool,
    expired_under_holder: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Ask(usize),
    Renew(usize),
    Heartbeat(usize),
    /// Sends the first request, whose reply is lost; it may arrive later.
    AskUnanswered(usize),
    /// The copy on its way arrives.
    Arrive,
    Deliver(usize, u8, FencingToken),
    Revoke,
    Release(usize),
    GiveUp(usize),
    Second,
}

/// What must never be otherwise.
const ALWAYS: [&str; 3] = [
    "at most one considers itself the holder, or all share",
    "tokens grow",
    "a client that considers itself the holder is one in the table",
];

struct Small {
    modes: Vec<Mode>,
    attempts: u8,
    seconds: u64,
    profile: Capabilities,
    /// What may happen beside requests, replies and messages.
    event: Option<Event>,
    fault: Option<Fault>,
}

/// What may happen once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A first request goes unanswered, and may arrive late.
    LateRequest,
    /// An operator revokes a grant politely.
    Revoke,
}

/// A rule of the client that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It counts the lease of a hand-off from the arrival of the message.
    CountsFromMessage,
    /// It believes a message although a request under the id went unanswered.
    BelievesUnsettled,
}

impl Small {
    fn new(modes: &[Mode], attempts: u8, seconds: u64) -> Small {
        let profile = Capabilities::reference("table", "model");
        Small { modes: modes.to_vec(), attempts, seconds, profile, event: None, fault: None }
    }

    fn number(contender: usize, attempt: u8) -> u8 {
        (u8::try_from(contender).expect("few contenders") + 1) << 4 | attempt
    }

    fn run(&self, world: &mut World, command: &Command) -> Reply {
        let before = world.lock.head.holders().to_vec();
        let now = world.now;
        let (reply, wake_ups) = world.lock.apply(&mut world.counter, &self.profile, command, now);
        check_state(&world.lock, world.now);
        check_silence(&world.lock, world.now);
        for wake_up in wake_ups {
            let Hint::Granted { token } = wake_up.hint else { continue };
            let number = wake_up.lease_id.as_bytes()[0];
            world.messages.insert((usize::from(number >> 4) - 1, number & 15, token));
            world.seen.handed_over = true;
        }
        let after = world.lock.head.holders();
        for old in before {
            let gone = after.iter().all(|holder| holder.lease_id() != old.lease_id());
            world.seen.ended_unextended |= gone && old.hold() == LEASE.lasting(HAND_OFF_LEASE);
        }
        reply
    }

    fn request(&self, who: usize, contender: &Contender) -> AcquireRequest {
        let mut request = ask(Small::number(who, contender.attempt), self.modes[who], true);
        request.hold = LEASE;
        request.hand_off_lease = HAND_OFF_LEASE;
        request.known = contender.queued_at.is_some();
        request
    }

    fn ask(&self, world: &mut World, who: usize) {
        let contender = world.contenders[who].clone();
        let request = self.request(who, &contender);
        let queued_writer = world.lock.queue.entries().any(|entry| entry.mode == Mode::Exclusive);
        let open = world.lock.head.admits(self.modes[who]);
        let reply = self.run(world, &Command::Acquire(request));
        world.contenders[who].asked = true;
        match reply {
            Reply::Acquire(Ok(AcquireReply::Granted { token, left, .. })) => {
                world.seen.asked_again |= contender.holds.is_some();
                self.start_holding(world, who, world.now, (token, left));
            }
            Reply::Acquire(Ok(AcquireReply::Queued { .. })) => {
                world.contenders[who].queued_at = Some(world.now);
                let stopped = self.modes[who] == Mode::Shared && open && queued_writer;
                world.seen.writer_stopped_reader |= stopped;
            }
            Reply::Acquire(_) => self.end(world, who, true),
            other => panic!("{other:?}"),
        }
    }

    fn arrive(&self, world: &mut World) {
        let Some((who, attempt)) = world.late.take() else { return };
        let contender = Contender { attempt, ..Contender::default() };
        self.run(world, &Command::Acquire(self.request(who, &contender)));
        world.seen.arrived_late = true;
    }

    /// Handles a message as the library does.
    fn deliver(&self, world: &mut World, (who, attempt, token): (usize, u8, FencingToken)) {
        let contender = &world.contenders[who];
        let unsettled = contender.unsettled && self.fault != Some(Fault::BelievesUnsettled);
        if contender.attempt != attempt || contender.holds.is_some() || contender.lost || unsettled
        {
            return;
        }
        let Some(queued_at) = contender.queued_at else { return };
        let from = match self.fault {
            Some(Fault::CountsFromMessage) => world.now,
            _ => queued_at,
        };
        self.start_holding(world, who, from, (token, Some(HAND_OFF_LEASE)));
        world.seen.began_by_message = true;
    }

    fn start_holding(
        &self,
        world: &mut World,
        who: usize,
        sent: Moment,
        (token, left): (FencingToken, Option<Duration>),
    ) {
        let until = valid_until(sent, left, self.profile_drift());
        if until <= world.now {
            return;
        }
        if self.modes[who] == Mode::Exclusive && world.contenders[who].holds.is_none() {
            if token.get() <= world.largest {
                world.broken = Some("a later exclusive holder has a smaller token");
            }
            world.largest = world.largest.max(token.get());
        }
        world.contenders[who].holds = Some((until, token));
    }

    fn profile_drift(&self) -> u32 {
        crate::lease::DEFAULT_DRIFT_PPM
    }

    fn end(&self, world: &mut World, who: usize, for_good: bool) {
        let number = Small::number(who, world.contenders[who].attempt);
        let for_good = for_good || world.contenders[who].unsettled;
        self.run(world, &Command::Release(ending(number, for_good)));
        world.messages.retain(|(to, _, _)| *to != who);
        let attempt = world.contenders[who].attempt + 1;
        let given_up = attempt >= self.attempts;
        world.contenders[who] = Contender { attempt, given_up, ..Contender::default() };
    }

    fn renew(&self, world: &mut World, who: usize) {
        let number = Small::number(who, world.contenders[who].attempt);
        let reply = self.run(world, &Command::Renew(renewal(number, Purpose::Keep(LEASE))));
        match (reply, world.contenders[who].holds) {
            (Reply::Renew(Ok(RenewReply::Renewed { left })), Some((until, token))) => {
                // A renewal never resurrects: a reply after the end of validity is ignored.
                if until > world.now {
                    self.start_holding(world, who, world.now, (token, left));
                }
            }
            // It stays valid for the rest of its time.
            (Reply::Renew(Ok(RenewReply::Revoked { left, .. })), _)
                if left != Some(Duration::ZERO) => {}
            (Reply::Renew(Ok(_)), _) => {
                world.contenders[who].holds = None;
                world.contenders[who].lost = true;
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Model for Small {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            lock: LockState::default(),
            counter: 0,
            now: Moment::ORIGIN.after(100 * SECOND),
            contenders: vec![Contender::default(); self.modes.len()],
            messages: BTreeSet::new(),
            late: None,
            unanswered: false,
            revoked: false,
            largest: 0,
            broken: None,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (who, contender) in world.contenders.iter().enumerate() {
            if contender.given_up {
                continue;
            }
            if contender.lost {
                actions.push(Action::Release(who));
                continue;
            }
            actions.push(Action::Ask(who));
            let may_fail = self.event == Some(Event::LateRequest) && who == 0;
            if may_fail && !contender.asked && !world.unanswered {
                actions.push(Action::AskUnanswered(who));
            }
            if contender.holds.is_some() {
                actions.extend([Action::Renew(who), Action::Release(who)]);
            } else if contender.asked {
                actions.extend([Action::Heartbeat(who), Action::GiveUp(who)]);
            }
        }
        let messages = world.messages.iter();
        actions
            .extend(messages.map(|(who, attempt, token)| Action::Deliver(*who, *attempt, *token)));
        if world.late.is_some() {
            actions.push(Action::Arrive);
        }
        let may_revoke = self.event == Some(Event::Revoke) && !world.revoked;
        if may_revoke && !world.lock.head.holders().is_empty() {
            actions.push(Action::Revoke);
        }
        if world.now
            < Moment::ORIGIN
                .after(100 * SECOND)
                .after(SECOND * u32::try_from(self.seconds).unwrap_or(0))
        {
            actions.push(Action::Second);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Ask(who) => self.ask(&mut next, who),
            Action::Renew(who) => self.renew(&mut next, who),
            Action::Heartbeat(who) => {
                let number = Small::number(who, next.contenders[who].attempt);
                let reply = self.run(&mut next, &Command::Renew(renewal(number, Purpose::Wait)));
                if matches!(reply, Reply::Renew(Ok(RenewReply::Queued { .. }))) {
                    next.contenders[who].queued_at = Some(next.now);
                }
            }
            Action::AskUnanswered(who) => {
                let contender = &mut next.contenders[who];
                contender.asked = true;
                contender.unsettled = true;
                next.late = Some((who, contender.attempt));
                next.unanswered = true;
            }
            Action::Arrive => self.arrive(&mut next),
            Action::Deliver(who, attempt, token) => self.deliver(&mut next, (who, attempt, token)),
            Action::Revoke => {
                next.revoked = true;
                let token = next.lock.head.holders()[0].token();
                let reason = String::new();
                let revoke = Operation::Revoke { name: name(), token, reason, now: false };
                self.run(&mut next, &Command::Operate(revoke));
            }
            Action::Release(who) => self.end(&mut next, who, false),
            Action::GiveUp(who) => self.end(&mut next, who, true),
            Action::Second => next.now = next.now.after(SECOND),
        }
        let now = next.now;
        for contender in &mut next.contenders {
            if contender.holds.take_if(|(until, _)| *until <= now).is_some() {
                contender.lost = true;
                next.seen.expired_under_holder = true;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALWAYS[0], |model: &Small, world: &World| {
                let holding = world.contenders.iter().zip(&model.modes);
                let modes: Vec<_> =
                    holding.filter(|(c, _)| c.holds.is_some()).map(|(_, m)| *m).collect();
                modes.len() <= 1 || modes.iter().all(|mode| *mode == Mode::Shared)
            }),
            Property::always(ALWAYS[1], |_, world: &World| world.broken.is_none()),
            Property::always(ALWAYS[2], |_, world: &World| {
                world.contenders.iter().all(|contender| {
                    contender.holds.is_none_or(|(_, token)| {
                        world.lock.head.holders().iter().any(|holder| holder.token() == token)
                    })
                })
            }),
            Property::sometimes("a name is handed over", |_, world: &World| world.seen.handed_over),
            Property::sometimes("a hand-off ends unextended", |_, world: &World| {
                world.seen.ended_unextended
            }),
            Property::sometimes("a hold begins by a message", |_, world: &World| {
                world.seen.began_by_message
            }),
            Property::sometimes("a request arrives late", |model: &Small, world: &World| {
                world.seen.arrived_late || model.event != Some(Event::LateRequest)
            }),
            Property::sometimes(
                "a reader waits behind a writer",
                |model: &Small, world: &World| {
                    world.seen.writer_stopped_reader || !model.modes.contains(&Mode::Shared)
                },
            ),
            Property::sometimes("a holder asks again", |_, world: &World| world.seen.asked_again),
            Property::sometimes("a lease ends under its holder", |_, world: &World| {
                world.seen.expired_under_holder
            }),
            Property::sometimes("a holder has a successor", |_, world: &World| world.largest >= 2),
        ]
    }
}

/// Explores a world in full and checks how many states it has: another number means that the rules
/// or the model have changed. A change of either updates the number.
fn explore(model: Small, pinned: usize) {
    let checker = model.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    println!("{states} states");
    assert_eq!(states, pinned);
}

fn two_writers(event: Option<Event>) -> Small {
    // An event needs no more than one attempt of each beside it.
    let seconds = if event.is_some() { 4 } else { 5 };
    Small { event, ..Small::new(&[Mode::Exclusive, Mode::Exclusive], 2, seconds) }
}

#[test]
fn two_writers_with_late_messages() {
    explore(two_writers(None), 529_766);
}

#[test]
fn two_writers_and_a_late_request() {
    explore(two_writers(Some(Event::LateRequest)), 1_649_855);
}

#[test]
fn two_writers_and_an_operator() {
    explore(two_writers(Some(Event::Revoke)), 1_321_145);
}

#[test]
fn a_writer_between_two_readers() {
    explore(Small::new(&[Mode::Shared, Mode::Exclusive, Mode::Shared], 1, 4), 259_280);
}

/// The model proves something only if a broken rule breaks one of its properties.
#[test]
fn every_broken_rule_of_the_client_is_found() {
    let faults =
        [(Fault::CountsFromMessage, None), (Fault::BelievesUnsettled, Some(Event::LateRequest))];
    for (fault, event) in faults {
        let model = Small { fault: Some(fault), ..two_writers(event) };
        let checker = model.checker().threads(2).spawn_bfs().join();
        let found = checker.discoveries();
        let broken = ALWAYS.iter().any(|name| found.contains_key(name));
        assert!(broken, "{fault:?} was not found");
    }
}
