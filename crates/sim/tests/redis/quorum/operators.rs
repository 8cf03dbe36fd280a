//! What operators do: they set the set up, take nodes in again, revoke, and raise the fence.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Engine, FencingToken, LockError, LockName, Operation};
use holdline_redis::{QuorumAdmin, QuorumEngine};

use super::nodes::Node;
use super::run::{Kind, World};
use crate::world::tasks::Process;

/// How far above the clock the fence is raised at most: no token leans on a clock then any more.
pub(crate) const RAISED: Duration = Duration::from_secs(3_600);
/// The first second of a server's clock, in microseconds.
const START_US: u64 = 1_767_225_600_000_000;

/// From here on processes are operators.
pub(crate) const FIRST: Process = 1_000_000;

/// The process of an operator.
pub(crate) fn process(one: u64) -> Process {
    FIRST + one
}

enum Order {
    Init,
    Rejoin,
    Operate(Operation),
}

/// Whether the servers are of several sets, which no client changes by itself. Rivals name servers
/// of two sets for good: there it is as it should be.
pub(crate) fn is_to_be_parted(kind: Kind, error: &LockError) -> bool {
    kind == Kind::Wild && error.to_string().contains("these servers are not one set")
}

impl World {
    fn operate(&mut self, order: Order) {
        self.operators += 1;
        let process = process(self.operators);
        let options = self.options(process);
        let (clock, book) = (Arc::new(self.clock.clone()), self.book.clone());
        let (common, kind) = (self.clock.clone(), self.kind);
        self.tasks.spawner().spawn(
            process,
            Box::pin(async move {
                let admin = || QuorumAdmin::new(&options, clock.clone());
                let reply = match &order {
                    Order::Init => match admin() {
                        Ok(admin) => admin.vouch().await.map(|_| "done"),
                        Err(error) => Err(error),
                    },
                    Order::Rejoin => match admin() {
                        Ok(admin) => admin.rejoin().await.map(|_| "done"),
                        Err(error) => Err(error),
                    },
                    Order::Operate(operation) => {
                        match QuorumEngine::connect(&options, clock.clone()).await {
                            Ok(engine) => engine.operate(operation).await.map(|_| "done"),
                            Err(error) => Err(error),
                        }
                    }
                };
                let now = holdline_core::Clock::now(&common);
                let mut book = book.lock();
                if reply.is_ok() {
                    book.count(match order {
                        Order::Init => "an operator sets up",
                        Order::Rejoin => "an operator takes in again",
                        Order::Operate(Operation::RaiseFence { .. }) => "a fence is raised",
                        Order::Operate(_) => "an operator revokes",
                    });
                }
                match reply {
                    Ok(done) => book.note(now, format_args!("{process} is told: {done}")),
                    Err(error) => {
                        book.two_sets |= is_to_be_parted(kind, &error);
                        book.note(now, format_args!("{process} is told: {error}"));
                    }
                }
            }),
        );
    }

    pub(crate) fn init(&mut self) {
        self.note(format_args!("an operator sets the servers up"));
        self.operate(Order::Init);
    }

    /// An operator helps in the middle of it.
    pub(crate) fn help(&mut self) {
        let takes_in = self.dice.percent(50);
        if self.kind == Kind::Wild && takes_in {
            return self.vouch();
        }
        if takes_in || self.kind == Kind::Wild {
            self.note(format_args!("an operator takes nodes in again"));
            return self.operate(Order::Rejoin);
        }
        let ahead = self.dice.between(0, RAISED.as_millis() as u64);
        self.raise(ahead);
    }

    /// An operator raises the fence so far above the clocks' beginning.
    pub(crate) fn raise(&mut self, ahead: Duration) {
        let to = START_US + ahead.as_micros() as u64;
        self.note(format_args!("an operator raises the fence to {to}"));
        let to = FencingToken::new(to).expect("a good token");
        self.operate(Order::Operate(Operation::RaiseFence { to }));
    }

    /// An operator vouches for it that nothing is held: that may be wrong.
    pub(crate) fn vouch(&mut self) {
        let now = self.now();
        self.note(format_args!("an operator vouches for the servers"));
        self.book.lock().excused = Some(now);
        self.operate(Order::Init);
    }

    /// Where clients of a set that is gone had their last word on a server, an operator empties it
    /// for the set of the most.
    pub(crate) fn part_sets(&mut self) {
        if !std::mem::take(&mut self.book.lock().two_sets) {
            return;
        }
        let sets: Vec<Option<String>> = self.nodes.iter_mut().map(Node::set).collect();
        let members = |of: &String| sets.iter().flatten().filter(|set| *set == of).count();
        let first = sets.iter().flatten().next();
        let several = sets.iter().flatten().any(|set| Some(set) != first);
        self.book.lock().count(match several {
            true => "two sets are told, and parted",
            false => "two sets are told, and one is seen",
        });
        let Some(most) = sets.iter().flatten().max_by_key(|of| members(of)) else { return };
        for (node, set) in sets.iter().enumerate() {
            if set.as_ref().is_some_and(|set| set != most) {
                self.empty(node);
            }
        }
        self.vouch();
    }

    /// What only operators may do is done.
    pub(crate) fn repair(&mut self) {
        if self.kind == Kind::Wild {
            self.vouch();
        }
        self.note(format_args!("an operator takes nodes in again"));
        self.operate(Order::Rejoin);
    }

    fn empty(&mut self, node: usize) {
        self.forgets(node);
        self.happens("an operator empties a server", format_args!("n{node}"));
        self.nodes[node].host.server().flush();
    }

    /// An operator takes a grant away, politely or now.
    pub(crate) fn revoke(&mut self) {
        let held = self.book.lock().holders();
        if held.is_empty() {
            return;
        }
        let (_, name, token) = self.dice.one_of(&held);
        let now = self.dice.percent(40);
        if now {
            // From here on it may be gone at any moment, outside the promise of exclusion.
            self.book.lock().taken_now.insert(token);
        }
        self.note(format_args!("an operator revokes {name} {token}, now: {now}"));
        let name = LockName::new(name).expect("a good name");
        let token = FencingToken::new(token).expect("it was given");
        let reason = "maintenance".to_owned();
        self.operate(Order::Operate(Operation::Revoke { name, token, reason, now }));
    }
}
