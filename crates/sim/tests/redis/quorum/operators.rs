//! The operators: they initialise the set, readmit nodes, revoke grants and raise the fence.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Engine, ErrorKind, FencingToken, LockError, LockName, Operation};
use holdline_redis::{QuorumAdmin, QuorumEngine};

use super::events::Event;
use super::nodes::SimNode;
use super::run::{ProcessSlot, ScenarioKind, World};
use crate::world::tasks::Process;

/// The largest raise of the fence above the clock: tokens then no longer follow a clock.
pub(crate) const RAISED: Duration = Duration::from_secs(3_600);
/// The first second of a server's clock, in microseconds.
const START_US: u64 = 1_767_225_600_000_000;

/// Processes from this number on are operators.
pub(crate) const FIRST: Process = 1_000_000;

/// The process of an operator.
pub(crate) fn process(one: u64) -> Process {
    FIRST + one
}

enum OperatorCommand {
    Init,
    Rejoin,
    Operate(Operation),
}

/// Returns whether the error says that the servers belong to several sets, which no client changes
/// by itself. For rivals, whose lists name servers of two sets, it is expected.
pub(crate) fn is_several_sets(kind: ScenarioKind, error: &LockError) -> bool {
    kind == ScenarioKind::Wild && error.to_string().contains("these servers are not one set")
}

/// Returns whether the error says that most servers have lost their data and some have no slot. A
/// client that never saw these servers cannot begin then.
pub(crate) fn is_mislisted(kind: ScenarioKind, error: &LockError) -> bool {
    kind == ScenarioKind::Wild && error.to_string().contains("these servers have no slot in it")
}

/// Takes in all servers, and confirms that no lock is held on any: some faults need servers that
/// vote soon after they have lost their data.
async fn vouch_for_all(admin: &QuorumAdmin) -> Result<&'static str, LockError> {
    match admin.rejoin().await {
        // There is no set yet, although clients may have begun to initialise one.
        Err(error) if matches!(error.kind(), ErrorKind::NotInitialised) => {}
        outcome => drop(outcome?),
    }
    let all = admin.plan_vouch().await?;
    admin.vouch(&all).await.map(|_| "done")
}

impl World {
    fn operate(&mut self, order: OperatorCommand) {
        self.operators += 1;
        let process = process(self.operators);
        let options = self.options(process);
        let (clock, recorder) = (Arc::new(self.clock.clone()), self.recorder.clone());
        let (common, kind) = (self.clock.clone(), self.kind);
        self.tasks.spawner().spawn(
            process,
            Box::pin(async move {
                let admin = || QuorumAdmin::new(&options, clock.clone());
                let reply = match &order {
                    OperatorCommand::Init => match admin() {
                        Ok(admin) => vouch_for_all(&admin).await,
                        Err(error) => Err(error),
                    },
                    OperatorCommand::Rejoin => match admin() {
                        Ok(admin) => admin.rejoin().await.map(|_| "done"),
                        Err(error) => Err(error),
                    },
                    OperatorCommand::Operate(operation) => {
                        match QuorumEngine::connect(&options, clock.clone()).await {
                            Ok(engine) => engine.operate(operation).await.map(|_| "done"),
                            Err(error) => Err(error),
                        }
                    }
                };
                let now = holdline_core::Clock::now(&common);
                let mut recorder = recorder.lock();
                if reply.is_ok() {
                    recorder.count(match order {
                        OperatorCommand::Init => "an operator initialises",
                        OperatorCommand::Rejoin => "an operator readmits",
                        OperatorCommand::Operate(Operation::RaiseFence { .. }) => {
                            "a fence is raised"
                        }
                        OperatorCommand::Operate(_) => "an operator revokes",
                    });
                }
                match reply {
                    Ok(done) => recorder.note(now, format_args!("{process} receives: {done}")),
                    Err(error) => {
                        recorder.two_sets |= is_several_sets(kind, &error);
                        recorder.note(now, format_args!("{process} receives: {error}"));
                    }
                }
            }),
        );
    }

    pub(crate) fn init(&mut self) {
        self.note(format_args!("an operator sets the servers up"));
        self.operate(OperatorCommand::Init);
    }

    /// An operator acts during the faults.
    pub(crate) fn help(&mut self) {
        let takes_in = self.rng.percent(50);
        if self.kind == ScenarioKind::Wild && takes_in {
            return self.vouch();
        }
        if takes_in || self.kind == ScenarioKind::Wild {
            return self.rejoin();
        }
        let ahead = self.rng.between(0, RAISED.as_millis() as u64);
        self.raise(ahead);
    }

    /// An operator raises the fence this far above the start of the clocks.
    pub(crate) fn raise(&mut self, ahead: Duration) {
        let to = START_US + ahead.as_micros() as u64;
        self.note(format_args!("an operator raises the fence to {to}"));
        let to = FencingToken::new(to).expect("a good token");
        self.operate(OperatorCommand::Operate(Operation::RaiseFence { to }));
    }

    /// An operator raises the fence above all tokens until now, which are far above all clocks.
    pub(crate) fn raise_above_clocks(&mut self) {
        self.raises += 1;
        self.raise(RAISED * self.raises);
    }

    /// Returns whether every server knows the last of these raises.
    pub(crate) fn all_know_the_raise(&mut self) -> bool {
        let raised = START_US + (RAISED * self.raises).as_micros() as u64;
        self.nodes.iter_mut().all(|node| node.floor().is_some_and(|floor| floor >= raised))
    }

    /// An operator confirms that no lock is held, which may be wrong.
    pub(crate) fn vouch(&mut self) {
        let now = self.now();
        self.note(format_args!("an operator vouches for the servers"));
        self.recorder.lock().excused = Some(now);
        self.operate(OperatorCommand::Init);
    }

    /// An operator readmits servers.
    pub(crate) fn rejoin(&mut self) {
        self.note(format_args!("an operator takes nodes in again"));
        self.operate(OperatorCommand::Rejoin);
    }

    /// If clients could not begin, since servers have no slot, an operator gives them one. The
    /// clients then begin again.
    pub(crate) fn help_clients_that_could_not_begin(&mut self) {
        let failed = std::mem::take(&mut self.recorder.lock().could_not_begin);
        if failed.is_empty() {
            return;
        }
        self.rejoin();
        for process in failed {
            let is_its = |slot: &ProcessSlot| slot.process == process && slot.alive;
            if let Some(slot) = self.slots.iter().position(is_its) {
                let again = self.after(500, 2_000);
                self.plan(again, Event::Begin(slot));
            }
        }
    }

    /// If a server still belongs to a former set, an operator empties it for the set of the
    /// majority.
    pub(crate) fn empty_minority_set(&mut self) {
        if !std::mem::take(&mut self.recorder.lock().two_sets) {
            return;
        }
        let sets: Vec<Option<String>> = self.nodes.iter_mut().map(SimNode::set).collect();
        let members = |of: &String| sets.iter().flatten().filter(|set| *set == of).count();
        let first = sets.iter().flatten().next();
        let several = sets.iter().flatten().any(|set| Some(set) != first);
        self.recorder.lock().count(match several {
            true => "two sets are reported, and separated",
            false => "two sets are reported, and one remains",
        });
        let Some(most) = sets.iter().flatten().max_by_key(|of| members(of)) else { return };
        for (node, set) in sets.iter().enumerate() {
            if set.as_ref().is_some_and(|set| set != most) {
                self.empty(node);
            }
        }
        self.vouch();
    }

    /// An operator repairs what clients cannot.
    pub(crate) fn repair(&mut self) {
        if self.kind == ScenarioKind::Wild {
            self.vouch();
        }
        self.rejoin();
    }

    fn empty(&mut self, node: usize) {
        self.lose_data(node);
        self.happens("an operator empties a server", format_args!("n{node}"));
        self.nodes[node].host.server().flush();
    }

    /// An operator revokes a grant, politely or now.
    pub(crate) fn revoke(&mut self) {
        let held = self.recorder.lock().holders();
        if held.is_empty() {
            return;
        }
        let (_, name, token) = self.rng.one_of(&held);
        let now = self.rng.percent(40);
        if now {
            // From here on the grant may end at any moment, outside the promise of exclusion.
            self.recorder.lock().taken_now.insert(token);
        }
        self.note(format_args!("an operator revokes {name} {token}, now: {now}"));
        let name = LockName::new(name).expect("a good name");
        let token = FencingToken::new(token).expect("it was given");
        let reason = "maintenance".to_owned();
        self.operate(OperatorCommand::Operate(Operation::Revoke { name, token, reason, now }));
    }
}
