//! Durations as people type them: a whole number and its unit, `500ms 30s 5m 2h`.

use std::time::Duration;

use holdline_core::lease::{MAX_LEASE, MIN_LEASE};

/// The longest duration that is accepted: 366 days.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Reads a duration above zero.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    let duration = any(text)?;
    if duration.is_zero() {
        return Err("must be above zero".into());
    }
    Ok(duration)
}

/// Reads the duration of a lease.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let millis = read(text)?;
    if millis == Some(0) {
        return Err("must be above zero".into());
    }
    let lease = millis.map(Duration::from_millis);
    let possible = MIN_LEASE..=MAX_LEASE;
    lease
        .filter(|lease| possible.contains(lease))
        .ok_or_else(|| format!("must be from {} to {}", written(MIN_LEASE), written(MAX_LEASE)))
}

/// Reads a duration, zero included.
pub(crate) fn any(text: &str) -> Result<Duration, String> {
    let total = read(text)?.map(Duration::from_millis).filter(|total| *total <= MAX_DURATION);
    total.ok_or_else(|| "is too long: the most is 8784h (366 days)".into())
}

/// Reads milliseconds; `None` if the number is too large.
fn read(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Err("is empty: write a number and a unit, such as 30s".into());
    }
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err("must not be negative".into());
    }
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        return Err("must begin with a whole number: such as 500ms, 30s, 5m or 2h".into());
    }
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" => return Err(format!("has no unit: did you mean {number}s? (ms, s, m or h)")),
        _ if unit.starts_with('.') => {
            return Err("must be a whole number: 1500ms instead of 1.5s".into());
        }
        "d" => {
            let hours = number.parse::<u64>().ok().and_then(|days| days.checked_mul(24));
            let hours = hours.map_or("24h for 1d".into(), |hours| format!("{hours}h"));
            return Err(format!("days are no unit: write {hours} (ms, s, m or h)"));
        }
        _ => return Err("must end with one unit: ms, s, m or h".into()),
    };
    Ok(number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis)))
}

/// Writes a duration so that [`any`] reads the same again, to the millisecond.
pub(crate) fn written(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".into(),
        _ if !millis.is_multiple_of(1_000) => format!("{millis}ms"),
        _ if !millis.is_multiple_of(60_000) => format!("{}s", millis / 1_000),
        _ if !millis.is_multiple_of(3_600_000) => format!("{}m", millis / 60_000),
        _ => format!("{}h", millis / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_type_and_writes_it_again() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1500ms", 1_500),
            ("8784h", 8_784 * 3_600_000),
        ] {
            let duration = positive(text).expect(text);
            assert_eq!(duration, Duration::from_millis(millis), "{text}");
            assert_eq!(written(duration), text);
        }
        assert_eq!(written(Duration::from_secs(3_600)), "1h");
        assert_eq!(any("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn the_error_for_a_lease_names_the_range() {
        assert_eq!(lease("50ms"), Ok(MIN_LEASE));
        assert_eq!(lease("24h"), Ok(MAX_LEASE));
        for text in ["49ms", "25h", "10000h", "99999999999999999999h"] {
            assert_eq!(lease(text), Err("must be from 50ms to 24h".into()), "{text}");
        }
        assert_eq!(lease("0s"), Err("must be above zero".into()));
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, expected) in [
            ("", "empty"),
            ("0s", "above zero"),
            ("0ms", "above zero"),
            ("-1s", "negative"),
            ("-", "begin with a whole number"),
            ("--try", "begin with a whole number"),
            ("30", "did you mean 30s?"),
            ("0", "did you mean 0s?"),
            ("1.5s", "whole number"),
            ("1h30m", "one unit"),
            ("30 s", "one unit"),
            ("30S", "one unit"),
            ("5d", "days are no unit: write 120h"),
            ("99999999999999999999d", "days are no unit: write 24h for 1d"),
            ("1w", "one unit"),
            ("s", "begin with a whole number"),
            (" 5s", "begin with a whole number"),
            ("+5s", "begin with a whole number"),
            ("٣s", "begin with a whole number"),
            ("8785h", "too long"),
            ("18446744073709551615h", "too long"),
            ("18446744073709551616ms", "too long"),
            ("99999999999999999999999999s", "too long"),
        ] {
            let error = positive(text).expect_err(text);
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
