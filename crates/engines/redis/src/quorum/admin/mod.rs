//! An operator's commands for a set: status, initialisation, vouching, readmission.

mod replace;
mod status;

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{
    Configuration, DesiredConfiguration, MemberState, MembershipPlan, NodeCommand, NodeId,
    NodeReport, SetStatus, vouchable,
};
use holdline_core::{Clock, ErrorKind, LockError};

use super::engine::context;
use super::member::Observed;
use super::options::QuorumOptions;
use super::refused;
use super::set::NodeSet;
pub use replace::Replacement;
pub use status::{NodeStatus, QuorumStatus};

/// The time limit for a change of the set.
const LIMIT: Duration = Duration::from_secs(30);
/// The pause after steps that every node rejected.
const PAUSE: Duration = Duration::from_millis(50);

/// A server whose quarantine an operator ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VouchedServer {
    /// Its address.
    pub address: String,
    /// The id of its node when the operator was asked. It draws another one when it loses its data.
    id: NodeId,
}

/// What an operator has asked for.
#[derive(Default)]
pub(super) struct Goal<'a> {
    /// The servers, if they belong to no set, are to be one: the operator confirms their addresses.
    pub(super) initialise: bool,
    /// The longest lease of a set that is initialised, if given.
    pub(super) max_lease: Option<Duration>,
    /// The nodes whose quarantine ends.
    pub(super) vouched: Vec<NodeId>,
    /// The slots that go to other servers.
    pub(super) replacements: &'a [Replacement],
}

impl Goal<'_> {
    /// Returns what the nodes are to agree on, by their last reports.
    fn desired(
        &self,
        common: &DesiredConfiguration,
        observed: &[Observed],
    ) -> DesiredConfiguration {
        let pair = |one: &Replacement| one.ids(observed);
        let has_no_set = |one: &Observed| {
            let state = one.current.as_ref().map(|current| current.report.state);
            matches!(state, None | Some(MemberState::Blank | MemberState::Proposed))
        };
        DesiredConfiguration {
            // A set in use changes by the operator's replacements only.
            by_address: self.initialise && observed.iter().all(has_no_set),
            vouched: self.vouched.clone(),
            replace: self.replacements.iter().filter_map(pair).collect(),
            ..common.clone()
        }
    }
}

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
    /// the longest lease that any set may have (10 min, and a margin), unless an operator
    /// [vouches](QuorumAdmin::vouch). An existing set is left as it is, so this may be called again
    /// at any time.
    ///
    /// # Errors
    /// `Refused`: these servers cannot be one set. Or they are a set, or another client initialises
    /// one, with another longest lease than requested; then nothing has changed. `NoQuorum`: not
    /// all nodes answered. The next call continues, or the first client that reaches all nodes.
    pub async fn init(&self) -> Result<QuorumStatus, LockError> {
        self.converge(&Goal { initialise: true, max_lease: self.max_lease, ..Goal::default() })
            .await
    }

    /// Returns the servers whose quarantine [`QuorumAdmin::vouch`] may end: it is there only
    /// because no majority has kept its data. First carries out what clients do by themselves, so
    /// that each quarantine has begun that can begin; servers that belong to no set are
    /// initialised, as by [`QuorumAdmin::init`].
    ///
    /// # Errors
    /// As for [`QuorumAdmin::init`].
    pub async fn plan_vouch(&self) -> Result<Vec<VouchedServer>, LockError> {
        self.converge(&Goal::default()).await?;
        let (reports, _) = self.set.assess(&self.set.observed(), self.set.desired());
        let server = |at: usize| {
            let id = reports[at].as_ref()?.id;
            Some(VouchedServer { address: self.set.members[at].address().to_owned(), id })
        };
        Ok(vouchable(&reports, self.set.desired()).into_iter().filter_map(server).collect())
    }

    /// Ends the quarantine of these servers, as [`QuorumAdmin::plan_vouch`] names them: the
    /// operator confirms that no lock is held that was granted before the plan. If that is wrong,
    /// two clients can hold a lock at once. A server that has lost its data since the plan stays in
    /// quarantine; the status shows it.
    ///
    /// # Errors
    /// As for [`QuorumAdmin::init`].
    pub async fn vouch(&self, confirmed: &[VouchedServer]) -> Result<QuorumStatus, LockError> {
        let vouched = confirmed.iter().map(|server| server.id).collect();
        self.converge(&Goal { vouched, ..Goal::default() }).await
    }

    /// Gives each slot whose server is not seen to the server at its address, and readmits replaced
    /// servers: [`QuorumAdmin::replace`] with what [`QuorumAdmin::plan_rejoin`] returns. A replaced
    /// server without such a slot stays replaced. Clients do the rest of a recovery by themselves;
    /// this does it at once.
    ///
    /// # Errors
    /// As for [`QuorumAdmin::replace`].
    pub async fn rejoin(&self) -> Result<QuorumStatus, LockError> {
        self.replace(&self.plan_rejoin().await?).await
    }

    /// Sends steps until no step is left that leads to the goal.
    pub(super) async fn converge(&self, goal: &Goal<'_>) -> Result<QuorumStatus, LockError> {
        self.set.handshake_all().await;
        let end = self.set.clock.now().after(LIMIT);
        loop {
            let observed = self.set.observed();
            let desired = goal.desired(self.set.desired(), &observed);
            let (reports, plan) = self.set.assess(&observed, &desired);
            self.check(&plan, &observed, goal)?;
            self.check_max_lease(&plan, &observed, goal.max_lease)?;
            let readmissions = self.check_replacements(&plan, &observed, goal.replacements)?;
            // No command waits for a quarantine to end: nothing else is left to do.
            let is_agreed = match &plan.status {
                SetStatus::Agreed(configuration) | SetStatus::Mislisted(configuration) => {
                    goal.replacements.iter().all(|one| one.is_given(configuration, &observed))
                }
                _ => all_vote(&reports),
            };
            if only_reports_waits(&plan) && is_agreed {
                return Ok(self.status().await);
            }
            if self.set.clock.now() >= end {
                return Err(self.set.no_quorum(&[]));
            }
            if readmissions.is_empty() {
                self.carry_out(&plan).await;
            } else {
                self.readmit(&readmissions).await?;
            }
            self.set.handshake_all().await;
        }
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
                     {other:?} and not {requested:?}: request that, or use other servers"
                ),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        Err(refused(message))
    }

    /// Checks that these servers can be one set. Servers without a slot are no obstacle if the
    /// operator gives them one.
    fn check(
        &self,
        plan: &MembershipPlan,
        observed: &[Observed],
        goal: &Goal<'_>,
    ) -> Result<(), LockError> {
        if matches!(plan.status, SetStatus::Mislisted(_)) && !goal.replacements.is_empty() {
            return Ok(());
        }
        match self.set.membership(plan, observed) {
            Err(error) if matches!(error.kind(), ErrorKind::NotInitialised) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    async fn carry_out(&self, plan: &MembershipPlan) {
        if !self.set.carry_out(&plan.steps).await {
            self.set.clock.sleep_until(self.set.clock.now().after(PAUSE)).await;
        }
    }
}

fn all_vote(reports: &[Option<NodeReport>]) -> bool {
    let votes = |report: &NodeReport| report.state == MemberState::Voting;
    reports.iter().all(|report| report.as_ref().is_some_and(votes))
}

/// Returns whether no step is left but the measuring of quarantines, which clients do.
fn only_reports_waits(plan: &MembershipPlan) -> bool {
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
