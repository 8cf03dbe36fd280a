//! One run of a script, and which connection it may take.

use std::time::Duration;

use super::Script;
use crate::args::Args;

/// Sixteen bytes that group requests: a lease id.
pub(crate) type Affinity = [u8; 16];

/// Which connection a request takes while an earlier request of its affinity is unanswered on
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoutingPolicy {
    /// A healthy one: the request has no affinity.
    Any,
    /// The connection of the unanswered request, behind it.
    Behind(Affinity),
    /// A healthy one if there is one or soon will be, else behind: the request repeats the earlier
    /// one and is correct in any order.
    Retry(Affinity),
    /// A healthy one if there is one, else behind. A copy follows every unanswered request: it
    /// undoes what these may still do.
    Undo(Affinity),
}

impl RoutingPolicy {
    pub(super) fn affinity(&self) -> Option<&Affinity> {
        match self {
            RoutingPolicy::Any => None,
            RoutingPolicy::Behind(affinity)
            | RoutingPolicy::Retry(affinity)
            | RoutingPolicy::Undo(affinity) => Some(affinity),
        }
    }

    /// Returns whether to wait for a healthy connection first: repeating a request that hangs helps
    /// only on another connection.
    pub(super) fn waits_for_healthy(&self) -> bool {
        matches!(self, RoutingPolicy::Retry(_))
    }

    /// Returns whether the request may overtake unanswered ones of its affinity.
    pub(super) fn overtakes(&self) -> bool {
        matches!(self, RoutingPolicy::Retry(_) | RoutingPolicy::Undo(_))
    }
}

/// One run of a script.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: Args,
    pub(crate) arguments: Args,
    pub(crate) routing: RoutingPolicy,
    pub(crate) deadline: Duration,
}

impl Call {
    /// Sets how long the reply may take.
    #[must_use]
    pub(crate) fn within(self, deadline: Duration) -> Call {
        Call { deadline, ..self }
    }
}
