//! What `doctor` checks of Redisson's keys, by a bounded `SCAN`: whether a token counter was lost.

use holdline_core::{FencingToken, Finding, LockError};

use super::Probe;
use crate::link::Value;
use crate::options::RedisOptions;
use crate::redisson::{Names, RECORD};

const COUNTERS: &str = "a counter that is deleted or expires begins at 1 again, and then a \
                        resource refuses the tokens of new holders as old ones";
const NOTIFICATIONS: &str = "waiters must be woken by a release";
/// How many `SCAN`s one checkup sends: it must not slow a large server down.
const MAX_STEPS: usize = 50;
const STEP: &str = "1000";
/// How many held locks are compared with their counters.
const MAX_HELD: usize = 500;

/// Says which messages wake waiters.
pub(super) fn notifications() -> Finding {
    let found = "not needed: Redisson's own messages wake waiters, and `notify-keyspace-events` is \
                 for its listeners only";
    Finding::ok("notifications", NOTIFICATIONS, found)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counters {
    held: usize,
    /// The names whose counter is behind a token that was granted.
    behind: Vec<String>,
    /// There are more keys than were inspected.
    more: bool,
}

/// Compares the locks that we hold with their counters.
pub(super) async fn counters(probe: &Probe, options: &RedisOptions) -> Finding {
    if !options.fencing() {
        return Finding::ok(
            "counters",
            COUNTERS,
            "not used: with `fencing=off` there are no tokens",
        );
    }
    match compare(probe, options).await {
        Ok(counters) => judge(&counters),
        Err(error) => Finding::ok("counters", COUNTERS, format!("is not permitted: {error}"))
            .warn("allow SCAN, HGET and GET to this user, or use another user"),
    }
}

async fn compare(probe: &Probe, options: &RedisOptions) -> Result<Counters, LockError> {
    let mut counters = Counters::default();
    let mut cursor = "0".to_owned();
    for _ in 0..MAX_STEPS {
        let page = probe.ask(&["SCAN", &cursor, "COUNT", STEP, "TYPE", "hash"]).await?;
        let Some([next, keys]) = page.as_array() else { break };
        for key in keys.as_array().unwrap_or_default().iter().filter_map(Value::as_text) {
            if counters.held == MAX_HELD {
                counters.more = true;
                return Ok(counters);
            }
            look(probe, options, key, &mut counters).await?;
        }
        cursor = next.as_text().unwrap_or("0").to_owned();
        if cursor == "0" {
            return Ok(counters);
        }
    }
    counters.more = true;
    Ok(counters)
}

async fn look(
    probe: &Probe,
    options: &RedisOptions,
    key: &str,
    counters: &mut Counters,
) -> Result<(), LockError> {
    let record = probe.ask(&["HGET", key, RECORD]).await?;
    let granted = record.as_text().and_then(|record| record.split(':').next()?.parse().ok());
    let Some::<FencingToken>(granted) = granted else { return Ok(()) };
    counters.held += 1;
    let last = probe.ask(&["GET", &Names::of(options).counter_of_key(key)]).await?;
    let last = last.as_text().and_then(|last| last.parse::<FencingToken>().ok());
    if last.is_none_or(|last| last < granted) {
        counters.behind.push(key.to_owned());
    }
    Ok(())
}

fn judge(counters: &Counters) -> Finding {
    let Counters { held, behind, more } = counters;
    let more = if *more { ", and more that were not looked at" } else { "" };
    let found = format!("{held} locks of ours{more}: {} with a lost counter", behind.len());
    let finding = Finding::ok("counters", COUNTERS, found);
    match behind.first() {
        None => finding,
        Some(first) => finding.warn(format!(
            "set the counter of '{}' to a number that no resource has seen, and do not call \
             `delete()` or `expire()` of an RFencedLock",
            first.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn a_lost_counter_is_reported_with_its_name() {
        let well = Counters { held: 3, more: true, ..Counters::default() };
        assert_eq!(judge(&well).health(), Health::Ok);
        assert!(judge(&well).found().contains("and more"));
        let ill = Counters { behind: vec!["a\u{1b}".to_owned()], ..well };
        assert_eq!(judge(&ill).health(), Health::Warning);
        assert!(judge(&ill).found().contains("1 with a lost counter"));
    }
}
