//! The master term: whether a server that Sentinels name is the master, and since when it may
//! grant.
//!
//! A promoted server may lack the newest grants. So no lock is granted there until the longest of
//! them has expired: the *master's quarantine*. It has nothing to do with that of a quorum's node,
//! which `quorum::member` measures. The first client after a promotion records it at the server, by
//! one script; later clients read it. A connection leads to one run of one server, so the
//! result of its handshake holds for its whole life.
//!
//! - Invariant R1: when a client finds a server restarted or promoted, a quarantine of the longest
//!   lease and the margin begins. The exception is a promoted server that has run for that long,
//!   where no client accepts a grant that a replica lacks.
//! - Invariant R2: the script writes at each handshake. So a `WAIT` on the connection covers all
//!   earlier writes of the server.
//! - Invariant R3: clients measure the quarantine with their monotonic clocks. They report each
//!   second, and at their end, how much of it has passed. The server keeps the smallest remainder.
//!   So its clock neither ends the quarantine nor extends it (decision 0032).
//! - Invariant R4: a reply with nothing left ends the quarantine of the connection that reported.
//!   So an operator who ends it reaches connected clients with their next report.
//! - Invariant R5: with the quarantine, the counter of the fencing tokens rises by its length. So a
//!   hand-off within the quarantine has a larger token than any grant that the server may have
//!   missed, while the servers' clocks differ by less.

use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError, Moment};

use super::facts::{Quarantine, ServerFacts};
use super::resp::Reply;
use super::script::Script;
use super::value::Value;
use super::wire::{Wire, WireError};
use crate::args::Args;
use crate::error::{
    ENGINE, NOREPLICAS, masterless, protocol, refusal, too_few_replicas, unavailable,
};
use crate::keys::Layout;
use crate::options::{RedisOptions, Replicas, SentinelGroup};

static MASTER_TERM: Script =
    Script::new("master_term", include_str!("../../scripts/master_term.lua"));

/// How often a client reports how much of a quarantine has passed.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Returns when to report next; `None` once the quarantine is over.
pub(super) fn next_report(quarantine: Quarantine, now: Moment) -> Option<Moment> {
    let passed = u32::try_from(quarantine.since.until(now).as_secs()).unwrap_or(u32::MAX);
    let next = REPORT_INTERVAL.saturating_mul(passed.saturating_add(1));
    let next = quarantine.since.after(next);
    (now < quarantine.until()).then(|| next.min(quarantine.until()))
}

/// Returns the command that reports how much of a server's quarantine has passed by now. It must go
/// to the same run of the server.
pub(super) fn report(options: &RedisOptions, facts: &ServerFacts, now: Moment) -> Option<Args> {
    let group = options.group()?;
    let run = facts.run_id.as_deref()?;
    let Quarantine { since, left } = facts.quarantine?;
    let passed = since.until(now).min(left);
    let measured = [run.to_owned(), millis(left), millis(passed)];
    (passed >= Duration::from_millis(1)).then(|| command(options, group, &measured).into())
}

/// Ends the quarantine of this connection if nothing is left of it by the reply to a report. The
/// reply must be of the same run.
pub(super) fn handle_report_reply(facts: &ServerFacts, reply: &Value) {
    if let Some((run, Duration::ZERO)) = read_reply(reply)
        && facts.run_id.as_deref() == Some(run.as_str())
    {
        // It may have ended before.
        let _ = facts.quarantine_ended.set(());
    }
}

fn command(options: &RedisOptions, group: &SentinelGroup, measured: &[String]) -> Vec<Vec<u8>> {
    let layout = Layout::new(options.key_template(), options.prefix());
    let longest = millis(group.max_lease());
    let margin = millis(group.old_master());
    let mut args = vec![b"EVAL".to_vec(), MASTER_TERM.text().into(), b"2".to_vec()];
    args.extend([layout.master_term(), layout.counter()]);
    args.extend([longest, margin, replication(group).to_owned()].map(String::into_bytes));
    args.extend(measured.iter().map(|word| word.as_bytes().to_vec()));
    args
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// Queries a server that the sentinels name; `options` are those of the group.
pub(super) async fn query(
    wire: &mut Wire,
    options: &RedisOptions,
    clock: &dyn Clock,
) -> Result<ServerFacts, LockError> {
    let Some(group) = options.group() else { return Ok(ServerFacts::default()) };
    let role = single_reply(wire.request(&[vec![b"ROLE"]]).await)?;
    let role = role.as_array().and_then(|parts| parts.first()?.as_text());
    if role != Some("master") {
        let role = role.unwrap_or("server without a role");
        let message = format!("the sentinels name a {role}: a failover is under way");
        return Err(unavailable(message, Certainty::NotApplied));
    }
    if group.read_only() {
        return Ok(ServerFacts::default());
    }
    let args = command(options, group, &[]);
    let args = args.iter().map(Vec::as_slice).collect();
    let reply = single_reply(wire.request(&[args]).await)?;
    let (run, left) =
        read_reply(&reply).ok_or_else(|| protocol("the server reported no master term"))?;
    let quarantine = Some(Quarantine { since: clock.now(), left });
    Ok(ServerFacts { run_id: Some(run), quarantine, ..ServerFacts::default() })
}

fn replication(group: &SentinelGroup) -> &'static str {
    if group.replicas() == Replicas::All { "all" } else { "-" }
}

fn read_reply(reply: &Value) -> Option<(String, Duration)> {
    let [run, left] = reply.as_array()? else { return None };
    let left = u64::try_from(left.as_integer()?).ok()?;
    Some((run.as_text()?.to_owned(), Duration::from_millis(left)))
}

/// Returns the reply to one command. No error concerns a lock: nothing was applied.
fn single_reply(replies: Result<Vec<Reply>, WireError>) -> Result<Value, LockError> {
    match replies.map(|mut replies| replies.pop()) {
        Ok(Some(Ok(value))) => Ok(value),
        Ok(Some(Err(args))) if args.code == "READONLY" => {
            let message = "the sentinels name a replica: a failover is under way";
            Err(unavailable(message, Certainty::NotApplied))
        }
        Ok(Some(Err(args))) if args.code == NOREPLICAS => Err(too_few_replicas(args)),
        Ok(Some(Err(args))) => Err(not_applied(&refusal(args))),
        Ok(None) => Err(protocol("a command has no reply")),
        Err(WireError::Io(error)) => {
            let message = format!("the handshake broke off ({error})");
            Err(unavailable(message, Certainty::NotApplied))
        }
        Err(WireError::InvalidFrame) => Err(not_applied(&protocol("invalid reply"))),
    }
}

fn not_applied(error: &LockError) -> LockError {
    LockError::new(ENGINE, error.kind().clone(), Certainty::NotApplied)
}

/// The error for a request that a former master has refused: the caller may repeat it.
pub(super) fn refused_by_replica(error: &LockError) -> LockError {
    let message = "the server is no longer the master: the sentinels are queried again";
    masterless(message, error.certainty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_reply_of_the_script_is_rejected() {
        let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        let answer = |parts: &[Value]| read_reply(&Value::Array(parts.to_vec()));
        let good = answer(&[text("ab/00"), Value::Integer(70)]);
        assert_eq!(good, Some(("ab/00".to_owned(), Duration::from_millis(70))));
        assert_eq!(answer(&[text("ab"), Value::Integer(-1)]), None);
        assert_eq!(answer(&[text("ab")]), None);
        assert_eq!(read_reply(&Value::Nil), None);
    }

    #[test]
    fn only_a_reply_of_the_same_run_with_nothing_left_ends_a_quarantine() {
        let since = Moment::ORIGIN;
        let quarantine = Some(Quarantine { since, left: Duration::from_secs(60) });
        let facts = || ServerFacts {
            run_id: Some("ab/00".to_owned()),
            quarantine,
            ..ServerFacts::default()
        };
        for (run, left, ends) in [("ab/00", 0, true), ("ab/00", 1, false), ("ab/11", 0, false)] {
            let facts = facts();
            let run = Value::Bytes(run.as_bytes().to_vec());
            handle_report_reply(&facts, &Value::Array(vec![run, Value::Integer(left)]));
            assert_eq!(facts.quarantined_until().is_none(), ends, "{left}");
        }
    }
}
