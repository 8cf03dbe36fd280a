//! Subscriptions, and the loss of messages.

use std::collections::BTreeMap;

use crate::glob;
use crate::resp::Reply;
use crate::session::ConnectionId;
use crate::state::State;

/// Subscribers by channel and by pattern, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    pub(crate) plain: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    pub(crate) patterns: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    pub(crate) sharded: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    /// A fault: how many messages of a million are lost.
    pub(crate) loss_ppm: u64,
}

/// A kind of subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Channel,
    Pattern,
    Sharded,
}

impl Channels {
    pub(crate) fn of(
        &mut self,
        kind: SubscriptionKind,
    ) -> &mut BTreeMap<Vec<u8>, Vec<ConnectionId>> {
        match kind {
            SubscriptionKind::Channel => &mut self.plain,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Sharded => &mut self.sharded,
        }
    }

    pub(crate) fn forget(&mut self, id: ConnectionId) {
        for kind in
            [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Sharded]
        {
            self.of(kind).retain(|_, subscribers| {
                subscribers.retain(|subscriber| *subscriber != id);
                !subscribers.is_empty()
            });
        }
    }
}

/// Sends a message to all subscribers; returns their number.
pub(crate) fn publish(state: &mut State, channel: &[u8], message: &[u8], sharded: bool) -> usize {
    state.published += 1;
    let channels = &state.channels;
    let direct = if sharded { &channels.sharded } else { &channels.plain };
    let word: &[u8] = if sharded { b"smessage" } else { b"message" };
    let mut sendings: Vec<(ConnectionId, Reply)> = Vec::new();
    let parts = |parts: &[&[u8]]| Reply::Push(parts.iter().map(|part| Reply::bulk(part)).collect());
    for subscriber in direct.get(channel).into_iter().flatten() {
        sendings.push((*subscriber, parts(&[word, channel, message])));
    }
    if !sharded {
        let fitting = channels.patterns.iter().filter(|(p, _)| glob::matches(p, channel));
        for (pattern, subscribers) in fitting {
            for subscriber in subscribers {
                sendings.push((*subscriber, parts(&[b"pmessage", pattern, channel, message])));
            }
        }
    }
    let loss = state.channels.loss_ppm;
    for (subscriber, push) in &sendings {
        // The server counts a lost message too: it was sent, and did not arrive.
        let lost = loss > 0 && state.rng.below(1_000_000) < loss;
        if let Some(connection) = state.connections.get_mut(subscriber).filter(|_| !lost) {
            connection.send(push);
        }
    }
    sendings.len()
}
