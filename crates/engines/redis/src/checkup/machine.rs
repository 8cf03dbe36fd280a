//! The round trip to the server, and its clock compared with ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdline_core::{Clock, Finding, LockError};

use super::Probe;

/// How far the server's clock may be from ours. Leases do not compare the two; only tokens that
/// must grow after a loss of data do.
pub(super) const FAR: i128 = 1_000_000;
const TRIPS: usize = 5;

const CLOCK: &str = "after a loss of data, fencing tokens continue from the server's clock: if \
                     that was set back, they are smaller than before";

/// Measures the shortest of a few round trips.
pub(super) async fn round_trip(probe: &Probe, clock: &dyn Clock) -> Result<Duration, LockError> {
    let mut shortest = Duration::MAX;
    for _ in 0..TRIPS {
        let start = clock.now();
        probe.ask(&["PING"]).await?;
        shortest = shortest.min(start.until(clock.now()));
    }
    Ok(shortest)
}

/// How far a server's clock is from ours, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    /// The server's clock minus ours.
    pub(super) ahead: i128,
    /// The possible error, in both directions.
    pub(super) error: i128,
}

/// Compares the server's time of day with ours.
pub(super) async fn clock(probe: &Probe) -> Finding {
    match offset(probe).await {
        Ok(Some(offset)) => judge(offset),
        Ok(None) => Finding::ok("clock", CLOCK, "the reply to TIME is invalid")
            .fail("find out what is between us and the server"),
        Err(error) => {
            let found = format!("is not permitted: {error}");
            Finding::ok("clock", CLOCK, found).warn("allow TIME to this user")
        }
    }
}

/// Measures how far the server's clock is from ours; `None` if its reply is invalid.
pub(super) async fn offset(probe: &Probe) -> Result<Option<Offset>, LockError> {
    let before = micros_now();
    let reply = probe.ask(&["TIME"]).await?;
    let after = micros_now();
    let time = reply.as_array().and_then(|parts| match parts {
        [seconds, micros] => Some((seconds.as_integer()?, micros.as_integer()?)),
        _ => None,
    });
    Ok(time.map(|(seconds, micros)| {
        measure(i128::from(seconds) * 1_000_000 + i128::from(micros), before, after)
    }))
}

fn micros_now() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i128::try_from(since.as_micros()).unwrap_or(i128::MAX))
}

/// The server read its clock between `before` and `after` on ours, in microseconds.
fn measure(server: i128, before: i128, after: i128) -> Offset {
    let error = (after - before).max(0) / 2;
    Offset { ahead: server - (before + error), error }
}

fn judge(offset: Offset) -> Finding {
    let Offset { ahead, error } = offset;
    let found = format!("{:+.3} s from ours, ± {:.3} s", seconds(ahead), seconds(error));
    let finding = Finding::ok("clock", CLOCK, found);
    if ahead.abs() - error <= FAR {
        return finding;
    }
    finding.warn("synchronize both clocks (NTP), slewed and not stepped")
}

#[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn seconds(micros: i128) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn an_offset_within_the_error_is_none() {
        let second = 1_000_000;
        for (server, before, after, health) in [
            (500, 0, 1_000, Health::Ok),
            (3 * second, 0, 10 * second, Health::Ok),
            (second + 2, 0, 0, Health::Warning),
            (-second - 2, 0, 0, Health::Warning),
            // The clock of ours was set back meanwhile.
            (0, 10, 5, Health::Ok),
        ] {
            let finding = judge(measure(server, before, after));
            assert_eq!(finding.health(), health, "{}", finding.found());
        }
        assert_eq!(judge(measure(2_500_000, 0, 2_000)).found(), "+2.499 s from ours, ± 0.001 s");
    }
}
