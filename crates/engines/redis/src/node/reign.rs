//! The first words to a server that Sentinels call the master: is it one, since when, and may it
//! grant?
//!
//! A server that was promoted may lack the newest grants, so it grants nothing until the longest
//! of them has run out. Who comes first after a promotion notes that at the server, in one script;
//! who comes later reads it. A connection ends in one process, so what was found at its first
//! words stays true for it.
//!
//! - Invariant R1: a server that was restarted or promoted since somebody last looked grants
//!   nothing from then on for the longest lease and the margin; unless it has run for so long, and
//!   no grant ever counted that a replica lacked.
//! - Invariant R2: each of these first words writes. So a `WAIT` on the connection covers whatever
//!   the server had written before.

use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError};

use super::ServerFacts;
use super::resp::Reply;
use super::script::Script;
use super::value::Value;
use super::wire::{Broke, Wire};
use crate::error::{ENGINE, LONELY, lonely, masterless, protocol, refusal, unavailable};
use crate::keys::Layout;
use crate::options::{Group, RedisOptions, Replicas};

static REIGN: Script = Script::new("reign", include_str!("../../scripts/reign.lua"));

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
    let key = Layout::new(options.key_template(), options.prefix()).reign();
    let millis = |duration: Duration| duration.as_millis().to_string();
    let (longest, margin) = (millis(group.max_lease()), millis(group.old_master()));
    let words: Vec<&[u8]> = vec![
        b"EVAL",
        REIGN.text().as_bytes(),
        b"1",
        &key,
        longest.as_bytes(),
        margin.as_bytes(),
        strength(group).as_bytes(),
    ];
    let reply = one(wire.ask(&[words]).await)?;
    let (run, left) = read(&reply).ok_or_else(|| protocol("the server told of no reign"))?;
    let quarantined_until = Some(clock.now().after(left));
    Ok(ServerFacts { run_id: Some(run), quarantined_until, ..ServerFacts::default() })
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
