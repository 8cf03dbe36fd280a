//! An operator's commands for a set: status, initialisation, vouching, readmission.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{
    Configuration, DesiredConfiguration, MemberState, MembershipPlan, NodeCommand, NodeReport,
    SetStatus, vouched,
};
use holdline_core::{Certainty, Clock, ErrorKind, LockError};

use super::ENGINE;
use super::engine::context;
use super::member::Observed;
use super::node_status::QuorumStatus;
use super::options::QuorumOptions;
use super::set::NodeSet;

/// The time limit for a change of the set.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// The pause after steps that every node rejected.
const PAUSE: Duration = Duration::from_millis(50);

/// Executes an operator's commands on a set. It holds no locks.
#[derive(Debug)]
pub struct QuorumAdmin {
    pub(super) set: Arc<NodeSet>,
    /// The longest lease that was requested.
    max_lease: Option<Duration>,
}

impl QuorumAdmin {
    /// Makes one. It connects with the first command.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unsupported`: without tokens the servers are no set.
    pub fn new(options: &QuorumOptions, clock: Arc<dyn Clock>) -> Result<QuorumAdmin, LockError> {
        options.validate()?;
        options.require_set()?;
        let set = NodeSet::new(options, context(options), clock)?;
        Ok(QuorumAdmin { set, max_lease: options.configured_max_lease() })
    }

    /// Returns the state of the set, and changes nothing.
    pub async fn status(&self) -> QuorumStatus {
        self.set.inspect_all().await;
        self.current_status()
    }

    /// Initialises servers that belong to no set as one set. They do not vote at first: a new
    /// server cannot be distinguished from one that lost its data. So they are in quarantine for
    /// the longest lease that any set may have (10 min), unless an operator
    /// [vouches](QuorumAdmin::vouch). An existing set is left as it is, so this may be called again
    /// at any time.
    ///
    /// # Errors
    /// `Refused`: these servers cannot be one set. Or they are a set, or another client initialises
    /// one, with another longest lease than requested; then nothing has changed. `NoQuorum`: not
    /// all nodes answered. The next call continues, or the first client that reaches all nodes.
    pub async fn init(&self) -> Result<QuorumStatus, LockError> {
        self.converge(self.set.desired(), self.max_lease, None).await
    }

    /// Returns the addresses of the servers that vote sooner by [`QuorumAdmin::vouch`], since it
    /// ends their quarantine, or they get none. Changes nothing.
    ///
    /// # Errors
    /// `Refused`: these servers cannot be one set. `NoQuorum`: not all nodes answered, and they
    /// belong to no set.
    pub async fn plan_vouch(&self) -> Result<Vec<String>, LockError> {
        self.set.inspect_all().await;
        let observed = self.set.observed();
        let (reports, plan) = self.set.assess(&observed, self.set.desired());
        self.check(&plan, &observed)?;
        Ok(self.vote_sooner(&reports))
    }

    /// Ends a quarantine that is there only because no majority has kept its data: the operator
    /// confirms that no lock is held on the servers with these addresses, as
    /// [`QuorumAdmin::plan_vouch`] names them. If that is wrong, two clients can hold a lock at
    /// once. Servers that belong to no set are initialised first, as by [`QuorumAdmin::init`].
    ///
    /// # Errors
    /// As for [`QuorumAdmin::init`]. `Refused` also if a server that is not confirmed would vote
    /// sooner: it has lost its data or has answered only after the operator was asked. That server
    /// waits. Whether the confirmed ones vote already is unknown.
    pub async fn vouch<S: AsRef<str>>(&self, confirmed: &[S]) -> Result<QuorumStatus, LockError> {
        let desired = DesiredConfiguration { vouched: true, ..self.set.desired().clone() };
        let confirmed: Vec<&str> = confirmed.iter().map(AsRef::as_ref).collect();
        self.converge(&desired, None, Some(&confirmed)).await
    }

    /// Readmits replaced nodes, and advances the recovery of nodes that lost their data; clients do
    /// the latter by themselves. A replaced node gets its slot back from the server that has it
    /// now: [`QuorumAdmin::plan_rejoin`] returns that one. Without such a slot, the node stays
    /// replaced.
    ///
    /// # Errors
    /// As for [`QuorumAdmin::init`].
    pub async fn rejoin(&self) -> Result<QuorumStatus, LockError> {
        self.set.handshake_all().await;
        let observed = self.set.observed();
        let indices: Vec<usize> = self.rejoins(&observed).into_iter().map(|(_, at)| at).collect();
        self.readmit(&observed, &indices).await?;
        self.set.handshake_all().await;
        let end = self.set.clock.now().after(LIMIT);
        loop {
            let observed = self.set.observed();
            let (_, plan) = self.set.assess(&observed, self.set.desired());
            self.check(&plan, &observed)?;
            if only_reports_waits(&plan) || self.set.clock.now() >= end {
                return Ok(self.current_status());
            }
            self.carry_out(&plan).await;
            self.set.handshake_all().await;
        }
    }

    /// Sends steps until the servers are a set, with the `requested` longest lease if given. No
    /// server but those that are `confirmed`, if given, votes sooner by it.
    async fn converge(
        &self,
        desired: &DesiredConfiguration,
        requested: Option<Duration>,
        confirmed: Option<&[&str]>,
    ) -> Result<QuorumStatus, LockError> {
        self.set.handshake_all().await;
        let end = self.set.clock.now().after(LIMIT);
        loop {
            let observed = self.set.observed();
            let (reports, plan) = self.set.assess(&observed, desired);
            self.check(&plan, &observed)?;
            if let Some(confirmed) = confirmed {
                self.check_confirmed(&reports, confirmed)?;
            }
            self.check_max_lease(&plan, &observed, requested)?;
            // No command waits for a quarantine to end: nothing else is left to do.
            let is_agreed = matches!(plan.status, SetStatus::Agreed(_));
            if only_reports_waits(&plan) && (all_vote(&observed) || is_agreed) {
                return Ok(self.current_status());
            }
            if self.set.clock.now() >= end {
                return Err(self.set.no_quorum(&[]));
            }
            self.carry_out(&plan).await;
            self.set.handshake_all().await;
        }
    }

    /// Returns the addresses of the servers that vote sooner by a vouch.
    fn vote_sooner(&self, reports: &[Option<NodeReport>]) -> Vec<String> {
        let address = |at: usize| self.set.members[at].address().to_owned();
        vouched(reports, self.set.desired()).into_iter().map(address).collect()
    }

    /// Checks that a vouch makes no server vote sooner that the operator has not confirmed. A
    /// server that loses its data after its report rejects the next steps: they name its id.
    fn check_confirmed(
        &self,
        reports: &[Option<NodeReport>],
        confirmed: &[&str],
    ) -> Result<(), LockError> {
        let mut others = self.vote_sooner(reports);
        others.retain(|address| !confirmed.contains(&address.as_str()));
        if others.is_empty() {
            return Ok(());
        }
        let message = format!(
            "a vouch would make {} vote sooner too, and nobody has confirmed that no earlier lock \
             is held there, since the data was lost or the server answered only afterwards: start \
             again",
            others.join(", "),
        );
        Err(LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::Unknown))
    }

    /// Checks the requested longest lease. That of a set never changes, since quarantines rely on
    /// it, and no set is initialised with another one than requested.
    fn check_max_lease(
        &self,
        plan: &MembershipPlan,
        observed: &[Observed],
        requested: Option<Duration>,
    ) -> Result<(), LockError> {
        let Some(requested) = requested else { return Ok(()) };
        let key = self.set.context.layout.node();
        let key = String::from_utf8_lossy(&key);
        let message = match &plan.status {
            SetStatus::Agreed(configuration) if configuration.max_lease() != requested => format!(
                "these servers are a set already, whose longest lease is {:?} and not \
                 {requested:?}, and it never changes: keep it, or use servers that belong to no \
                 set",
                configuration.max_lease(),
            ),
            SetStatus::Uninitialised { .. } => match proposed(plan, observed) {
                Some(other) if other != requested => format!(
                    "another client initialises these servers as a set whose longest lease is \
                     {other:?} and not {requested:?}: request that, or stop the clients that use \
                     these servers, delete the key `{key}` on each server, and start again"
                ),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        Err(refused(message))
    }

    pub(super) fn check(
        &self,
        plan: &MembershipPlan,
        observed: &[Observed],
    ) -> Result<(), LockError> {
        match self.set.membership(plan, observed) {
            Err(error) if matches!(error.kind(), ErrorKind::NotInitialised) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    pub(super) async fn carry_out(&self, plan: &MembershipPlan) {
        if !self.set.carry_out(plan).await {
            self.set.clock.sleep_until(self.set.clock.now().after(PAUSE)).await;
        }
    }
}

fn all_vote(observed: &[Observed]) -> bool {
    let open = |observed: &Observed| {
        observed.current.as_ref().is_some_and(|one| one.report.state == MemberState::Voting)
    };
    observed.iter().all(open)
}

/// Returns whether no step is left but the measuring of quarantines, which clients do.
pub(super) fn only_reports_waits(plan: &MembershipPlan) -> bool {
    plan.steps.iter().all(|(_, command)| matches!(command, NodeCommand::ReportWait { .. }))
}

/// Returns the longest lease of the set that the next steps initialise.
fn proposed(plan: &MembershipPlan, observed: &[Observed]) -> Option<Duration> {
    let steps = plan.steps.iter();
    let mut wanted = steps.filter_map(|(_, command)| match command {
        NodeCommand::Propose { configuration, .. } => Some(configuration.max_lease()),
        _ => None,
    });
    let current = observed.iter().filter_map(|observed| observed.current.as_ref());
    let mut accepted = current.filter_map(|current| current.report.configuration.as_ref());
    wanted.next().or_else(|| accepted.next().map(Configuration::max_lease))
}

pub(super) fn refused(message: String) -> LockError {
    LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
}
