//! The maintenance task: it asks all nodes for their reports and sends the planned steps.

use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::Backoff;
use holdline_core::quorum::{
    MemberState, MembershipPlan, NodeCommand, NodeReport, SetStatus, majority,
};
use tokio::sync::Notify;

use super::{FIRST_GRACE, NodeSet};
use crate::in_flight::InFlight;

/// The time between two rounds while the set is healthy.
const HEALTHY_INTERVAL: Duration = Duration::from_secs(5);
/// The time between two rounds while a node is not.
const UNHEALTHY_INTERVAL: Duration = Duration::from_millis(200);
/// The backoff after steps that every node rejected: another client was faster.
const CONTENTION_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_secs(1));

impl NodeSet {
    /// Starts the maintenance task, unless it runs.
    pub(super) fn start_maintenance(self: &Arc<NodeSet>) {
        if std::mem::replace(&mut self.state.lock().maintained, true) {
            return;
        }
        let set = Arc::downgrade(self);
        let wake = self.wake.clone();
        let guard = MaintenanceGuard(set.clone());
        self.members[0].link().spawn(Box::pin(async move {
            let _guard = guard;
            maintain(set, wake).await;
        }));
    }

    /// Runs one round: asks all nodes, and sends the planned steps. Returns the time until the
    /// next.
    async fn run_round(&self, contention: &mut Backoff) -> Duration {
        let may_initialise = {
            let mut state = self.state.lock();
            state.in_round = true;
            state.may_initialise
        };
        let is_unused = !self.read_only && !may_initialise && self.is_not_initialised().await;
        if !is_unused {
            self.handshake_all().await;
        }
        let observed = self.observed();
        let (reports, mut plan) = self.assess(&observed, &self.desired);
        if self.read_only || is_unused {
            plan.steps.clear();
        }
        self.publish(&plan, &observed, true);
        if is_unused {
            return UNHEALTHY_INTERVAL;
        }
        if plan.steps.is_empty() {
            contention.reset();
            return self.next_round_in(&plan, &reports);
        }
        if self.carry_out(&plan.steps).await {
            contention.reset();
            return Duration::ZERO;
        }
        contention.next_pause(self.members[0].link().random())
    }

    /// Reports the time that this client has measured of quarantines, however short. This process
    /// ends, and the next one measures from its own first report on.
    pub(in crate::quorum) async fn report_waits(&self) {
        if self.read_only {
            return;
        }
        let now = self.clock.now();
        let waits = self.members.iter().enumerate();
        let waits: Vec<_> =
            waits.filter_map(|(node, member)| Some((node, member.measured(now)?))).collect();
        self.carry_out(&waits).await;
    }

    /// Sends the steps of a plan; returns whether any node accepted one.
    pub(in crate::quorum) async fn carry_out(&self, steps: &[(usize, NodeCommand)]) -> bool {
        let mut in_flight = InFlight::with_capacity(steps.len());
        for (node, command) in steps {
            in_flight.push(*node, self.members[*node].send_command(&self.context, command));
        }
        let mut accepted = false;
        while let Some((node, answer)) = in_flight.next().await {
            let address = self.members[node].address();
            match answer {
                Ok(true) => accepted = true,
                Ok(false) => tracing::debug!(address, "a step for a node came too late"),
                Err(error) => tracing::debug!(address, %error, "a step did not reach a node"),
            }
        }
        accepted
    }

    /// Asks all nodes for their reports, and changes nothing.
    pub(in crate::quorum) async fn inspect_all(&self) {
        let mut in_flight = self.ask_all(true);
        while in_flight.next().await.is_some() {}
    }

    /// Returns whether no node belongs to an initialised set, and changes nothing. The first node
    /// that does ends the question.
    async fn is_not_initialised(&self) -> bool {
        let mut in_flight = self.ask_all(true);
        while let Some((node, ())) = in_flight.next().await {
            let current = self.members[node].observed().current;
            let state = current.map_or(MemberState::Blank, |current| current.report.state);
            if !matches!(state, MemberState::Blank | MemberState::Proposed) {
                return false;
            }
        }
        true
    }

    /// Asks all nodes for their reports. `read_only`: changes nothing there.
    fn ask_all(&self, read_only: bool) -> InFlight<'_, ()> {
        let mut in_flight = InFlight::with_capacity(self.members.len());
        for (at, member) in self.members.iter().enumerate() {
            in_flight.push(at, member.handshake(&self.context, &*self.clock, read_only));
        }
        in_flight
    }

    /// Performs the handshake with all nodes. It changes nothing there if this client is read-only.
    /// The reports of a majority are published as soon as they have arrived.
    pub(in crate::quorum) async fn handshake_all(&self) {
        let mut in_flight = self.ask_all(self.read_only);
        let mut answers = 0;
        let mut grace = None;
        loop {
            let next = in_flight.next();
            let answered = match grace {
                Some(end) => tokio::select! {
                    biased;
                    next = next => next.is_some(),
                    () = self.clock.sleep_until(end) => {
                        grace = None;
                        self.publish_early();
                        continue;
                    }
                },
                None => next.await.is_some(),
            };
            if !answered {
                return;
            }
            answers += 1;
            if answers < majority(self.members.len()) || in_flight.is_empty() {
                continue;
            }
            // At first the other nodes are unknown: they get a moment, so that the first view does
            // not leave out healthy nodes.
            match self.state.lock().view {
                Some(_) => grace = None,
                None if grace.is_none() => grace = Some(self.clock.now().after(FIRST_GRACE)),
                None => {}
            }
            if grace.is_none() {
                self.publish_early();
            }
        }
    }

    /// Returns how long the reports of a round stay good.
    fn next_round_in(&self, plan: &MembershipPlan, reports: &[Option<NodeReport>]) -> Duration {
        if !matches!(plan.status, SetStatus::Agreed(_)) {
            return UNHEALTHY_INTERVAL;
        }
        let states = reports.iter().map(|report| report.as_ref().map(|report| report.state));
        let votes = states.filter(|state| *state == Some(MemberState::Voting)).count();
        let works = votes >= majority(reports.len());
        let pauses = self.members.iter().zip(reports).enumerate();
        let pauses = pauses.map(|(at, (member, report))| match report {
            Some(NodeReport { state: MemberState::Voting, .. }) => HEALTHY_INTERVAL,
            // Only an operator can resolve this.
            Some(_) if works && plan.mislisted.contains(&at) => HEALTHY_INTERVAL,
            Some(NodeReport { quarantine: Some((left, _)), measured, .. }) => {
                member.next_measurement_in(left.saturating_sub(*measured))
            }
            Some(NodeReport { state: MemberState::Replaced, .. }) => HEALTHY_INTERVAL,
            _ => UNHEALTHY_INTERVAL,
        });
        pauses.min().unwrap_or(HEALTHY_INTERVAL).min(HEALTHY_INTERVAL)
    }
}

/// Marks the end of the maintenance task, even if its runtime drops it.
struct MaintenanceGuard(Weak<NodeSet>);

impl Drop for MaintenanceGuard {
    fn drop(&mut self) {
        if let Some(set) = self.0.upgrade() {
            set.state.lock().maintained = false;
        }
    }
}

async fn maintain(set: Weak<NodeSet>, wake: Arc<Notify>) {
    let mut contention = Backoff::new(CONTENTION_BACKOFF.0, CONTENTION_BACKOFF.1);
    loop {
        let Some(here) = set.upgrade() else { return };
        let pause = here.run_round(&mut contention).await;
        let sleep = here.clock.sleep_until(here.clock.now().after(pause));
        drop(here);
        tokio::select! {
            biased;
            () = wake.notified() => {}
            () = sleep => {}
        }
    }
}
