//! Listings of a quorum: the names that any of its nodes has.
//!
//! Invariant N1: a majority of the nodes is scanned, or the listing fails. So a name that is held
//! on a majority is listed, whichever nodes are down.

use std::sync::Arc;

use holdline_core::quorum::majority;
use holdline_core::{LockError, LockName};

use super::inspect;
use super::outcome::NodeOutcome;
use super::set::NodeSet;
use crate::in_flight::InFlight;
use crate::native::listing::{self, NameSource, NextNames, Scan, ScanBudget, Shown};

/// The names of all nodes.
pub(super) struct NodeNames<'a> {
    pub(super) set: &'a Arc<NodeSet>,
    /// The type of the lock keys.
    pub(super) kind: &'static str,
}

impl NodeNames<'_> {
    /// Returns how each node stands: only those that are open are asked.
    async fn outcomes(&self) -> Result<Vec<NodeOutcome>, LockError> {
        match &self.set.unfenced {
            Some(_) => Ok(vec![NodeOutcome::Open; self.set.members.len()]),
            None => Ok(self.set.view().await?.outcomes(self.set.clock.now())),
        }
    }

    async fn names_of(
        &self,
        node: usize,
        prefix: &str,
        after: Option<&LockName>,
    ) -> Result<NextNames, LockError> {
        let context = &self.set.context;
        let scan =
            Scan { layout: &context.layout, kind: Some(self.kind), deadline: context.deadline };
        let mut names = NextNames::default();
        let budget = &mut ScanBudget::for_page();
        let add = &mut |name| names.add(name);
        let link = self.set.members[node].link();
        scan.names_after(link, prefix, after, budget, add).await?;
        Ok(names)
    }
}

impl NameSource for NodeNames<'_> {
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        _: &mut ScanBudget,
    ) -> Result<NextNames, LockError> {
        let mut outcomes = self.outcomes().await?;
        let mut in_flight = InFlight::with_capacity(outcomes.len());
        for (node, outcome) in outcomes.iter().enumerate() {
            let is_asked = matches!(outcome, NodeOutcome::Open) && self.set.answers(node);
            if is_asked {
                in_flight.push(node, self.names_of(node, prefix, after));
            }
        }
        let mut all = NextNames::default();
        let mut scanned = 0;
        while let Some((node, names)) = in_flight.next().await {
            match names {
                Ok(names) => {
                    scanned += 1;
                    all.more |= names.more;
                    names.names.into_iter().for_each(|name| all.add(name));
                }
                Err(error) => outcomes[node] = NodeOutcome::Failed(error),
            }
        }
        if scanned < majority(outcomes.len()) {
            return Err(self.set.no_quorum(&outcomes));
        }
        Ok(all)
    }

    async fn show(&self, names: &[LockName]) -> Result<Vec<Shown>, LockError> {
        Ok(listing::each(names, |name| inspect::inspect(self.set, name)).await)
    }
}
