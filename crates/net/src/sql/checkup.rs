//! The checks of `doctor` that do not depend on the server.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdline_core::operation::FENCE_HEADROOM;
use holdline_core::{Checkup, Clock, FencingToken, Finding, LockError};

const REACHABLE: &str = "without an answer no lock can be acquired, and held leases expire";
const POOLER: &str = "behind a pooler nobody can be woken: those who wait look once a second";
const CLOCK: &str = "leases end by the server's clock: a step forward ends them early, a step back \
                     late";

const TOKENS: &str = "behind the largest fencing token no name can be locked any more";
/// With how few tokens left the check fails: they last for most of a year at ten thousand grants a
/// minute.
const FEW_TOKENS: u64 = 1 << 32;

/// How far the server's clock may be from ours without a warning: leases do not compare the two.
const FAR: i128 = 1_000_000;
const TRIPS: usize = 5;

/// Waits for a connection, measures the shortest of a few round trips, and adds the finding.
/// `None`: the server does not answer, and there is nothing else to check.
pub async fn reach<T, A, F>(
    checkup: &mut Checkup,
    clock: &dyn Clock,
    ready: impl Future<Output = Result<T, LockError>>,
    ask: impl Fn() -> F,
) -> Option<T>
where
    F: Future<Output = Result<A, LockError>>,
{
    let reached = async {
        let facts = ready.await?;
        let mut shortest = Duration::MAX;
        for _ in 0..TRIPS {
            let start = clock.now();
            ask().await?;
            shortest = shortest.min(start.until(clock.now()));
        }
        Ok((facts, shortest))
    };
    match reached.await {
        Ok((facts, trip)) => {
            checkup.add(Finding::ok("reachable", REACHABLE, format!("answers in {trip:?}")));
            Some(facts)
        }
        Err::<_, LockError>(error) => {
            let finding = Finding::ok("reachable", REACHABLE, error.to_string());
            checkup.add(finding.fail("do what the error says; until then nothing can be locked"));
            None
        }
    }
}

/// Says whether a pooler is between us and the server.
pub fn pooler(is_pooled: bool) -> Finding {
    if !is_pooled {
        return Finding::ok("pooler", POOLER, "none: the connection is the server's own");
    }
    let found = "something between us and the server shares connections";
    let fix = "name the server itself in the URL; if that cannot be, locks work, and those who \
               wait are slower";
    Finding::ok("pooler", POOLER, found).warn(fix)
}

/// Compares the server's clock, in microseconds since 1970, with ours.
pub async fn server_clock(ask: impl Future<Output = Result<i64, LockError>>) -> Finding {
    let before = micros_now();
    let reply = ask.await;
    let after = micros_now();
    match reply {
        Ok(server) => judge_clock(i128::from(server), before, after),
        Err(error) => Finding::ok("clock", CLOCK, error.to_string()).warn("do what the error says"),
    }
}

/// Says whether tokens are left. `last` is the last one, or the one to which all counters have been
/// raised; `store` is the parameter of the URL that names another store.
pub fn tokens(last: Result<i64, LockError>, store: &str) -> Finding {
    let last = match last {
        Ok(last) => last.max(0).unsigned_abs(),
        Err(error) => {
            let finding = Finding::ok("tokens", TOKENS, error.to_string());
            return finding.warn("do what the error says");
        }
    };
    let left = FencingToken::MAX.get().saturating_sub(last);
    let finding = Finding::ok("tokens", TOKENS, format!("the last is {last}, {left} are left"));
    let fix = format!(
        "find out who has raised the fence (`holdline audit`). Tokens cannot be lowered: let all \
         clients name another `{store}` together, whose tokens begin at 1, and remove the marks \
         of the guarded resources"
    );
    if left < FEW_TOKENS {
        return finding.fail(fix);
    }
    // At this number no fence can be raised any more.
    if left <= FENCE_HEADROOM {
        return finding.warn(fix);
    }
    finding
}

fn micros_now() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i128::try_from(since.as_micros()).unwrap_or(i128::MAX))
}

/// The server read its clock between `before` and `after` on ours, in microseconds.
fn judge_clock(server: i128, before: i128, after: i128) -> Finding {
    let error = (after - before).max(0) / 2;
    let offset = server - (before + error);
    let found = format!("{} ms from ours, ± {} ms", offset / 1_000, error / 1_000);
    let finding = Finding::ok("clock", CLOCK, found);
    if offset.abs() - error <= FAR {
        return finding;
    }
    finding.warn("let both machines keep the same time (NTP), slewed and not stepped")
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn few_tokens_are_reported_before_none_is_left() {
        let largest = i64::try_from(FencingToken::MAX.get()).expect("fits");
        let headroom = i64::try_from(FENCE_HEADROOM).expect("fits");
        for (last, health) in [
            (0, Health::Ok),
            (largest - headroom - 1, Health::Ok),
            (largest - headroom, Health::Warning),
            (largest - (1 << 32), Health::Warning),
            (largest - (1 << 32) + 1, Health::Error),
            (largest, Health::Error),
        ] {
            let finding = tokens(Ok(last), "schema");
            assert_eq!(finding.health(), health, "{finding:?}");
        }
    }

    #[test]
    fn an_offset_within_the_error_is_none() {
        let second = 1_000_000;
        for (server, before, after, health) in [
            (500, 0, 1_000, Health::Ok),
            (3 * second, 0, 10 * second, Health::Ok),
            (second + 2, 0, 0, Health::Warning),
            (-second - 2, 0, 0, Health::Warning),
        ] {
            assert_eq!(judge_clock(server, before, after).health(), health);
        }
    }
}
