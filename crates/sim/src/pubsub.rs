//! Who listens to what, and what is lost on the way.

use std::collections::BTreeMap;

use crate::glob;
use crate::resp::Reply;
use crate::session::ConnectionId;
use crate::state::State;

/// Listeners by channel and by pattern, each in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    pub(crate) plain: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    pub(crate) patterns: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    pub(crate) sharded: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    /// A fault: how many messages of a million are lost.
    pub(crate) loss_ppm: u64,
}

/// One of the three ways to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Pattern,
    Sharded,
}

impl Channels {
    pub(crate) fn of(&mut self, way: Way) -> &mut BTreeMap<Vec<u8>, Vec<ConnectionId>> {
        match way {
            Way::Plain => &mut self.plain,
            Way::Pattern => &mut self.patterns,
            Way::Sharded => &mut self.sharded,
        }
    }

    pub(crate) fn forget(&mut self, id: ConnectionId) {
        for way in [Way::Plain, Way::Pattern, Way::Sharded] {
            self.of(way).retain(|_, listeners| {
                listeners.retain(|listener| *listener != id);
                !listeners.is_empty()
            });
        }
    }
}

/// Sends a message to all who listen; returns how many they were.
pub(crate) fn publish(state: &mut State, channel: &[u8], message: &[u8], sharded: bool) -> usize {
    state.published += 1;
    let channels = &state.channels;
    let direct = if sharded { &channels.sharded } else { &channels.plain };
    let word: &[u8] = if sharded { b"smessage" } else { b"message" };
    let mut sendings: Vec<(ConnectionId, Reply)> = Vec::new();
    let parts = |parts: &[&[u8]]| Reply::Push(parts.iter().map(|part| Reply::bulk(part)).collect());
    for listener in direct.get(channel).into_iter().flatten() {
        sendings.push((*listener, parts(&[word, channel, message])));
    }
    if !sharded {
        let fitting = channels.patterns.iter().filter(|(p, _)| glob::matches(p, channel));
        for (pattern, listeners) in fitting {
            for listener in listeners {
                sendings.push((*listener, parts(&[b"pmessage", pattern, channel, message])));
            }
        }
    }
    let loss = state.channels.loss_ppm;
    for (listener, push) in &sendings {
        // A lost message was counted by the server all the same: it left, and did not arrive.
        let lost = loss > 0 && state.dice.below(1_000_000) < loss;
        if let Some(connection) = state.connections.get_mut(listener).filter(|_| !lost) {
            connection.send(push);
        }
    }
    sendings.len()
}
