//! The first words to a server that Sentinels call the master: is it one, since when, and may it
//! grant?
//!
//! A server that was promoted may lack the newest grants, so it grants nothing until the longest
//! of them has run out. The first client after a promotion notes that at the server, in one script;
//! later clients read it. A connection ends in one process, so what was found in its handshake
//! stays true for it.
//!
//! - Invariant R1: a server that was restarted or promoted since somebody last looked grants
//!   nothing from then on for the longest lease and the margin; unless it was promoted, has run for
//!   so long, and no grant ever counted that a replica lacked.
//! - Invariant R2: each of these first words writes. So a `WAIT` on the connection covers whatever
//!   the server had written before.
//! - Invariant R3: clients measure that time with their monotonic clocks, and report each second
//!   and at their end how much of it has passed. The server keeps the least rest that follows. So
//!   its clock neither ends the wait nor prolongs it (decision 0032).

use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError, Moment};

use super::resp::Reply;
use super::script::Script;
use super::value::Value;
use super::wire::{Broke, Wire};
use super::{ServerFacts, Words};
use crate::error::{ENGINE, LONELY, lonely, masterless, protocol, refusal, unavailable};
use crate::keys::Layout;
use crate::options::{Group, RedisOptions, Replicas};

static REIGN: Script = Script::new("reign", include_str!("../../scripts/reign.lua"));

/// How often is reported how much of a quarantine has passed.
const REPORTS: Duration = Duration::from_secs(1);

/// A time in which a server grants nothing: so much of it was left when it answered, as we received
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quarantine {
    since: Moment,
    left: Duration,
}

impl Quarantine {
    pub(crate) fn until(&self) -> Moment {
        self.since.after(self.left)
    }

    /// Returns when to report next; `None` once it is over.
    pub(super) fn next_report(&self, now: Moment) -> Option<Moment> {
        let passed = u32::try_from(self.since.until(now).as_secs()).unwrap_or(u32::MAX);
        let next = self.since.after(REPORTS.saturating_mul(passed.saturating_add(1)));
        (now < self.until()).then(|| next.min(self.until()))
    }
}

/// Returns the command that reports how much of the quarantine of a server has passed by now; it
/// has to go to the same run of the server.
pub(super) fn report(options: &RedisOptions, facts: &ServerFacts, now: Moment) -> Option<Words> {
    let (group, run, Quarantine { since, left }) =
        (options.group()?, facts.run_id.as_deref()?, facts.quarantine?);
    let passed = since.until(now).min(left);
    let measured = [run.to_owned(), millis(left), millis(passed)];
    (passed >= Duration::from_millis(1)).then(|| command(options, group, &measured).into())
}

fn command(options: &RedisOptions, group: &Group, measured: &[String]) -> Vec<Vec<u8>> {
    let key = Layout::new(options.key_template(), options.prefix()).reign();
    let (longest, margin) = (millis(group.max_lease()), millis(group.old_master()));
    let mut words = vec![b"EVAL".to_vec(), REIGN.text().into(), b"1".to_vec(), key];
    words.extend([longest, margin, strength(group).to_owned()].map(String::into_bytes));
    words.extend(measured.iter().map(|word| word.as_bytes().to_vec()));
    words
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// Asks a server that the sentinels name; `options` are those of the group.
pub(super) async fn ask(
    wire: &mut Wire,
    options: &RedisOptions,
    clock: &dyn Clock,
) -> Result<ServerFacts, LockError> {
    let Some(group) = options.group() else { return Ok(ServerFacts::default()) };
    let role = one(wire.ask(&[vec![b"ROLE"]]).await)?;
    let role = role.as_array().and_then(|parts| parts.first()?.as_text());
    if role != Some("master") {
        let role = role.unwrap_or("server without a role");
        let message = format!("the sentinels name a {role}: a failover is under way");
        return Err(unavailable(message, Certainty::NotApplied));
    }
    if group.only_looks() {
        return Ok(ServerFacts::default());
    }
    let words = command(options, group, &[]);
    let words = words.iter().map(Vec::as_slice).collect();
    let reply = one(wire.ask(&[words]).await)?;
    let (run, left) = read(&reply).ok_or_else(|| protocol("the server told of no reign"))?;
    let quarantine = Some(Quarantine { since: clock.now(), left });
    Ok(ServerFacts { run_id: Some(run), quarantine, ..ServerFacts::default() })
}

fn strength(group: &Group) -> &'static str {
    if group.replicas() == Replicas::All { "all" } else { "-" }
}

fn read(reply: &Value) -> Option<(String, Duration)> {
    let [run, left] = reply.as_array()? else { return None };
    let left = u64::try_from(left.as_integer()?).ok()?;
    Some((run.as_text()?.to_owned(), Duration::from_millis(left)))
}

/// The answer to one command. Whatever went wrong, no lock was touched.
fn one(answers: Result<Vec<Reply>, Broke>) -> Result<Value, LockError> {
    match answers.map(|mut answers| answers.pop()) {
        Ok(Some(Ok(value))) => Ok(value),
        Ok(Some(Err(words))) if words.code == "READONLY" => {
            let message = "the sentinels name a replica: a failover is under way";
            Err(unavailable(message, Certainty::NotApplied))
        }
        Ok(Some(Err(words))) if words.code == LONELY => Err(lonely(words)),
        Ok(Some(Err(words))) => Err(settled(&refusal(words))),
        Ok(None) => Err(protocol("no answer where one must be")),
        Err(Broke::Stream(error)) => {
            let message = format!("broke off at the first words ({error})");
            Err(unavailable(message, Certainty::NotApplied))
        }
        Err(Broke::Rubbish) => Err(settled(&protocol("what came is no reply"))),
    }
}

fn settled(error: &LockError) -> LockError {
    LockError::new(ENGINE, error.kind().clone(), Certainty::NotApplied)
}

/// What a server that is no longer the master refuses is asked of the next one.
pub(super) fn refused_by_replica(error: &LockError) -> LockError {
    let message = "the server is no longer the master: the sentinels are asked again";
    masterless(message, error.certainty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_answer_of_the_script_is_not_believed() {
        let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        let answer = |parts: &[Value]| read(&Value::Array(parts.to_vec()));
        let good = answer(&[text("ab/00"), Value::Integer(70)]);
        assert_eq!(good, Some(("ab/00".to_owned(), Duration::from_millis(70))));
        assert_eq!(answer(&[text("ab"), Value::Integer(-1)]), None);
        assert_eq!(answer(&[text("ab")]), None);
        assert_eq!(read(&Value::Nil), None);
    }
}
