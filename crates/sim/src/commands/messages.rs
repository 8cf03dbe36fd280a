//! Publish and subscribe.

use super::{Command, FAST, LOADING, MAY_REPLICATE, NO_SCRIPT, PUBSUB, STALE, container, keyless};
use crate::call::Call;
use crate::glob;
use crate::pubsub::{Way, publish};
use crate::refusal::Answer;
use crate::resp::Reply;

const LISTEN: u32 = PUBSUB | NO_SCRIPT | LOADING | STALE;
const SPEAK: u32 = PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE;

pub(crate) const TABLE: &[Command] = &[
    keyless("publish", 3, SPEAK, |call| speak(call, false)),
    keyless("spublish", 3, SPEAK, |call| speak(call, true)),
    keyless("subscribe", -2, LISTEN, |call| listen(call, Way::Plain)),
    keyless("psubscribe", -2, LISTEN, |call| listen(call, Way::Pattern)),
    keyless("ssubscribe", -2, LISTEN, |call| listen(call, Way::Sharded)),
    keyless("unsubscribe", -1, LISTEN, |call| leave(call, Way::Plain)),
    keyless("punsubscribe", -1, LISTEN, |call| leave(call, Way::Pattern)),
    keyless("sunsubscribe", -1, LISTEN, |call| leave(call, Way::Sharded)),
    container("pubsub", ABOUT),
];

const ABOUT: &[Command] = &[
    keyless("pubsub|channels", -2, PUBSUB | LOADING | STALE, channels),
    keyless("pubsub|numsub", -2, PUBSUB | LOADING | STALE, |call| numbers(call, Way::Plain)),
    keyless("pubsub|shardnumsub", -2, PUBSUB | LOADING | STALE, |call| numbers(call, Way::Sharded)),
    keyless("pubsub|numpat", 2, PUBSUB | LOADING | STALE, |call| {
        Ok(Reply::count(call.state.channels.patterns.len()))
    }),
];

fn speak(call: &mut Call<'_>, sharded: bool) -> Answer {
    let (channel, message) = (call.args[1], call.args[2]);
    Ok(Reply::count(publish(call.state, channel, message, sharded)))
}

fn own<'b>(call: &'b mut Call<'_>, way: Way) -> Option<&'b mut Vec<Vec<u8>>> {
    let session = call.session()?;
    Some(match way {
        Way::Plain => &mut session.channels,
        Way::Pattern => &mut session.patterns,
        Way::Sharded => &mut session.shard_channels,
    })
}

/// How many subscriptions a confirmation tells of.
fn count(call: &mut Call<'_>, way: Way) -> Reply {
    let number = call.session().map_or(0, |session| match way {
        Way::Sharded => session.shard_channels.len(),
        Way::Plain | Way::Pattern => session.subscriptions(),
    });
    Reply::count(number)
}

/// Answers with one confirmation for each channel.
fn confirm(call: &mut Call<'_>, word: &str, channel: Reply, way: Way) {
    let count = count(call, way);
    call.before.push(Reply::Push(vec![Reply::bulk(word.as_bytes()), channel, count]));
}

fn last(call: &mut Call<'_>) -> Answer {
    Ok(call.before.pop().unwrap_or(Reply::Null))
}

fn listen(call: &mut Call<'_>, way: Way) -> Answer {
    for channel in &call.args[1..] {
        let id = call.connection;
        if let Some(own) = own(call, way)
            && !own.iter().any(|known| known == channel)
        {
            own.push(channel.to_vec());
            call.state.channels.of(way).entry(channel.to_vec()).or_default().push(id);
        }
        confirm(call, call.name, Reply::bulk(channel), way);
    }
    last(call)
}

fn leave(call: &mut Call<'_>, way: Way) -> Answer {
    let named: Vec<Vec<u8>> = match &call.args[1..] {
        [] => own(call, way).cloned().unwrap_or_default(),
        channels => channels.iter().map(|channel| channel.to_vec()).collect(),
    };
    if named.is_empty() {
        confirm(call, call.name, Reply::Null, way);
    }
    for channel in named {
        let id = call.connection;
        if let Some(own) = own(call, way) {
            own.retain(|known| *known != channel);
        }
        let all = call.state.channels.of(way);
        if let Some(listeners) = all.get_mut(&channel) {
            listeners.retain(|listener| *listener != id);
            if listeners.is_empty() {
                all.remove(&channel);
            }
        }
        confirm(call, call.name, Reply::Bulk(channel), way);
    }
    last(call)
}

fn channels(call: &mut Call<'_>) -> Answer {
    let pattern = call.args.get(2).copied();
    let all = call.state.channels.plain.keys();
    let fits = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
    Ok(Reply::bulks(all.filter(fits).cloned()))
}

fn numbers(call: &mut Call<'_>, way: Way) -> Answer {
    let mut flat = Vec::new();
    for channel in &call.args[2..] {
        let listeners = call.state.channels.of(way).get(*channel).map_or(0, Vec::len);
        flat.extend([Reply::bulk(channel), Reply::count(listeners)]);
    }
    Ok(Reply::Array(flat))
}
