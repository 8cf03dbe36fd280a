//! The master term: whether a server is a master, and since when it may grant. For the master that
//! Sentinels name, and for the one server of an engine, whose address may lead to another (0068).
//!
//! A server that was promoted or restarted may lack the newest grants. So no lock is granted there
//! until the longest of them has expired: the *master's quarantine*. It has nothing to do with that
//! of a quorum's node,
//! which `quorum::member` measures. The first client after a promotion records it at the server, by
//! one script; later clients read it. A connection leads to one run of one server, so the
//! result of its handshake holds for its whole life.
//!
//! - Invariant R1: when a client finds a server restarted or promoted, a quarantine of the longest
//!   lease and the margin begins. The exception is a promoted server that has run for that long,
//!   where no client accepts a grant that a replica lacks. On one server nothing begins if it has
//!   no term, was never promoted, and the client knew no other run of it.
//! - Invariant R2: the script writes at each handshake. So a `WAIT` on the connection covers all
//!   earlier writes of the server.
//! - Invariant R3: clients measure the quarantine with their monotonic clocks. They report each
//!   second, and at their end, how much of it has passed. The server keeps the smallest remainder.
//!   So its clock neither ends the quarantine nor extends it (decision 0032).
//! - Invariant R4: a reply with nothing left ends the quarantine of the connection that reported.
//!   So an operator who ends it reaches connected clients with their next report.
//! - Invariant R5: with the quarantine of a promoted server, the counter of the fencing tokens
//!   rises by its length. So a hand-off within the quarantine has a larger token than any grant
//!   that the server may have missed, while their clocks differ by less. On a restarted server it
//!   does not: a counter that may be lost with the data must not be ahead of the clock.

use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError, Moment};

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
use crate::options::{RedisOptions, Replicas};

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
    let run = facts.run_id.as_deref()?;
    let Quarantine { since, left } = facts.quarantine?;
    let passed = since.until(now).min(left);
    let measured = [run.to_owned(), millis(left), millis(passed)];
    (passed >= Duration::from_millis(1)).then(|| command(options, NEVER_NEW, &measured).into())
}

/// Returns the command that asks a server again that granted nothing at its handshake: `ROLE` where
/// nothing is recorded. `None` for a server that may grant.
pub(super) fn query_again(options: &RedisOptions, facts: &ServerFacts) -> Option<Args> {
    facts.no_grants.as_ref()?;
    let rules = options.failover();
    let records = rules.quarantine() && !rules.read_only();
    Some(if records { command(options, NEVER_NEW, &[]).into() } else { Args::from(["ROLE"]) })
}

/// Returns whether a reply to [`query_again`] is that of a master.
pub(super) fn is_of_master(reply: &Value) -> bool {
    let role = reply.as_array().and_then(|parts| parts.first()?.as_text());
    read_reply(reply).is_some() || role == Some("master")
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

/// The client has no say in whether the server is a new one.
const NEVER_NEW: &str = "-";
/// The client knew no run of the server before.
const NEW: &str = "new";

/// Returns the call of the script. `known` is the run that the client knew before, or one of the
/// above.
fn command(options: &RedisOptions, known: &str, measured: &[String]) -> Vec<Vec<u8>> {
    let rules = options.failover();
    let layout = Layout::new(options.key_template(), options.prefix());
    let mut keys = vec![layout.master_term()];
    // Without fencing no client draws a token.
    if options.fencing() {
        keys.push(layout.counter());
    }
    let replicas = if rules.replicas() == Replicas::All { "all" } else { "-" };
    let longest = millis(rules.max_lease());
    let margin = millis(rules.old_master());
    let mut args = vec![b"EVAL".to_vec(), MASTER_TERM.text().into()];
    args.push(keys.len().to_string().into_bytes());
    args.extend(keys);
    args.extend([&*longest, &*margin, replicas, known].map(|word| word.as_bytes().to_vec()));
    args.extend(measured.iter().map(|word| word.as_bytes().to_vec()));
    args
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// What a handshake learns of the master term.
#[derive(Debug, Default)]
pub(super) struct Term {
    /// The run and the replication id that it followed; `None` where nothing is known.
    pub(super) run_id: Option<String>,
    pub(super) quarantine: Option<Quarantine>,
    /// The server is a replica by its own account.
    pub(super) is_replica: bool,
    /// Why the server grants nothing.
    pub(super) no_grants: Option<ErrorKind>,
}

/// Queries the master that the sentinels name; `options` are those of the group.
pub(super) async fn query_group(
    wire: &mut Wire,
    options: &RedisOptions,
    clock: &dyn Clock,
) -> Result<Term, LockError> {
    let role = single_reply(wire.request(&[vec![b"ROLE"]]).await)?;
    let role = role.as_array().and_then(|parts| parts.first()?.as_text());
    if role != Some("master") {
        let role = role.unwrap_or("server without a role");
        let message = format!("the sentinels name a {role}: a failover is under way");
        return Err(unavailable(message, Certainty::NotApplied));
    }
    if options.failover().read_only() {
        return Ok(Term::default());
    }
    let args = command(options, NEVER_NEW, &[]);
    let args = args.iter().map(Vec::as_slice).collect();
    let reply = single_reply(wire.request(&[args]).await)?;
    let (run, left) =
        read_reply(&reply).ok_or_else(|| protocol("the server reported no master term"))?;
    let quarantine = Some(Quarantine { since: clock.now(), left });
    Ok(Term { run_id: Some(run), quarantine, ..Term::default() })
}

/// Queries the one server of an engine. `known` is the run that the client knew before.
///
/// A server that cannot record the term grants nothing; one that does not let us ask grants as if
/// it had lost nothing, which `doctor` reports.
pub(super) async fn query_single(
    wire: &mut Wire,
    options: &RedisOptions,
    known: Option<&str>,
    clock: &dyn Clock,
) -> Result<Term, LockError> {
    let args = command(options, known.unwrap_or(NEW), &[]);
    let args = args.iter().map(Vec::as_slice).collect();
    let reply = match wire.request(&[args]).await.map(|mut replies| replies.pop()) {
        Ok(Some(Err(error))) => error,
        other => {
            let reply = single_reply(other.map(|reply| reply.into_iter().collect()))?;
            if matches!(reply.as_array(), Some([word]) if word.as_text() == Some("replica")) {
                return Ok(Term::of_replica());
            }
            let invalid = || not_applied(&protocol("the server reported no master term"));
            let (run, left) = read_reply(&reply).ok_or_else(invalid)?;
            let quarantine = Some(Quarantine { since: clock.now(), left });
            if !left.is_zero() {
                let address = options.address();
                tracing::warn!(%address, ?left, "restarted or promoted: it grants nothing so long");
            }
            return Ok(Term { run_id: Some(run), quarantine, ..Term::default() });
        }
    };
    let no_grants = match reply.code.as_str() {
        "BUSY" | "LOADING" | "MASTERDOWN" => return Err(not_applied(&refusal(reply))),
        "READONLY" => return Ok(Term::of_replica()),
        "OOM" | "MISCONF" | NOREPLICAS => Some(refusal(reply).kind().clone()),
        _ => match refusal(reply) {
            error if matches!(error.kind(), ErrorKind::Refused { .. }) => {
                tracing::warn!(%error, "a failover behind this address would go unnoticed");
                None
            }
            error => Some(error.kind().clone()),
        },
    };
    Ok(Term { no_grants, ..Term::default() })
}

/// A run of a server, as `INFO` shows it on a connection that does not use the script.
#[derive(Debug)]
pub(super) struct Run {
    id: String,
    followed: String,
}

impl Run {
    pub(super) const QUESTIONS: [[&'static [u8]; 2]; 2] =
        [[b"INFO", b"server"], [b"INFO", b"replication"]];

    /// Reads the replies; `None` where the server refuses one.
    pub(super) fn read(replies: &[Reply]) -> Option<Run> {
        let field = |at: usize, name: &str| {
            let text = replies.get(at)?.as_ref().ok()?.as_text()?;
            text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        let followed = field(1, "master_replid2:").unwrap_or_default();
        Some(Run { id: field(0, "run_id:")?, followed })
    }

    /// Returns whether the script calls it so. The name of a run that was never promoted has the
    /// replication id that is stored.
    pub(super) fn is(&self, name: Option<&str>) -> bool {
        let Some((id, followed)) = name.and_then(|name| name.split_once('/')) else { return false };
        let never_promoted = self.followed.bytes().all(|byte| byte == b'0');
        id == self.id && (never_promoted || followed == self.followed)
    }
}

impl Term {
    /// What is known of a server that is a replica by its own account.
    pub(super) fn of_replica() -> Term {
        let message = "the server is a replica: name its master, or the primary endpoint, as the \
                       host in the URL";
        let no_grants = Some(ErrorKind::Refused { message: message.to_owned() });
        Term { is_replica: true, no_grants, ..Term::default() }
    }
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
