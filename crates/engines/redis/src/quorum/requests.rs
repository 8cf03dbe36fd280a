//! The requests to a node: the keys and arguments of each script, in the order of its head.

use std::time::Duration;

use holdline_core::quorum::node::Run;
use holdline_core::quorum::{NodeCommand, NodeId, SKEW, Stamp};
use holdline_core::{
    AcquireRequest, FencingToken, LeaseId, LockName, Purpose, RenewRequest, ShortLeaseId,
};

use super::replies::{EpochProof, HolderRecord};
use super::script::{COMMAND, HANDSHAKE, RAISE, verbs};
use crate::args::{Args, digits};
use crate::link::{Call, RoutingPolicy, Script};
use crate::native::RequestContext;
use crate::native::requests::{ROOM, five_digits, hex_digits, kind_of, millis, token_digits};

/// Sends a node what its server says of its run, and asks for its report. A node that has lost its
/// data takes the id `fresh`. `read_only`: it answers the same report, and changes nothing.
pub(crate) fn handshake(
    context: &RequestContext,
    run: &Run,
    fresh: NodeId,
    read_only: bool,
) -> Call {
    let mode = if read_only { "l" } else { "-" };
    let replica_until = run.replica_until.as_deref().unwrap_or_default();
    let arguments = Args::from([run.marker.as_str(), &fresh.to_string(), replica_until, mode]);
    about_node(context, &HANDSHAKE, arguments)
}

/// Makes a node load the script of an acquire. Without a proof it does nothing else.
pub(crate) fn load_acquire(context: &RequestContext) -> Call {
    let mut keys = Args::with_capacity(2 * ROOM);
    context.layout.push_node(&mut keys);
    context.layout.push_node(&mut keys);
    let script = &verbs(&context.layout).acquire;
    let arguments = Args::from([""; 5]);
    Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: context.deadline }
}

/// Sends a node a command of the maintenance.
pub(crate) fn command(context: &RequestContext, marker: &str, command: &NodeCommand) -> Call {
    let from_text = |from: &Option<Stamp>| from.map(|stamp| stamp.to_string()).unwrap_or_default();
    let args = match command {
        NodeCommand::Propose { from, configuration }
        | NodeCommand::Adopt { from, configuration } => {
            let verb =
                if matches!(command, NodeCommand::Propose { .. }) { "propose" } else { "adopt" };
            let stamp = configuration.stamp().to_string();
            vec![verb.to_owned(), from_text(from), configuration.to_string(), stamp]
        }
        NodeCommand::Activate { stamp, quarantine } => {
            vec!["activate".to_owned(), stamp.to_string(), micros(*quarantine).to_string()]
        }
        NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, floor } => vec![
            "begin".to_owned(),
            episode.to_string(),
            stamp.to_string(),
            micros(*quarantine).to_string(),
            u8::from(*by_time).to_string(),
            padded(*floor),
        ],
        NodeCommand::ReportWait { episode, left, passed } => vec![
            "waited".to_owned(),
            episode.to_string(),
            micros(*left).to_string(),
            micros(*passed).to_string(),
        ],
        NodeCommand::Vouch { episode } => vec!["vouch".to_owned(), episode.to_string()],
        NodeCommand::Readmit { id, fresh } => {
            vec!["readmit".to_owned(), id.to_string(), fresh.to_string()]
        }
    };
    let mut arguments = Args::with_capacity(2 * ROOM);
    arguments.push(marker);
    args.iter().for_each(|arg| arguments.push(arg));
    about_node(context, &COMMAND, arguments)
}

/// Whether an acquire is the first one under its lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireKind {
    /// The first request: if it is refused, the client is notified of a release.
    First,
    /// The lease id was granted before: if the node no longer knows it, it does not grant it again.
    Known,
}

/// Requests the name. `proposed` is the token that the contender proposes; the node accepts it up
/// to [`SKEW`] ahead of its own clock.
pub(crate) fn acquire(
    context: &RequestContext,
    proof: &EpochProof,
    request: &AcquireRequest,
    proposed: u64,
    asked: AcquireKind,
) -> Call {
    let id = request.lease_id.hex_digits();
    let kind = kind_of(request.hold).as_bytes();
    let lease = request.hold.duration().map(millis).unwrap_or_default();
    let metadata = request.metadata.as_encoded();
    let mut arguments = Args::with_capacity(2 * ROOM + metadata.len());
    arguments.push(&proof.text);
    let client = hex_digits(request.client.as_u64());
    arguments.push_concat(&[&id, b"g-", kind, &client, context.inbox.as_bytes()]);
    let hand_off_ms = five_digits(millis(request.hand_off_lease));
    let mut room = [0; 20];
    let lease_text = digits(lease, &mut room);
    arguments.push_concat(&[&hand_off_ms, b"x ", kind, lease_text, b";", metadata.as_bytes()]);
    arguments.push_number(lease);
    let waits: &[u8] = match asked {
        AcquireKind::First => b"w",
        AcquireKind::Known => b"k",
    };
    let skew = digits(micros(SKEW), &mut room);
    arguments.push_concat(&[&sixteen_digits(proposed), waits, skew]);
    let script = &verbs(&context.layout).acquire;
    let routing = RoutingPolicy::Retry(*request.lease_id.as_bytes());
    about_name(context, script, &request.name, arguments, routing)
}

/// Raises the name's counter to a token, if the lease id still holds the name. Ordered behind the
/// request that took it.
pub(crate) fn write_back(
    context: &RequestContext,
    proof: &EpochProof,
    name: &LockName,
    lease_id: LeaseId,
    token: FencingToken,
) -> Call {
    let mut arguments = Args::with_capacity(ROOM);
    arguments.push(&proof.text);
    arguments.push(lease_id.hex_digits());
    arguments.push(sixteen_digits(token.get()));
    let script = &verbs(&context.layout).write_back;
    let routing = RoutingPolicy::Behind(*lease_id.as_bytes());
    about_name(context, script, name, arguments, routing)
}

/// Makes one call for many renewals. A renewal of a waiter only checks: nothing queues here.
pub(crate) fn renew(
    context: &RequestContext,
    proof: &EpochProof,
    renewals: &[RenewRequest],
) -> Call {
    let mut keys = Args::with_capacity(ROOM * (1 + renewals.len()));
    let mut arguments = Args::with_capacity(ROOM / 2 * (2 + renewals.len()));
    context.layout.push_node(&mut keys);
    arguments.push(&proof.text);
    for renewal in renewals {
        context.layout.push_lock(&mut keys, &renewal.name);
        let (kind, lease) = match renewal.purpose {
            Purpose::Keep(hold) => (kind_of(hold), hold.duration()),
            Purpose::Wait => ("w", None),
        };
        let client = hex_digits(renewal.client.as_u64());
        arguments.push_concat(&[&renewal.lease_id.hex_digits(), b"g"]);
        arguments.push_concat(&[kind.as_bytes(), &client, context.inbox.as_bytes()]);
        arguments.push_number(lease.map(millis).unwrap_or_default());
    }
    let script = &verbs(&context.layout).renew;
    Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: context.deadline }
}

/// Requests the record of a holder, to heal other nodes with it.
pub(crate) fn record(context: &RequestContext, name: &LockName, lease_id: LeaseId) -> Call {
    let arguments = Args::from([lease_id.hex_digits()]);
    let script = &verbs(&context.layout).record;
    let routing = RoutingPolicy::Behind(*lease_id.as_bytes());
    about_name(context, script, name, arguments, routing)
}

/// Takes the name again for a lease that is held elsewhere and is missing here, if it is free.
pub(crate) fn heal(
    context: &RequestContext,
    proof: &EpochProof,
    name: &LockName,
    lease_id: LeaseId,
    record: &HolderRecord,
    lease: Duration,
) -> Call {
    let mut arguments = Args::with_capacity(2 * ROOM + record.as_bytes().len());
    arguments.push(&proof.text);
    arguments.push(record.as_bytes());
    arguments.push_number(millis(lease));
    let script = &verbs(&context.layout).heal;
    let routing = RoutingPolicy::Behind(*lease_id.as_bytes());
    about_name(context, script, name, arguments, routing)
}

/// Frees the name, if the lease id holds it. With a `tombstone`, also rejects the lease id for that
/// time. Needs no proof: a node without data has nothing to free.
pub(crate) fn release(
    context: &RequestContext,
    name: &LockName,
    lease_id: LeaseId,
    tombstone: Option<Duration>,
) -> Call {
    let mut arguments = Args::with_capacity(ROOM);
    arguments.push_concat(&[&lease_id.hex_digits(), b"g-"]);
    tombstone.into_iter().for_each(|tombstone| arguments.push_number(millis(tombstone)));
    let script = &verbs(&context.layout).release;
    let routing = RoutingPolicy::Undo(*lease_id.as_bytes());
    about_name(context, script, name, arguments, routing)
}

/// Frees the name as [`release`] does, with a script that is short enough to be sent as text: U1 of
/// `undo` says why.
pub(crate) fn undo(
    context: &RequestContext,
    name: &LockName,
    lease_id: LeaseId,
    tombstone: Option<Duration>,
) -> Call {
    let mut arguments = Args::with_capacity(ROOM);
    arguments.push(lease_id.hex_digits());
    tombstone.into_iter().for_each(|tombstone| arguments.push_number(millis(tombstone)));
    let script = &verbs(&context.layout).undo;
    let routing = RoutingPolicy::Undo(*lease_id.as_bytes());
    about_name(context, script, name, arguments, routing)
}

/// Makes one call for many names.
pub(crate) fn inspect(context: &RequestContext, names: &[LockName]) -> Call {
    let mut keys = Args::with_capacity(ROOM * (1 + names.len()));
    context.layout.push_node(&mut keys);
    names.iter().for_each(|name| context.layout.push_lock(&mut keys, name));
    let arguments = Args::default();
    let script = &verbs(&context.layout).inspect;
    Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: context.deadline }
}

/// Revokes the grant whose lease id begins so: with its next renewal, or `now`.
pub(crate) fn revoke(
    context: &RequestContext,
    name: &LockName,
    client_lease: ShortLeaseId,
    reason: &str,
    now: bool,
) -> Call {
    let client_lease = client_lease.to_string();
    let when = if now { "now" } else { "polite" };
    let arguments = Args::from([client_lease.as_str(), when, reason]);
    let script = &verbs(&context.layout).revoke;
    about_name(context, script, name, arguments, RoutingPolicy::Any)
}

/// Raises the floor of the node's tokens.
pub(crate) fn raise(context: &RequestContext, to: FencingToken) -> Call {
    about_node(context, &RAISE, Args::from([token_digits(to)]))
}

fn about_node(context: &RequestContext, script: &'static Script, arguments: Args) -> Call {
    let mut keys = Args::with_capacity(ROOM);
    context.layout.push_node(&mut keys);
    Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: context.deadline }
}

/// Makes a call with the lock key, and with the node's own key where the scripts cannot derive it.
fn about_name(
    context: &RequestContext,
    script: &'static Script,
    name: &LockName,
    arguments: Args,
    routing: RoutingPolicy,
) -> Call {
    let mut keys = Args::with_capacity(ROOM);
    context.layout.push_lock(&mut keys, name);
    if !context.layout.has_default_counter() {
        context.layout.push_node(&mut keys);
    }
    Call { script, keys, arguments, routing, deadline: context.deadline }
}

/// Writes a token in sixteen digits, which is the length of the largest.
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

/// Returns whole microseconds, up to the largest integer that scripts can count exactly.
fn micros(duration: Duration) -> u64 {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    micros.min(FencingToken::MAX.get())
}
