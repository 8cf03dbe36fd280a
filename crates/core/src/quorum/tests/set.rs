//! A set of nodes in one process, and whoever looks after it.

use std::time::Duration;

use crate::quorum::configuration::{DEFAULT_MAX_LEASE, MAX_LEASE_CAP};
use crate::quorum::{Configuration, Gate, Node, NodeId, Plan, Standing, Told, View, Wish, plan};

/// Nodes with their clocks; a silent one does not answer.
pub(super) struct Set {
    pub(super) nodes: Vec<Node>,
    pub(super) silent: Vec<usize>,
    pub(super) now: u64,
    drawn: u8,
}

pub(super) fn wish(nodes: usize, vouched: bool) -> Wish {
    let addresses = (0..nodes).map(address).collect();
    Wish {
        addresses,
        max_lease: DEFAULT_MAX_LEASE,
        vouched,
        drift_ppm: 10_000,
        replace: Vec::new(),
    }
}

pub(super) fn address(node: usize) -> String {
    format!("10.0.0.{node}:6379")
}

pub(super) fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

impl Set {
    pub(super) fn blank(nodes: usize) -> Set {
        let mut set = Set { nodes: Vec::new(), silent: Vec::new(), now: 1_000_000, drawn: 0 };
        for _ in 0..nodes {
            let fresh = set.fresh();
            set.nodes.push(Node::blank("first".to_owned(), fresh));
        }
        set
    }

    /// A floor that is taken from the clock now.
    pub(super) fn ahead(&self) -> u64 {
        self.now + 1_000_000
    }

    /// A set that an operator founded.
    pub(super) fn founded(nodes: usize) -> Set {
        let mut set = Set::blank(nodes);
        set.settle(&wish(nodes, true));
        set
    }

    pub(super) fn fresh(&mut self) -> NodeId {
        self.drawn += 1;
        node_id(self.drawn)
    }

    /// The node comes back without anything.
    pub(super) fn wipe(&mut self, node: usize, marker: &str) {
        let fresh = self.fresh();
        self.nodes[node] = Node::blank(marker.to_owned(), fresh);
    }

    /// The node comes back, and has what it had written down.
    pub(super) fn restart(&mut self, node: usize, marker: &str) -> bool {
        let fresh = self.fresh();
        self.nodes[node].greet(marker, fresh)
    }

    pub(super) fn views(&self) -> Vec<Option<View>> {
        let view = |(at, node): (usize, &Node)| (!self.silent.contains(&at)).then(|| node.view());
        self.nodes.iter().enumerate().map(view).collect()
    }

    pub(super) fn tell(&mut self, node: usize, told: Told) -> bool {
        let marker = self.nodes[node].marker.clone();
        self.nodes[node].told(&marker, told, self.now)
    }

    /// One look and what follows from it.
    pub(super) fn step(&mut self, wish: &Wish) -> Plan {
        let plan = plan(&self.views(), wish);
        for (node, told) in plan.steps.clone() {
            assert!(self.tell(node, told.clone()), "node {node} refuses {told:?}");
        }
        plan
    }

    /// Looks until there is nothing to do.
    pub(super) fn settle(&mut self, wish: &Wish) -> Standing {
        for _ in 0..20 {
            let plan = self.step(wish);
            if plan.steps.is_empty() {
                return plan.standing;
            }
        }
        panic!("it never settles: {:?}", plan(&self.views(), wish));
    }

    /// Time passes, and some client measures it.
    pub(super) fn pass(&mut self, duration: Duration) {
        self.now += u64::try_from(duration.as_micros()).expect("short");
        for node in 0..self.nodes.len() {
            let view = self.nodes[node].view();
            let (Some(configuration), Some((left, by_time))) =
                (view.configuration, view.quarantine)
            else {
                continue;
            };
            let (episode, stamp) = (view.id, configuration.stamp());
            self.tell(node, Told::Waited { episode, stamp, by_time, left, passed: duration });
        }
    }

    pub(super) fn pass_quarantine(&mut self) {
        self.pass(DEFAULT_MAX_LEASE.mul_f64(1.02));
    }

    pub(super) fn pass_cap(&mut self) {
        self.pass(MAX_LEASE_CAP.mul_f64(1.02));
    }

    pub(super) fn gates(&self) -> Vec<Gate> {
        self.nodes.iter().map(|node| node.gate).collect()
    }

    pub(super) fn configuration(&self, node: usize) -> &Configuration {
        self.nodes[node].configuration.as_ref().expect("it belongs to something")
    }

    /// Says how many votes who knows the newest configuration would find.
    pub(super) fn votes(&self) -> usize {
        let newest = self.nodes.iter().filter_map(|node| node.configuration.as_ref());
        let Some(newest) = newest.max_by_key(|one| one.epoch()) else { return 0 };
        let admits = |node: &&Node| node.admit(&node.marker, newest.stamp()).is_ok();
        self.nodes.iter().filter(admits).count()
    }
}
