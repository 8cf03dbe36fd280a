//! A set of nodes in one process, and a client that maintains it.

use std::time::Duration;

use crate::quorum::configuration::{DEFAULT_MAX_LEASE, MAX_LEASE_CAP, quarantine_of};
use crate::quorum::node::Run;
use crate::quorum::{
    Configuration, DesiredConfiguration, MemberState, MembershipPlan, NodeCommand, NodeId,
    NodeReport, QuorumNode, SetStatus, plan,
};

/// Nodes with their clocks; a silent one does not answer.
pub(super) struct TestSet {
    pub(super) nodes: Vec<QuorumNode>,
    pub(super) silent: Vec<usize>,
    pub(super) now: u64,
    /// The member that the client last saw at each index.
    pub(super) last_seen: Vec<Option<NodeId>>,
    drawn: u8,
}

/// `vouched`: an operator vouches for every node.
pub(super) fn desired(nodes: usize, vouched: bool) -> DesiredConfiguration {
    let addresses = (0..nodes).map(address).collect();
    let vouched = (0..=u8::MAX).filter(|_| vouched).map(node_id).collect();
    DesiredConfiguration {
        addresses,
        max_lease: DEFAULT_MAX_LEASE,
        vouched,
        by_address: false,
        replace: Vec::new(),
    }
}

pub(super) fn address(node: usize) -> String {
    format!("10.0.0.{node}:6379")
}

/// A run of a store that was never a replica.
pub(super) fn run(marker: &str) -> Run {
    Run { marker: marker.to_owned(), replica_until: None }
}

pub(super) fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

impl TestSet {
    pub(super) fn blank(nodes: usize) -> TestSet {
        let mut set = TestSet {
            nodes: Vec::new(),
            silent: Vec::new(),
            now: 1_000_000,
            last_seen: vec![None; nodes],
            drawn: 0,
        };
        for _ in 0..nodes {
            let fresh = set.fresh();
            set.nodes.push(QuorumNode::blank("first".to_owned(), fresh));
        }
        set
    }

    /// Returns a floor that is taken from the clock now.
    pub(super) fn ahead(&self) -> u64 {
        self.now + 1_000_000
    }

    /// Makes a set that an operator initialised.
    pub(super) fn initial(nodes: usize) -> TestSet {
        let mut set = TestSet::blank(nodes);
        set.settle(&desired(nodes, true));
        set
    }

    pub(super) fn fresh(&mut self) -> NodeId {
        self.drawn += 1;
        node_id(self.drawn)
    }

    /// The node comes back without data.
    pub(super) fn wipe(&mut self, node: usize, marker: &str) {
        let fresh = self.fresh();
        self.nodes[node] = QuorumNode::blank(marker.to_owned(), fresh);
    }

    /// The node comes back with its data.
    pub(super) fn restart(&mut self, node: usize, marker: &str) -> bool {
        let fresh = self.fresh();
        self.nodes[node].handshake(&run(marker), fresh)
    }

    /// Another client maintains the set, which has seen no member.
    pub(super) fn change_client(&mut self) {
        self.last_seen = vec![None; self.nodes.len()];
    }

    pub(super) fn reports(&self) -> Vec<Option<NodeReport>> {
        let report = |(at, node): (usize, &QuorumNode)| {
            let last_seen_id = self.last_seen[at];
            let report = NodeReport { last_seen_id, ..node.report() };
            (!self.silent.contains(&at)).then_some(report)
        };
        self.nodes.iter().enumerate().map(report).collect()
    }

    /// The client remembers the members that it sees.
    pub(super) fn remember(&mut self) {
        for (at, report) in self.reports().into_iter().enumerate() {
            let Some(report) = report else { continue };
            if report.configuration.as_ref().is_some_and(|known| known.has(report.id)) {
                self.last_seen[at] = Some(report.id);
            }
        }
    }

    pub(super) fn send(&mut self, node: usize, command: NodeCommand) -> bool {
        let marker = self.nodes[node].marker.clone();
        self.nodes[node].apply(&marker, command, self.now)
    }

    /// One round of maintenance.
    pub(super) fn step(&mut self, desired: &DesiredConfiguration) -> MembershipPlan {
        self.remember();
        let plan = plan(&self.reports(), desired);
        for (node, command) in plan.steps.clone() {
            assert!(self.send(node, command.clone()), "node {node} refuses {command:?}");
        }
        plan
    }

    /// Repeats rounds until no step is left.
    pub(super) fn settle(&mut self, desired: &DesiredConfiguration) -> SetStatus {
        for _ in 0..20 {
            let plan = self.step(desired);
            if plan.steps.is_empty() {
                return plan.status;
            }
        }
        panic!("it never settles: {:?}", plan(&self.reports(), desired));
    }

    /// Lets time pass that a client measures.
    pub(super) fn pass(&mut self, duration: Duration) {
        self.now += u64::try_from(duration.as_micros()).expect("short");
        for node in 0..self.nodes.len() {
            let report = self.nodes[node].report();
            let Some((left, _)) = report.quarantine else { continue };
            let episode = report.id;
            self.send(node, NodeCommand::ReportWait { episode, left, passed: duration });
        }
    }

    pub(super) fn pass_quarantine(&mut self) {
        self.pass(quarantine_of(DEFAULT_MAX_LEASE));
    }

    pub(super) fn pass_cap(&mut self) {
        self.pass(quarantine_of(MAX_LEASE_CAP));
    }

    pub(super) fn states(&self) -> Vec<MemberState> {
        self.nodes.iter().map(|node| node.state).collect()
    }

    pub(super) fn configuration(&self, node: usize) -> &Configuration {
        self.nodes[node].configuration.as_ref().expect("it has a configuration")
    }

    /// Counts the votes under the newest configuration.
    pub(super) fn votes(&self) -> usize {
        let newest = self.nodes.iter().filter_map(|node| node.configuration.as_ref());
        let Some(newest) = newest.max_by_key(|one| one.epoch()) else { return 0 };
        let admits = |node: &&QuorumNode| node.admit(&node.marker, newest.stamp()).is_ok();
        self.nodes.iter().filter(admits).count()
    }
}
