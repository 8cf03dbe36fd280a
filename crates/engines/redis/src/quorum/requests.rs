//! What a node is asked: the keys and arguments of each script, as its head lists them.

use std::time::Duration;

use holdline_core::quorum::node::Marker;
use holdline_core::quorum::{NodeId, Stamp, Told};
use holdline_core::{
    AcquireRequest, FencingToken, LeaseId, LockName, Purpose, RenewRequest, ShortLeaseId,
};

use super::replies::Record;
use super::script::{GREET, RAISE, TELL, verbs};
use crate::native::Asker;
use crate::native::requests::{LATE, ROOM, five_digits, hex_digits, kind_of, millis, sixteen};
use crate::node::{Call, Script, Tie, Words, digits};

/// What a client believes of a node, and shows with all that only who knows the node may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    marker: Marker,
    text: String,
}

impl Pass {
    /// Makes the pass of a node whose store runs under this marker, and whose configuration has
    /// this stamp.
    pub(crate) fn new(marker: &str, stamp: Stamp) -> Pass {
        Pass { marker: marker.to_owned(), text: format!("{marker}/{stamp}") }
    }

    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }
}

/// Tells a node under which marker it runs, and asks what it says of itself. A node that has lost
/// its memory calls itself `fresh` from now on.
pub(crate) fn greet(asker: &Asker, marker: &str, fresh: NodeId) -> Call {
    about_node(asker, &GREET, Words::from([marker, &fresh.to_string(), "-"]))
}

/// Asks the same, and changes nothing: what would become of the node is told.
pub(crate) fn look(asker: &Asker, marker: &str, fresh: NodeId) -> Call {
    about_node(asker, &GREET, Words::from([marker, &fresh.to_string(), "l"]))
}

/// Has a node load the script of an acquire; without a pass nothing is asked for.
pub(crate) fn load_acquire(asker: &Asker) -> Call {
    let mut keys = Words::with_room(2 * ROOM);
    asker.layout.push_node(&mut keys);
    asker.layout.push_node(&mut keys);
    let (script, arguments) = (&verbs(&asker.layout).acquire, Words::from([""; 5]));
    Call { script, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

/// Tells a node what the members of its set have to tell it.
pub(crate) fn tell(asker: &Asker, marker: &str, told: &Told) -> Call {
    let from_text = |from: &Option<Stamp>| from.map(|stamp| stamp.to_string()).unwrap_or_default();
    let words = match told {
        Told::Propose { from, configuration } | Told::Adopt { from, configuration } => {
            let verb = if matches!(told, Told::Propose { .. }) { "propose" } else { "adopt" };
            let stamp = configuration.stamp().to_string();
            vec![verb.to_owned(), from_text(from), configuration.to_string(), stamp]
        }
        Told::Activate { stamp, quarantine } => {
            let micros = quarantine.map(|quarantine| micros(quarantine).to_string());
            vec!["activate".to_owned(), stamp.to_string(), micros.unwrap_or_default()]
        }
        Told::Begin { episode, stamp, quarantine, by_time } => {
            let by_time = u8::from(*by_time).to_string();
            let micros = micros(*quarantine).to_string();
            vec!["begin".to_owned(), episode.to_string(), stamp.to_string(), micros, by_time]
        }
        Told::Waited { episode, stamp, by_time, left, passed } => {
            let (episode, stamp) = (episode.to_string(), stamp.to_string());
            let [left, passed] = [left, passed].map(|one| micros(*one).to_string());
            vec!["waited".to_owned(), episode, stamp, left, passed, u8::from(*by_time).to_string()]
        }
        Told::Recover { episode, stamp, floor } => {
            vec!["recover".to_owned(), episode.to_string(), stamp.to_string(), padded(*floor)]
        }
        Told::Vouch { episode, stamp } => {
            vec!["vouch".to_owned(), episode.to_string(), stamp.to_string()]
        }
        Told::Readmit { id, fresh } => {
            vec!["readmit".to_owned(), id.to_string(), fresh.to_string()]
        }
    };
    let mut arguments = Words::with_room(2 * ROOM);
    arguments.push(marker);
    words.iter().for_each(|word| arguments.push(word));
    about_node(asker, &TELL, arguments)
}

/// How a name is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// For the first time; who is refused is told of a release.
    Anew,
    /// The lease id was granted before: what is no longer known is not granted anew.
    Again,
}

/// Asks for the name. `proposed` is the token that the contender would like; the node may be
/// ahead of its own clock by `skew` for that.
pub(crate) fn acquire(
    asker: &Asker,
    pass: &Pass,
    request: &AcquireRequest,
    proposed: u64,
    skew: Duration,
    asked: Asked,
) -> Call {
    let id = request.lease_id.hex_digits();
    let kind = kind_of(request.hold).as_bytes();
    let lease = request.hold.duration().map(millis).unwrap_or_default();
    let metadata = request.metadata.as_encoded();
    let mut arguments = Words::with_room(2 * ROOM + metadata.len());
    arguments.push(&pass.text);
    let client = hex_digits(request.client.as_u64());
    arguments.push_parts(&[&id, b"g-", kind, &client, asker.inbox.as_bytes()]);
    let (kept, mut room) = (five_digits(millis(request.claim_window) + LATE), [0; 20]);
    let lease_text = digits(lease, &mut room);
    arguments.push_parts(&[&kept, b"x ", kind, lease_text, b";", metadata.as_bytes()]);
    arguments.push_number(lease);
    let waits: &[u8] = match asked {
        Asked::Anew => b"w",
        Asked::Again => b"k",
    };
    let skew = digits(micros(skew), &mut room);
    arguments.push_parts(&[&sixteen_digits(proposed), waits, skew]);
    about_name(
        asker,
        &verbs(&asker.layout).acquire,
        &request.name,
        arguments,
        Tie::Again(*request.lease_id.as_bytes()),
    )
}

/// Raises the name's counter to a token, if the lease id still has the name. Goes behind the
/// request that took it.
pub(crate) fn write_back(
    asker: &Asker,
    pass: &Pass,
    name: &LockName,
    lease_id: LeaseId,
    token: FencingToken,
) -> Call {
    let mut arguments = Words::with_room(ROOM);
    arguments.push(&pass.text);
    arguments.push(lease_id.hex_digits());
    arguments.push(sixteen_digits(token.get()));
    about_name(
        asker,
        &verbs(&asker.layout).write_back,
        name,
        arguments,
        Tie::Behind(*lease_id.as_bytes()),
    )
}

/// Makes one call of many lines. A line that waits only looks: nothing queues here.
pub(crate) fn renew(asker: &Asker, pass: &Pass, lines: &[RenewRequest]) -> Call {
    let mut keys = Words::with_room(ROOM * (1 + lines.len()));
    let mut arguments = Words::with_room(ROOM / 2 * (2 + lines.len()));
    asker.layout.push_node(&mut keys);
    arguments.push(&pass.text);
    for line in lines {
        asker.layout.push_lock(&mut keys, &line.name);
        let (kind, lease) = match line.purpose {
            Purpose::Keep(hold) => (kind_of(hold), hold.duration()),
            Purpose::Wait => ("w", None),
        };
        let client = hex_digits(line.client.as_u64());
        arguments.push_parts(&[&line.lease_id.hex_digits(), b"g"]);
        arguments.push_parts(&[kind.as_bytes(), &client, asker.inbox.as_bytes()]);
        arguments.push_number(lease.map(millis).unwrap_or_default());
    }
    let script = &verbs(&asker.layout).renew;
    Call { script, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

/// Asks for what is kept of a holder, to heal other nodes with it.
pub(crate) fn record(asker: &Asker, name: &LockName, lease_id: LeaseId) -> Call {
    let arguments = Words::from([lease_id.hex_digits()]);
    about_name(
        asker,
        &verbs(&asker.layout).record,
        name,
        arguments,
        Tie::Behind(*lease_id.as_bytes()),
    )
}

/// Takes the name for a lease that is held elsewhere and was lost here, if it is free.
pub(crate) fn heal(
    asker: &Asker,
    pass: &Pass,
    name: &LockName,
    lease_id: LeaseId,
    record: &Record,
    lease: Duration,
) -> Call {
    let mut arguments = Words::with_room(2 * ROOM + record.as_bytes().len());
    arguments.push(&pass.text);
    arguments.push(record.as_bytes());
    arguments.push_number(millis(lease));
    about_name(
        asker,
        &verbs(&asker.layout).heal,
        name,
        arguments,
        Tie::Behind(*lease_id.as_bytes()),
    )
}

/// Frees the name, if it is the lease id's; `tombstone`: and remembers for so long that it was
/// given up for good. Needs no pass: whoever has lost its memory has nothing to free.
pub(crate) fn release(
    asker: &Asker,
    name: &LockName,
    lease_id: LeaseId,
    tombstone: Option<Duration>,
) -> Call {
    let mut arguments = Words::with_room(ROOM);
    arguments.push_parts(&[&lease_id.hex_digits(), b"g-"]);
    tombstone.into_iter().for_each(|tombstone| arguments.push_number(millis(tombstone)));
    about_name(
        asker,
        &verbs(&asker.layout).release,
        name,
        arguments,
        Tie::Undo(*lease_id.as_bytes()),
    )
}

/// Makes one call about many names.
pub(crate) fn inspect(asker: &Asker, names: &[LockName]) -> Call {
    let mut keys = Words::with_room(ROOM * (1 + names.len()));
    asker.layout.push_node(&mut keys);
    names.iter().for_each(|name| asker.layout.push_lock(&mut keys, name));
    let arguments = Words::default();
    let script = &verbs(&asker.layout).inspect;
    Call { script, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

/// Takes the grant away whose lease id begins so: with its next renewal, or `now`.
pub(crate) fn revoke(
    asker: &Asker,
    name: &LockName,
    whose: ShortLeaseId,
    reason: &str,
    now: bool,
) -> Call {
    let whose = whose.to_string();
    let when = if now { "now" } else { "polite" };
    about_name(
        asker,
        &verbs(&asker.layout).revoke,
        name,
        Words::from([whose.as_str(), when, reason]),
        Tie::Free,
    )
}

/// Raises what all tokens of the node are above of.
pub(crate) fn raise(asker: &Asker, to: FencingToken) -> Call {
    about_node(asker, &RAISE, Words::from([sixteen(to)]))
}

fn about_node(asker: &Asker, script: &'static Script, arguments: Words) -> Call {
    let mut keys = Words::with_room(ROOM);
    asker.layout.push_node(&mut keys);
    Call { script, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

/// A call that names the lock key, and the node's own where the scripts do not know it.
fn about_name(
    asker: &Asker,
    script: &'static Script,
    name: &LockName,
    arguments: Words,
    tie: Tie,
) -> Call {
    let mut keys = Words::with_room(ROOM);
    asker.layout.push_lock(&mut keys, name);
    if !asker.layout.has_usual_counter() {
        asker.layout.push_node(&mut keys);
    }
    Call { script, keys, arguments, tie, deadline: asker.deadline }
}

/// Writes a token in the sixteen digits of the largest there is, which none exceeds.
fn sixteen_digits(token: u64) -> [u8; 16] {
    let token = token.min(FencingToken::MAX.get());
    let mut rest = token;
    let mut text = [b'0'; 16];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}

fn padded(token: u64) -> String {
    format!("{:016}", token.min(FencingToken::MAX.get()))
}

/// Counts whole microseconds, of which scripts can tell one from the next.
fn micros(duration: Duration) -> u64 {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    micros.min(FencingToken::MAX.get())
}
