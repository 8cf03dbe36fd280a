//! Plays a script on an engine and on the oracle, step by step.

use std::collections::HashMap;
use std::future::poll_fn;
use std::time::{Duration, Instant};

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::table::{Command, Reply, WakeUp};
use holdline_core::{
    AcquireReply, AcquireRequest, Anchor, Certainty, Ending, FencingToken, Hint, Hints, Hold,
    LeaseId, LockKind, LockName, Metadata, Mode, Moment, Operation, Purpose, ReleaseRequest,
    RenewReply, RenewRequest,
};

use super::equal::{Judge, Seen};
use super::oracle::{self, MAX_STATES, PossibleState};
use super::script::{Action, Fault, Script, Step, Terms, Verb};
use crate::asking::Random;
use crate::bench::{Bench, Client, SOON};
use crate::stalls;

/// How long to wait for a hint on a hand-driven clock, by a real one: nothing travels there.
const SOON_BY_HAND: Duration = Duration::from_secs(1);
/// How many clients the actors share: fewer than actors, so that some belong together.
const CLIENTS: usize = 3;

/// How a history ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Engine and table were equal throughout.
    Equal,
    /// They were not, in words.
    Differs(String),
    /// A command came too late for the plan.
    Void,
}

/// What an actor has.
#[derive(Clone)]
struct Actor {
    client: Client,
    request: AcquireRequest,
    id_state: IdState,
    /// The token of the last reply.
    token: Option<FencingToken>,
}

/// What may still be done with an actor's lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdState {
    /// It has none yet.
    Fresh,
    /// It was asked for, and may be asked again.
    Asked,
    /// It was refused or released: it is dead, and what asking again would do is not defined.
    Dead,
    /// It was given up for good: asking again must be refused.
    GivenUp,
}

struct Player<'a> {
    bench: &'a Bench,
    name: LockName,
    actors: Vec<Actor>,
    states: Vec<PossibleState>,
    /// Open watches and, by the engine's clock, when their contenders look again by themselves.
    watches: HashMap<LeaseId, (Hints, Moment)>,
    /// What keeps the live grants of this history.
    anchors: Vec<Anchor>,
    log: Vec<String>,
}

/// Plays a script on a fresh name. Returns how it ended and what was done and seen.
pub(super) async fn play(bench: &Bench, script: &Script) -> (End, Vec<String>) {
    let scale = bench.scale();
    let Some(due) = script.plan(bench.capabilities(), scale) else {
        return (End::Void, Vec::new());
    };
    let mut player = Player::new(bench, script);
    let began = bench.time().now();
    for (number, (step, due)) in script.steps.iter().zip(due).enumerate() {
        let action = match step {
            Step::Pass(by) => {
                player.log.push(format!("time passes: {by:?}"));
                continue;
            }
            Step::Do(action) => action,
        };
        bench.time().reach(began.after(due)).await;
        let end = player.step(action, moment_of(number, due, bench)).await;
        // A command that was carried out late may have met a deadline.
        if began.after(due).until(bench.time().now()) > scale.tolerance {
            return (End::Void, player.log);
        }
        if let Err(why) = end {
            return (why, player.log);
        }
    }
    (End::Equal, player.log)
}

/// Returns the oracle's moment of a command. By a real clock those that are due together come one
/// after the other: a client that queues right after a hand-off was seen since then.
fn moment_of(number: usize, due: Duration, bench: &Bench) -> Moment {
    let apart = if bench.time().is_manual() { 0 } else { number };
    oracle::moment(due).after(Duration::from_nanos(apart.try_into().unwrap_or(u64::MAX)))
}

impl<'a> Player<'a> {
    fn new(bench: &'a Bench, script: &Script) -> Player<'a> {
        let name = bench.name();
        let count = script.steps.iter().filter_map(|step| match step {
            Step::Do(action) => Some(action.actor + 1),
            Step::Pass(_) => None,
        });
        let actors = (0..count.max().unwrap_or(0)).map(|actor| {
            let client = bench.clients()[actor % CLIENTS].on(&name);
            let request = AcquireRequest {
                name: name.clone(),
                lease_id: LeaseId::random(&mut Random),
                client: client.id,
                mode: Mode::Exclusive,
                kind: LockKind::Mutex,
                hold: Hold::Leased(bench.scale().lease),
                queue: false,
                known: false,
                hand_off_lease: holdline_core::contract::MIN_HAND_OFF_LEASE,
                metadata: Metadata::default(),
            };
            Actor { client, request, id_state: IdState::Fresh, token: None }
        });
        Player {
            bench,
            actors: actors.collect(),
            name,
            states: vec![PossibleState::new()],
            watches: HashMap::new(),
            anchors: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Carries out one action on the engine and on every state.
    async fn step(&mut self, action: &Action, now: Moment) -> Result<(), End> {
        let Some(command) = self.command(action) else {
            self.log.push(format!("{action}: left out, nothing to do it with"));
            return Ok(());
        };
        let seen = match action.fault {
            Fault::LoseRequest => None,
            Fault::None | Fault::LoseReply => Some(self.send(action.actor, &command).await),
        };
        let unknown = action.fault != Fault::None
            || seen.as_ref().and_then(Seen::error).map(|error| error.certainty())
                == Some(Certainty::Unknown);
        self.stand(action, seen.as_ref().filter(|_| !unknown));
        let line = match &seen {
            Some(seen) if !unknown => format!("{action}: {}", shown(seen)),
            _ => action.to_string(),
        };
        self.log.push(line);
        match seen {
            Some(seen) if !unknown => self.compare(action.actor, &command, &seen, now).await,
            _ => self.fork(&command, now),
        }
    }

    /// Makes the command of an action; `None` if the contract gives it no meaning here.
    fn command(&mut self, action: &Action) -> Option<Command> {
        let name = self.name.clone();
        let actor = &mut self.actors[action.actor];
        match action.verb {
            Verb::Acquire(Terms { mode, hold, queue, hand_off_lease }) => {
                actor.id_state = IdState::Asked;
                actor.request.lease_id = LeaseId::random(&mut Random);
                let request = &mut actor.request;
                request.mode = mode;
                request.hold = hold;
                request.queue = queue;
                request.hand_off_lease = hand_off_lease;
                request.known = false;
            }
            Verb::AskAgain => {
                let may = [IdState::Asked, IdState::GivenUp];
                may.contains(&actor.id_state).then_some(())?;
            }
            Verb::OtherTerms => (actor.id_state == IdState::Asked).then_some(())?,
            Verb::Release if actor.id_state != IdState::GivenUp => {
                actor.id_state = IdState::Dead;
            }
            Verb::GiveUp => actor.id_state = IdState::GivenUp,
            Verb::Revoke { .. } => {
                actor.token?;
            }
            _ => {}
        }
        Some(actor.command(name, action.verb))
    }

    /// Notes what the contract still allows to do with the actor's lease id.
    fn stand(&mut self, action: &Action, seen: Option<&Seen>) {
        let asks = matches!(action.verb, Verb::Acquire(_) | Verb::AskAgain | Verb::OtherTerms);
        let repeat = self.bench.capabilities().repeat;
        let actor = &mut self.actors[action.actor];
        if !asks || actor.id_state != IdState::Asked {
            return;
        }
        match seen {
            Some(Seen::Acquire(Ok(AcquireReply::Granted { .. }))) => {
                actor.request.known = true;
                if !repeat {
                    actor.id_state = IdState::Dead;
                }
            }
            Some(Seen::Acquire(Ok(AcquireReply::Queued { .. }))) => actor.request.known = true,
            None if repeat => {}
            // Asking on other terms is refused, and leaves the id as it is.
            Some(_) if action.verb == Verb::OtherTerms => {}
            Some(_) | None => actor.id_state = IdState::Dead,
        }
    }

    async fn send(&mut self, actor: usize, command: &Command) -> Seen {
        let client = self.actors[actor].client.clone();
        let engine = &client.engine;
        let began = Instant::now();
        let seen = match command {
            Command::Acquire(request) => {
                let answer = engine.try_acquire(request).await;
                if let Ok(AcquireReply::Granted { anchor: Some(anchor), .. }) = &answer {
                    self.anchors.push(anchor.clone());
                }
                Seen::Acquire(answer)
            }
            Command::Renew(renewal) => Seen::Renew(client.renew(renewal).await),
            Command::Release(request) => Seen::Release(engine.release(request).await),
            Command::Inspect(name) => Seen::Inspect(engine.inspect(name).await),
            Command::Operate(operation) => Seen::Operate(engine.operate(operation).await),
        };
        stalls::note(began, Duration::ZERO);
        seen
    }

    /// The outcome is unknown: each state goes on with and without the command.
    fn fork(&mut self, command: &Command, now: Moment) -> Result<(), End> {
        for mut state in std::mem::take(&mut self.states) {
            self.states.push(state.clone());
            state.apply(self.bench.capabilities(), command, now);
            self.states.push(state);
        }
        self.thin_out()
    }

    fn thin_out(&mut self) -> Result<(), End> {
        let mut different: Vec<PossibleState> = Vec::new();
        for state in std::mem::take(&mut self.states) {
            if !different.contains(&state) {
                different.push(state);
            }
        }
        self.states = different;
        if self.states.len() > MAX_STATES { Err(End::Void) } else { Ok(()) }
    }

    /// The outcome is known: only the states that answer the same go on.
    async fn compare(
        &mut self,
        actor: usize,
        command: &Command,
        seen: &Seen,
        now: Moment,
    ) -> Result<(), End> {
        let mut differences = Vec::new();
        let mut wake_ups = Vec::new();
        for mut state in std::mem::take(&mut self.states) {
            let (reply, wakes) = state.apply(self.bench.capabilities(), command, now);
            match self.judge(&mut state, actor, &reply, seen, now) {
                Ok(()) => {
                    wake_ups.push(wakes);
                    self.states.push(state);
                }
                Err(why) => differences.push(why),
            }
        }
        if self.states.is_empty() {
            return Err(End::Differs(differences.join("; or ")));
        }
        self.learn(actor, seen);
        if let [wake_ups] = wake_ups.as_slice() {
            self.are_notified(wake_ups).await?;
        }
        self.thin_out()
    }

    fn judge(
        &self,
        state: &mut PossibleState,
        actor: usize,
        reply: &Reply,
        seen: &Seen,
        now: Moment,
    ) -> Result<(), String> {
        // Looking at a table that has just settled changes nothing.
        let look = Command::Inspect(self.name.clone());
        let (stands, _) = state.clone().apply(self.bench.capabilities(), &look, now);
        let Reply::Inspect(stands) = stands else {
            return Err("the table did not answer a look with a snapshot".into());
        };
        let mut judge = Judge {
            profile: self.bench.capabilities(),
            tolerance: self.bench.scale().tolerance,
            mode: self.actors[actor].request.mode,
            stands: &stands,
            tokens: &mut state.tokens,
        };
        judge.equal(reply, seen)
    }

    /// Remembers the actor's reply, and opens its watch.
    fn learn(&mut self, actor: usize, seen: &Seen) {
        let actor = &mut self.actors[actor];
        let id = actor.request.lease_id;
        let look = match seen {
            Seen::Acquire(Ok(AcquireReply::Granted { token, .. })) => {
                actor.token = Some(*token);
                None
            }
            Seen::Acquire(Ok(AcquireReply::Queued { next_look, .. }))
            | Seen::Renew(Ok(RenewReply::Queued { next_look, .. })) => Some(*next_look),
            _ => None,
        };
        if let Some(look) = look {
            let at = self.bench.time().now().after(look);
            let open = || (actor.client.engine.watch(&self.name, id), at);
            self.watches.entry(id).or_insert_with(open).1 = at;
        }
    }

    /// Every contender that the table wakes has a hint, or looks no later than its next
    /// heartbeat. A holder that is to check its lease learns at its next renewal in any case.
    async fn are_notified(&mut self, wake_ups: &[WakeUp]) -> Result<(), End> {
        let next_beat = self.bench.time().now().after(QUEUE_HEARTBEAT);
        for wake_up in wake_ups.iter().filter(|wake_up| wake_up.hint != Hint::CheckLease) {
            let Some((hints, look)) = self.watches.get_mut(&wake_up.lease_id) else { continue };
            if *look <= next_beat {
                continue;
            }
            let next = poll_fn(|context| hints.as_mut().poll_next(context));
            let soon = if self.bench.time().is_manual() { SOON_BY_HAND } else { SOON };
            if tokio::time::timeout(soon, next).await.ok().flatten().is_none() {
                let id = wake_up.lease_id;
                let wait = next_beat.until(*look) + QUEUE_HEARTBEAT;
                return Err(End::Differs(format!("{id} was not notified, and looks in {wait:?}")));
            }
        }
        Ok(())
    }
}

impl Actor {
    fn command(&self, name: LockName, verb: Verb) -> Command {
        let renew = |purpose| {
            Command::Renew(RenewRequest {
                name: name.clone(),
                lease_id: self.request.lease_id,
                client: self.client.id,
                purpose,
            })
        };
        let release = |for_good| {
            Command::Release(ReleaseRequest {
                name: name.clone(),
                lease_id: self.request.lease_id,
                ending: Ending { for_good, hold: self.request.hold },
            })
        };
        let reason = || String::from("the suite's operator");
        match verb {
            Verb::Acquire(_) | Verb::AskAgain => Command::Acquire(self.request.clone()),
            Verb::OtherTerms => Command::Acquire(self.on_other_terms()),
            Verb::Keep(hold) => renew(Purpose::Keep(hold)),
            Verb::Beat => renew(Purpose::Wait),
            Verb::Release => release(false),
            Verb::GiveUp => release(true),
            Verb::Inspect => Command::Inspect(name),
            Verb::Revoke { now } => Command::Operate(Operation::Revoke {
                name,
                token: self.token.unwrap_or(FencingToken::MAX),
                reason: reason(),
                now,
            }),
            Verb::Freeze(duration) => {
                Command::Operate(Operation::Freeze { name, duration, reason: reason() })
            }
            Verb::Unfreeze => Command::Operate(Operation::Unfreeze { name }),
        }
    }

    fn on_other_terms(&self) -> AcquireRequest {
        let other = match self.request.hold {
            Hold::Leased(lease) | Hold::Detached(lease) => Hold::Leased(lease * 9 / 10),
            Hold::Live => Hold::Leased(Duration::from_secs(10)),
        };
        AcquireRequest { hold: other, ..self.request.clone() }
    }
}

/// Writes an answer for people: what matters of it.
fn shown(seen: &Seen) -> String {
    match seen {
        Seen::Acquire(Ok(AcquireReply::Granted { token, left, .. })) => {
            format!("granted, token {token}, left {left:?}")
        }
        Seen::Acquire(Ok(AcquireReply::Queued { position, .. })) => {
            format!("queued at {position:?}")
        }
        Seen::Acquire(Ok(AcquireReply::Busy { at_most, .. })) => format!("busy, {at_most:?}"),
        Seen::Acquire(Ok(AcquireReply::Unknown)) => "unknown".into(),
        Seen::Renew(Ok(reply)) => format!("{reply:?}"),
        Seen::Release(Ok(reply)) => format!("{reply:?}"),
        Seen::Inspect(Ok(snapshot)) => format!(
            "{} hold, {} wait, freeze: {}",
            snapshot.holder_count,
            snapshot.queue_length,
            snapshot.freeze.is_some()
        ),
        Seen::Operate(Ok(reply)) => format!("{reply:?}"),
        Seen::Acquire(Err(error))
        | Seen::Renew(Err(error))
        | Seen::Release(Err(error))
        | Seen::Inspect(Err(error))
        | Seen::Operate(Err(error)) => format!("{error}"),
    }
}
