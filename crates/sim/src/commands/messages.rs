//! Publish and subscribe.

use super::{Command, FAST, LOADING, MAY_REPLICATE, NO_SCRIPT, PUBSUB, STALE, container, keyless};
use crate::call::Call;
use crate::errors::CommandResult;
use crate::glob;
use crate::pubsub::SubscriptionKind;
use crate::resp::Reply;
use crate::session::ConnectionId;
use crate::state::ServerData;

const SUBSCRIBE: u32 = PUBSUB | NO_SCRIPT | LOADING | STALE;
const PUBLISH: u32 = PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE;

pub(crate) const TABLE: &[Command] = &[
    keyless("publish", 3, PUBLISH, |call| publish_message(call, false)),
    keyless("spublish", 3, PUBLISH, |call| publish_message(call, true)),
    keyless("subscribe", -2, SUBSCRIBE, |call| subscribe(call, SubscriptionKind::Channel)),
    keyless("ssubscribe", -2, SUBSCRIBE, |call| subscribe(call, SubscriptionKind::Sharded)),
    keyless("unsubscribe", -1, SUBSCRIBE, |call| unsubscribe(call, SubscriptionKind::Channel)),
    keyless("sunsubscribe", -1, SUBSCRIBE, |call| unsubscribe(call, SubscriptionKind::Sharded)),
    container("pubsub", ABOUT),
];

const ABOUT: &[Command] = &[
    keyless("pubsub|channels", -2, PUBSUB | LOADING | STALE, channels),
    keyless("pubsub|numsub", -2, PUBSUB | LOADING | STALE, |call| {
        numbers(call, SubscriptionKind::Channel)
    }),
    keyless("pubsub|shardnumsub", -2, PUBSUB | LOADING | STALE, |call| {
        numbers(call, SubscriptionKind::Sharded)
    }),
];

fn publish_message(call: &mut Call<'_>, sharded: bool) -> CommandResult {
    let channel = call.args[1];
    let message = call.args[2];
    Ok(Reply::count(publish(call.state, channel, message, sharded)))
}

fn own<'b>(call: &'b mut Call<'_>, kind: SubscriptionKind) -> Option<&'b mut Vec<Vec<u8>>> {
    let session = call.session()?;
    Some(match kind {
        SubscriptionKind::Channel => &mut session.channels,
        SubscriptionKind::Sharded => &mut session.shard_channels,
    })
}

/// Returns the number of subscriptions for a confirmation.
fn count(call: &mut Call<'_>, kind: SubscriptionKind) -> Reply {
    let number = call.session().map_or(0, |session| match kind {
        SubscriptionKind::Sharded => session.shard_channels.len(),
        SubscriptionKind::Channel => session.channels.len(),
    });
    Reply::count(number)
}

/// Adds the confirmation of one channel.
fn confirm(call: &mut Call<'_>, word: &str, channel: Reply, kind: SubscriptionKind) {
    let count = count(call, kind);
    call.before.push(Reply::Push(vec![Reply::bulk(word.as_bytes()), channel, count]));
}

fn last(call: &mut Call<'_>) -> CommandResult {
    Ok(call.before.pop().unwrap_or(Reply::Null))
}

fn subscribe(call: &mut Call<'_>, kind: SubscriptionKind) -> CommandResult {
    for channel in &call.args[1..] {
        let id = call.connection;
        if let Some(own) = own(call, kind)
            && !own.iter().any(|known| known == channel)
        {
            own.push(channel.to_vec());
            call.state.channels.of(kind).entry(channel.to_vec()).or_default().push(id);
        }
        confirm(call, call.name, Reply::bulk(channel), kind);
    }
    last(call)
}

fn unsubscribe(call: &mut Call<'_>, kind: SubscriptionKind) -> CommandResult {
    let named: Vec<Vec<u8>> = match &call.args[1..] {
        [] => own(call, kind).cloned().unwrap_or_default(),
        channels => channels.iter().map(|channel| channel.to_vec()).collect(),
    };
    if named.is_empty() {
        confirm(call, call.name, Reply::Null, kind);
    }
    for channel in named {
        let id = call.connection;
        if let Some(own) = own(call, kind) {
            own.retain(|known| *known != channel);
        }
        let all = call.state.channels.of(kind);
        if let Some(subscribers) = all.get_mut(&channel) {
            subscribers.retain(|subscriber| *subscriber != id);
            if subscribers.is_empty() {
                all.remove(&channel);
            }
        }
        confirm(call, call.name, Reply::Bulk(channel), kind);
    }
    last(call)
}

fn channels(call: &mut Call<'_>) -> CommandResult {
    let pattern = call.args.get(2).copied();
    let all = call.state.channels.plain.keys();
    let fits = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
    Ok(Reply::bulks(all.filter(fits).cloned()))
}

fn numbers(call: &mut Call<'_>, kind: SubscriptionKind) -> CommandResult {
    let mut flat = Vec::new();
    for channel in &call.args[2..] {
        let subscribers = call.state.channels.of(kind).get(*channel).map_or(0, Vec::len);
        flat.extend([Reply::bulk(channel), Reply::count(subscribers)]);
    }
    Ok(Reply::Array(flat))
}

/// Sends a message to all subscribers; returns their number.
fn publish(state: &mut ServerData, channel: &[u8], message: &[u8], sharded: bool) -> usize {
    state.published += 1;
    let channels = &state.channels;
    let direct = if sharded { &channels.sharded } else { &channels.plain };
    let word: &[u8] = if sharded { b"smessage" } else { b"message" };
    let mut sendings: Vec<(ConnectionId, Reply)> = Vec::new();
    let parts = |parts: &[&[u8]]| Reply::Push(parts.iter().map(|part| Reply::bulk(part)).collect());
    for subscriber in direct.get(channel).into_iter().flatten() {
        sendings.push((*subscriber, parts(&[word, channel, message])));
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
