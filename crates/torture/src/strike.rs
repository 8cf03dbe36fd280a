//! One turn of the nemesis: does the harm, waits as long as it lasts, mends it.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::Moment;
use rustix::process::Signal;

use crate::crew::Crew;
use crate::history::Note;
use crate::plan::SERVER;
use crate::relay::{Flow, Relay};
use crate::schedule::Turn;
use crate::stage::{At, Stage, State};
use crate::{Blow, Fault, Nemesis};

/// How long to look for a holder that may be stopped.
const LOOK: Duration = Duration::from_secs(3);

/// Whoever strikes, and at what.
pub(crate) struct Striker {
    pub(crate) stage: Arc<Stage>,
    pub(crate) nemesis: Arc<dyn Nemesis>,
    /// By worker's place and by node; empty without proxies.
    pub(crate) relays: Vec<Vec<Relay>>,
    pub(crate) nodes: usize,
    /// The first of the nodes that may forget or have their clocks moved: no majority ever is.
    pub(crate) weak_from: usize,
    pub(crate) lease: Duration,
    /// How long a silent holder keeps a name, at most.
    pub(crate) freed_within: Duration,
}

impl Striker {
    /// Takes a turn.
    pub(crate) async fn turn(&self, turn: &Turn, crew: &mut Crew) -> Result<(), String> {
        let from = self.stage.now();
        let lasts = self.lease.saturating_mul(turn.lasts) / 1_000;
        let workers = self.stage.lock().places.len();
        let some_worker = turn.worker % workers;
        match turn.fault {
            Fault::PauseHolder => self.pause_holder(turn).await,
            Fault::Pause => {
                self.pause(some_worker, lasts).await;
                self.note(turn.fault, from, Some(some_worker), None);
            }
            Fault::Kill => {
                let place = self.victim(turn).await.unwrap_or(some_worker);
                let killed = crew.kill(place).await;
                killed.map_err(|error| format!("a worker could not be replaced: {error}"))?;
                self.note(turn.fault, from, Some(place), None);
            }
            fault if fault.needs_network() => self.disturb(turn, lasts).await,
            _ => self.strike(turn, lasts).await?,
        }
        tokio::time::sleep(turn.quiet).await;
        Ok(())
    }

    /// Every second time a holder, if there is one soon.
    async fn victim(&self, turn: &Turn) -> Option<usize> {
        if turn.dice % 2 == 1 {
            return None;
        }
        self.thinking(turn.worker).await.map(|(place, ..)| place)
    }

    /// Waits for somebody who has read and not written: its place, its attempt and the name.
    async fn thinking(&self, which: usize) -> Option<(usize, u64, usize)> {
        let at = |(place, at): (usize, At)| match at {
            At::Thinking { attempt, name } => Some((place, attempt, name)),
            _ => None,
        };
        let found = |state: &State| {
            let places = state.places.iter().map(|place| place.at).enumerate();
            let holders: Vec<_> = places.filter_map(at).collect();
            holders.get(which % holders.len().max(1)).copied()
        };
        self.stage.until(LOOK, found).await
    }

    /// Stops a holder until another has written under the same name.
    async fn pause_holder(&self, turn: &Turn) {
        let from = self.stage.now();
        let Some((place, attempt, name)) = self.thinking(turn.worker).await else { return };
        if !self.stage.signal(place, Signal::STOP) {
            return;
        }
        let limit = self.freed_within.saturating_mul(2);
        let another = |state: &State| {
            state.last_writer[name].filter(|writer| *writer > 0 && *writer != attempt).map(drop)
        };
        self.stage.lock().last_writer[name] = None;
        // If none comes, the holder goes on all the same: it was long past its lease.
        let _ = self.stage.until(limit, another).await;
        self.stage.signal(place, Signal::CONT);
        self.note(turn.fault, from, Some(place), None);
        // What it does now is what all this is about.
        let written = |state: &State| {
            let at = state.places[place].at;
            (at != At::Thinking { attempt, name }).then_some(())
        };
        let _ = self.stage.until(LOOK, written).await;
    }

    async fn pause(&self, place: usize, lasts: Duration) {
        self.stage.signal(place, Signal::STOP);
        tokio::time::sleep(lasts).await;
        self.stage.signal(place, Signal::CONT);
    }

    /// Disturbs the links of one worker to all nodes, or of all workers to one node.
    async fn disturb(&self, turn: &Turn, lasts: Duration) {
        let from = self.stage.now();
        let (worker, node) = if turn.one_worker {
            (Some(turn.worker % self.relays.len()), None)
        } else {
            (None, Some(turn.node % self.nodes))
        };
        let links: Vec<&Relay> = self
            .relays
            .iter()
            .enumerate()
            .filter(|(place, _)| worker.is_none_or(|worker| worker == *place))
            .flat_map(|(_, relays)| relays.iter().enumerate())
            .filter(|(place, _)| node.is_none_or(|node| node == *place))
            .map(|(_, relay)| relay)
            .collect();
        let (requests, replies) = match turn.fault {
            Fault::Cut => (Flow::Hold, Flow::Hold),
            Fault::CutRequests => (Flow::Hold, Flow::Pass),
            Fault::CutReplies => (Flow::Pass, Flow::Hold),
            Fault::Delay => (Flow::Delay(turn.delay), Flow::Delay(turn.delay)),
            _ => (Flow::Pass, Flow::Pass),
        };
        links.iter().for_each(|link| link.set(requests, replies));
        if turn.fault.lasts() {
            tokio::time::sleep(lasts).await;
        }
        let cut = matches!(turn.fault, Fault::Cut | Fault::CutRequests | Fault::CutReplies);
        if turn.fault == Fault::Reset || (cut && turn.reset_after) {
            links.iter().for_each(|link| link.reset());
        }
        links.iter().for_each(|link| link.set(Flow::Pass, Flow::Pass));
        self.note(turn.fault, from, worker, node);
    }

    /// Lets the nemesis strike a node.
    async fn strike(&self, turn: &Turn, lasts: Duration) -> Result<(), String> {
        let from = self.stage.now();
        let blow = Blow { fault: turn.fault, node: self.node(turn), dice: turn.dice };
        self.ask(blow, |nemesis, blow| nemesis.strike(blow)).await?;
        if turn.fault.lasts() {
            tokio::time::sleep(lasts).await;
            self.ask(blow, |nemesis, blow| nemesis.mend(blow)).await?;
        }
        self.note(turn.fault, from, None, Some(blow.node));
        Ok(())
    }

    /// Of those that harm what a majority must keep, only ever the same minority is hit.
    fn node(&self, turn: &Turn) -> usize {
        if !turn.fault.forgets() && turn.fault != Fault::ClockStep {
            return turn.node % self.nodes;
        }
        let minority = (self.nodes.saturating_sub(1) / 2).max(1);
        (self.weak_from + turn.node % minority) % self.nodes
    }

    async fn ask(
        &self,
        blow: Blow,
        call: fn(&dyn Nemesis, Blow) -> Result<(), String>,
    ) -> Result<(), String> {
        let nemesis = self.nemesis.clone();
        let asked = tokio::task::spawn_blocking(move || call(nemesis.as_ref(), blow));
        match tokio::time::timeout(SERVER, asked).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => Err(format!("{}: {error}", blow.fault)),
            Err(_) => Err(format!("{}: not done within {SERVER:?}", blow.fault)),
        }
    }

    fn note(&self, fault: Fault, from: Moment, worker: Option<usize>, node: Option<usize>) {
        self.stage.note(Note { fault, from, to: self.stage.now(), worker, node });
    }
}
