//! One step of the nemesis: injects a fault, waits for its duration, and heals it.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::Moment;
use rustix::process::Signal;

use crate::crew::Crew;
use crate::history::Note;
use crate::plan::SERVER;
use crate::relay::{Flow, Relay};
use crate::schedule::Step;
use crate::stage::{At, Stage, TortureState};
use crate::{Fault, Injection, Nemesis};

/// How long to look for a holder that may be stopped.
const LOOK: Duration = Duration::from_secs(3);

/// Injects faults.
pub(crate) struct Striker {
    pub(crate) stage: Arc<Stage>,
    pub(crate) nemesis: Arc<dyn Nemesis>,
    /// By worker's slot and by node; empty without proxies.
    pub(crate) relays: Vec<Vec<Relay>>,
    pub(crate) nodes: usize,
    /// The first of the nodes that may forget or have their clocks moved: no majority ever is.
    pub(crate) weak_from: usize,
    pub(crate) lease: Duration,
    /// How long a silent holder keeps a name, at most.
    pub(crate) freed_within: Duration,
}

/// A worker that has read and not yet written.
#[derive(Clone, Copy)]
struct Thinker {
    slot: usize,
    attempt: u64,
    name: usize,
}

impl Striker {
    /// Carries out one step.
    pub(crate) async fn step(&self, step: &Step, crew: &mut Crew) -> Result<(), String> {
        let from = self.stage.now();
        let lasts = self.lease.saturating_mul(step.lasts) / 1_000;
        let workers = self.stage.lock().slots.len();
        let some_worker = step.worker % workers;
        match step.fault {
            Fault::PauseHolder => self.pause_holder(step).await,
            Fault::Pause => {
                self.pause(some_worker, lasts).await;
                self.note(step.fault, from, Some(some_worker), None);
            }
            Fault::Kill => {
                let slot = self.victim(step).await.unwrap_or(some_worker);
                let killed = crew.kill(slot).await;
                killed.map_err(|error| format!("a worker could not be replaced: {error}"))?;
                self.note(step.fault, from, Some(slot), None);
            }
            fault if fault.needs_network() => self.disturb(step, lasts).await,
            _ => self.strike(step, lasts).await?,
        }
        tokio::time::sleep(step.quiet).await;
        Ok(())
    }

    /// Every second time a holder, if there is one soon.
    async fn victim(&self, step: &Step) -> Option<usize> {
        if step.dice % 2 == 1 {
            return None;
        }
        self.thinking(step.worker).await.map(|thinker| thinker.slot)
    }

    /// Waits for a worker that has read and not yet written.
    async fn thinking(&self, which: usize) -> Option<Thinker> {
        let at = |(slot, at): (usize, At)| match at {
            At::Thinking { attempt, name } => Some(Thinker { slot, attempt, name }),
            _ => None,
        };
        let found = |state: &TortureState| {
            let slots = state.slots.iter().map(|slot| slot.at).enumerate();
            let holders: Vec<_> = slots.filter_map(at).collect();
            holders.get(which % holders.len().max(1)).copied()
        };
        self.stage.until(LOOK, found).await
    }

    /// Stops a holder until another has written under the same name.
    async fn pause_holder(&self, step: &Step) {
        let from = self.stage.now();
        let Some(thinker) = self.thinking(step.worker).await else { return };
        let Thinker { slot, attempt, name } = thinker;
        if !self.stage.signal(slot, Signal::STOP) {
            return;
        }
        let limit = self.freed_within.saturating_mul(2);
        let another = |state: &TortureState| {
            state.last_writer[name].filter(|writer| *writer > 0 && *writer != attempt).map(drop)
        };
        self.stage.lock().last_writer[name] = None;
        // If none comes, the holder goes on all the same: it was long past its lease.
        let _ = self.stage.until(limit, another).await;
        self.stage.signal(slot, Signal::CONT);
        self.note(step.fault, from, Some(slot), None);
        // What it does now is what all this is about.
        let written = |state: &TortureState| {
            let at = state.slots[slot].at;
            (at != At::Thinking { attempt, name }).then_some(())
        };
        let _ = self.stage.until(LOOK, written).await;
    }

    async fn pause(&self, slot: usize, lasts: Duration) {
        self.stage.signal(slot, Signal::STOP);
        tokio::time::sleep(lasts).await;
        self.stage.signal(slot, Signal::CONT);
    }

    /// Disturbs the links of one worker to all nodes, or of all workers to one node.
    async fn disturb(&self, step: &Step, lasts: Duration) {
        let from = self.stage.now();
        let (worker, node) = if step.one_worker {
            (Some(step.worker % self.relays.len()), None)
        } else {
            (None, Some(step.node % self.nodes))
        };
        let links: Vec<&Relay> = self
            .relays
            .iter()
            .enumerate()
            .filter(|(slot, _)| worker.is_none_or(|worker| worker == *slot))
            .flat_map(|(_, relays)| relays.iter().enumerate())
            .filter(|(slot, _)| node.is_none_or(|node| node == *slot))
            .map(|(_, relay)| relay)
            .collect();
        let (requests, replies) = match step.fault {
            Fault::Cut => (Flow::Hold, Flow::Hold),
            Fault::CutRequests => (Flow::Hold, Flow::Pass),
            Fault::CutReplies => (Flow::Pass, Flow::Hold),
            Fault::Delay => (Flow::Delay(step.delay), Flow::Delay(step.delay)),
            _ => (Flow::Pass, Flow::Pass),
        };
        links.iter().for_each(|link| link.set(requests, replies));
        if step.fault.lasts() {
            tokio::time::sleep(lasts).await;
        }
        let cut = matches!(step.fault, Fault::Cut | Fault::CutRequests | Fault::CutReplies);
        if step.fault == Fault::Reset || (cut && step.reset_after) {
            links.iter().for_each(|link| link.reset());
        }
        links.iter().for_each(|link| link.set(Flow::Pass, Flow::Pass));
        self.note(step.fault, from, worker, node);
    }

    /// Lets the nemesis strike a node.
    async fn strike(&self, step: &Step, lasts: Duration) -> Result<(), String> {
        let from = self.stage.now();
        let injection = Injection { fault: step.fault, node: self.node(step), dice: step.dice };
        self.ask(injection, |nemesis, injection| nemesis.strike(injection)).await?;
        if step.fault.lasts() {
            tokio::time::sleep(lasts).await;
            self.ask(injection, |nemesis, injection| nemesis.heal(injection)).await?;
        }
        self.note(step.fault, from, None, Some(injection.node));
        Ok(())
    }

    /// Faults that destroy data a majority must keep always hit the same minority.
    fn node(&self, step: &Step) -> usize {
        if !step.fault.forgets() && step.fault != Fault::ClockStep {
            return step.node % self.nodes;
        }
        let minority = (self.nodes.saturating_sub(1) / 2).max(1);
        (self.weak_from + step.node % minority) % self.nodes
    }

    async fn ask(
        &self,
        injection: Injection,
        call: fn(&dyn Nemesis, Injection) -> Result<(), String>,
    ) -> Result<(), String> {
        let nemesis = self.nemesis.clone();
        let asked = tokio::task::spawn_blocking(move || call(nemesis.as_ref(), injection));
        match tokio::time::timeout(SERVER, asked).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => Err(format!("{}: {error}", injection.fault)),
            Err(_) => Err(format!("{}: not done within {SERVER:?}", injection.fault)),
        }
    }

    fn note(&self, fault: Fault, from: Moment, worker: Option<usize>, node: Option<usize>) {
        self.stage.note(Note { fault, from, to: self.stage.now(), worker, node });
    }
}
