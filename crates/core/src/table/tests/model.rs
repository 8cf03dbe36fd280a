//! A small world, explored in full: two or three contenders, one name, a clock of whole seconds.
//!
//! Requests and replies are atomic here; lost and late messages belong to the models of the
//! engines. The model checks the promise to users: at most one contender *considers itself the
//! holder*.

use std::time::Duration;

use stateright::{Checker, Model, Property};

use super::super::{Command, LockState, Reply};
use super::world::{ask, check_silence, check_state, ending, renewal};
use crate::contract::{AcquireReply, Purpose, RenewReply};
use crate::validity::valid_until;
use crate::{Capabilities, FencingToken, Hold, Mode, Moment};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Hold = Hold::Leased(Duration::from_secs(2));

/// What a contender knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Contender {
    /// The lease id in use: the attempt's number.
    attempt: u8,
    asked: bool,
    given_up: bool,
    /// Until when it considers itself the holder, and its token.
    holds: Option<(Moment, FencingToken)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    lock: LockState,
    counter: u64,
    now: Moment,
    contenders: Vec<Contender>,
    /// The largest token of any exclusive holder.
    largest: u64,
    broken: Option<&'static str>,
    seen: Seen,
}

/// What has happened so far, for the properties that must be reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    handed_over: bool,
    claim_missed: bool,
    asked_again: bool,
    writer_stopped_reader: bool,
    expired_under_holder: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Ask(usize),
    Renew(usize),
    Heartbeat(usize),
    Release(usize),
    GiveUp(usize),
    Second,
}

struct Small {
    modes: Vec<Mode>,
    attempts: u8,
    seconds: u64,
    profile: Capabilities,
}

impl Small {
    fn new(modes: &[Mode], attempts: u8, seconds: u64) -> Small {
        let profile = Capabilities::reference("table", "model");
        Small { modes: modes.to_vec(), attempts, seconds, profile }
    }

    fn number(contender: usize, attempt: u8) -> u8 {
        (u8::try_from(contender).expect("few contenders") + 1) << 4 | attempt
    }

    fn run(&self, world: &mut World, command: &Command) -> Reply {
        let before = world.lock.head.holders().to_vec();
        let now = world.now;
        let (reply, _) = world.lock.apply(&mut world.counter, &self.profile, command, now);
        check_state(&world.lock, world.now);
        check_silence(&world.lock, world.now);
        let after = world.lock.head.holders();
        for old in &before {
            let gone = after.iter().all(|holder| holder.lease_id() != old.lease_id());
            world.seen.claim_missed |= gone && !old.is_claimed();
        }
        world.seen.handed_over |= after.iter().any(|holder| !holder.is_claimed());
        reply
    }

    fn ask(&self, world: &mut World, who: usize) {
        let known = world.contenders[who].clone();
        let mut request = ask(Small::number(who, known.attempt), self.modes[who], true);
        request.hold = LEASE;
        let queued_writer = world.lock.queue.entries().any(|entry| entry.mode == Mode::Exclusive);
        let open = world.lock.head.admits(self.modes[who]);
        let reply = self.run(world, &Command::Acquire(request));
        match reply {
            Reply::Acquire(Ok(AcquireReply::Granted { token, left, .. })) => {
                world.seen.asked_again |= known.holds.is_some();
                self.start_holding(world, who, token, left);
            }
            Reply::Acquire(Ok(_)) => {
                let stopped = self.modes[who] == Mode::Shared && open && queued_writer;
                world.seen.writer_stopped_reader |= stopped;
            }
            other => panic!("{other:?}"),
        }
        world.contenders[who].asked = true;
    }

    fn start_holding(
        &self,
        world: &mut World,
        who: usize,
        token: FencingToken,
        left: Option<Duration>,
    ) {
        let until = valid_until(world.now, left, self.profile_drift());
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
        self.run(world, &Command::Release(ending(number, for_good)));
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
                    self.start_holding(world, who, token, left);
                }
            }
            (Reply::Renew(Ok(_)), _) => world.contenders[who].holds = None,
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
            actions.push(Action::Ask(who));
            if contender.holds.is_some() {
                actions.extend([Action::Renew(who), Action::Release(who)]);
            } else if contender.asked {
                actions.extend([Action::Heartbeat(who), Action::GiveUp(who)]);
            }
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
                self.run(&mut next, &Command::Renew(renewal(number, Purpose::Wait)));
            }
            Action::Release(who) => self.end(&mut next, who, false),
            Action::GiveUp(who) => self.end(&mut next, who, true),
            Action::Second => next.now = next.now.after(SECOND),
        }
        let now = next.now;
        for contender in &mut next.contenders {
            if contender.holds.take_if(|(until, _)| *until <= now).is_some() {
                next.seen.expired_under_holder = true;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "at most one considers itself the holder, or all share",
                |model: &Small, world: &World| {
                    let holding = world.contenders.iter().zip(&model.modes);
                    let modes: Vec<_> =
                        holding.filter(|(c, _)| c.holds.is_some()).map(|(_, m)| *m).collect();
                    modes.len() <= 1 || modes.iter().all(|mode| *mode == Mode::Shared)
                },
            ),
            Property::always("tokens grow", |_, world: &World| world.broken.is_none()),
            Property::always(
                "a client that considers itself the holder is one in the table",
                |_, world: &World| {
                    world.contenders.iter().all(|contender| {
                        contender.holds.is_none_or(|(_, token)| {
                            world.lock.head.holders().iter().any(|holder| holder.token() == token)
                        })
                    })
                },
            ),
            Property::sometimes("a name is handed over", |_, world: &World| world.seen.handed_over),
            Property::sometimes("a claim is missed", |_, world: &World| world.seen.claim_missed),
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

#[test]
fn two_writers() {
    explore(Small::new(&[Mode::Exclusive, Mode::Exclusive], 2, 5), 1_162_744);
}

#[test]
fn a_writer_between_two_readers() {
    explore(Small::new(&[Mode::Shared, Mode::Exclusive, Mode::Shared], 1, 4), 573_612);
}
