//! Subscriptions, and the loss of messages.

use std::collections::BTreeMap;

use crate::session::ConnectionId;

/// Subscribers by channel, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    pub(crate) plain: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    pub(crate) sharded: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    /// A fault: how many messages of a million are lost.
    pub(crate) loss_ppm: u64,
}

/// A kind of subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Channel,
    Sharded,
}

impl Channels {
    pub(crate) fn of(
        &mut self,
        kind: SubscriptionKind,
    ) -> &mut BTreeMap<Vec<u8>, Vec<ConnectionId>> {
        match kind {
            SubscriptionKind::Channel => &mut self.plain,
            SubscriptionKind::Sharded => &mut self.sharded,
        }
    }

    pub(crate) fn forget(&mut self, id: ConnectionId) {
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Sharded] {
            self.of(kind).retain(|_, subscribers| {
                subscribers.retain(|subscriber| *subscriber != id);
                !subscribers.is_empty()
            });
        }
    }
}
