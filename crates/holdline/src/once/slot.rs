//! Slots: how time is divided, so that a job runs once in each part.
//!
//! Times are milliseconds since 1970 in UTC, as the machine's clock shows them.
//! Invariant O1: the slots of one schedule neither overlap nor leave a gap, so each moment belongs
//! to exactly one.

use std::time::Duration;

/// The longest slot: a leap year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How time is divided into slots. [`crate::Client::once`] runs a job once in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Every(Duration),
    #[cfg(feature = "cron")]
    Cron {
        expression: String,
        zone: String,
    },
}

impl Slot {
    /// Slots of equal length, in whole milliseconds. They are counted from 1970-01-01 00:00 UTC:
    /// slots of 15 minutes begin at :00, :15, :30 and :45.
    pub fn every(length: Duration) -> Slot {
        Slot(Kind::Every(length))
    }

    /// Slots that begin when a cron expression fires, and last until it fires again. The expression
    /// has five fields (minute, hour, day of month, month, day of week), or is `@hourly`, `@daily`,
    /// `@weekly` (on Sunday), `@monthly`, `@yearly` or `@annually`. The time zone is an IANA name,
    /// such as `Europe/Paris` or `UTC`.
    ///
    /// Where the clocks go back, an expression with a fixed hour and minute fires at the first of
    /// two equal times only. Where they go forward, a time that is left out fires when the clocks
    /// have gone forward. So every day has one slot of `30 2 * * *`. An expression with a wildcard
    /// or a range in its minute or hour fires as often as the time of day matches.
    #[cfg(feature = "cron")]
    pub fn cron(expression: impl Into<String>, zone: impl Into<String>) -> Slot {
        Slot(Kind::Cron { expression: expression.into(), zone: zone.into() })
    }
}

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// When it begins.
    pub(crate) start: u64,
    /// When the next one begins.
    pub(crate) end: u64,
}

impl Span {
    /// Returns how long it lasts.
    pub(crate) fn length(self) -> Duration {
        Duration::from_millis(self.end - self.start)
    }
}

/// A [`Slot`] that was checked.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    Every(u64),
    #[cfg(feature = "cron")]
    Cron(Box<cron::Expression>),
}

impl Schedule {
    /// Checks a slot.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    #[cfg_attr(
        not(feature = "cron"),
        expect(clippy::needless_pass_by_value, reason = "a cron expression is moved out of it")
    )]
    pub(crate) fn new(slot: Slot) -> Result<Schedule, String> {
        match slot.0 {
            Kind::Every(length) => {
                let whole = length.subsec_nanos().is_multiple_of(1_000_000);
                if length.is_zero() || length > LONGEST || !whole {
                    return Err(format!(
                        "must be whole milliseconds, above 0 and at most 366 days, not {length:?}"
                    ));
                }
                u64::try_from(length.as_millis()).map(Schedule::Every).map_err(|e| e.to_string())
            }
            #[cfg(feature = "cron")]
            Kind::Cron { expression, zone } => {
                cron::Expression::new(&expression, &zone).map(|one| Schedule::Cron(Box::new(one)))
            }
        }
    }

    /// Returns the slot to which a moment belongs.
    ///
    /// # Errors
    /// A cron expression never fires, or not for more than a year.
    pub(crate) fn at(&self, now: u64) -> Result<Span, String> {
        match self {
            Schedule::Every(length) => {
                let start = now - now % length;
                Ok(Span { start, end: start + length })
            }
            #[cfg(feature = "cron")]
            Schedule::Cron(expression) => expression.at(now),
        }
    }
}

/// Cron expressions: parsed by croner, with the time zones of jiff.
#[cfg(feature = "cron")]
mod cron {
    use croner::Cron;
    use croner::parser::{CronParser, Seconds, Year};
    use jiff::tz::TimeZone;
    use jiff::{Timestamp, Zoned};

    use super::{LONGEST, Span};

    /// An expression and the time zone in which it is read.
    #[derive(Clone, Debug)]
    pub(crate) struct Expression {
        cron: Cron,
        zone: TimeZone,
    }

    impl Expression {
        pub(super) fn new(expression: &str, zone: &str) -> Result<Expression, String> {
            let zone = TimeZone::get(zone).map_err(|_| {
                let zone = holdline_core::Escaped(zone);
                format!("no time zone is called {zone}: write an IANA name, such as Europe/Paris")
            })?;
            let parser = CronParser::builder().seconds(Seconds::Disallowed);
            let parser = parser.year(Year::Disallowed).build();
            let cron = parser.parse(expression).map_err(|error| {
                let expression = holdline_core::Escaped(expression);
                let error = error.to_string();
                let error = holdline_core::Escaped(&error);
                format!("{expression} is no cron expression of five fields: {error}")
            })?;
            Ok(Expression { cron, zone })
        }

        pub(super) fn at(&self, now: u64) -> Result<Span, String> {
            let now = self.zoned(now)?;
            let rarely = "fires less than once in 366 days: a slot may last that long at most";
            let start = self.cron.find_previous_occurrence(&now, true).map_err(|_| rarely)?;
            let end = self.cron.find_next_occurrence(&now, false).map_err(|_| rarely)?;
            let start = millis(&start)?;
            let end = millis(&end)?;
            let span = Span { start, end };
            if span.length() > LONGEST { Err(rarely.to_owned()) } else { Ok(span) }
        }

        fn zoned(&self, at: u64) -> Result<Zoned, String> {
            let at = i64::try_from(at).map_err(|error| error.to_string())?;
            let at = Timestamp::from_millisecond(at).map_err(|error| error.to_string())?;
            Ok(at.to_zoned(self.zone.clone()))
        }
    }

    fn millis(at: &Zoned) -> Result<u64, String> {
        u64::try_from(at.timestamp().as_millisecond()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000;
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn equal_slots_are_counted_from_1970() {
        let schedule = Schedule::new(Slot::every(Duration::from_secs(900))).expect("good");
        for (now, start) in [(0, 0), (899_999, 0), (900_000, 900_000), (1_000_000, 900_000)] {
            let span = Span { start, end: start + 900 * S };
            assert_eq!(schedule.at(now), Ok(span), "{now}");
        }
    }

    #[test]
    fn lengths_out_of_range_are_refused() {
        let part = Duration::from_micros(1_500);
        for bad in [Duration::ZERO, part, 366 * DAY + Duration::from_millis(1), Duration::MAX] {
            let error = Schedule::new(Slot::every(bad)).expect_err("refused");
            assert!(error.contains("at most 366 days"), "{error}");
        }
        assert!(Schedule::new(Slot::every(366 * DAY)).is_ok());
    }

    #[cfg(feature = "cron")]
    mod cron {
        use super::super::*;

        fn at(text: &str) -> u64 {
            let time: jiff::Timestamp = text.parse().expect("a time");
            u64::try_from(time.as_millisecond()).expect("after 1970")
        }

        /// The slot of `expression` in Paris to which `now` belongs.
        fn slot(expression: &str, now: &str) -> (String, String) {
            let schedule = Schedule::new(Slot::cron(expression, "Europe/Paris")).expect("good");
            let span = schedule.at(at(now)).expect("it fires");
            let text = |at: u64| {
                let at = jiff::Timestamp::from_millisecond(i64::try_from(at).expect("small"));
                at.expect("in range").to_string()
            };
            (text(span.start), text(span.end))
        }

        fn is(expression: &str, now: &str, start: &str, end: &str) {
            assert_eq!(slot(expression, now), (start.to_owned(), end.to_owned()), "at {now}");
        }

        #[test]
        fn a_slot_lasts_from_one_time_to_the_next() {
            let start = "2026-11-24T02:00:00Z";
            let end = "2026-11-25T02:00:00Z";
            for now in [start, "2026-11-24T14:10:00Z", "2026-11-25T01:59:59.999Z"] {
                is("0 3 * * *", now, start, end);
            }
            is("@hourly", "2026-11-24T14:10:00Z", "2026-11-24T14:00:00Z", "2026-11-24T15:00:00Z");
        }

        #[test]
        fn names_stand_for_the_five_fields_that_the_pages_say() {
            for (name, fields) in [
                ("@hourly", "0 * * * *"),
                ("@daily", "0 0 * * *"),
                ("@weekly", "0 0 * * SUN"),
                ("@monthly", "0 0 1 * *"),
                ("@yearly", "0 0 1 1 *"),
                ("@annually", "0 0 1 1 *"),
            ] {
                let now = "2026-11-24T14:10:00Z";
                assert_eq!(slot(name, now), slot(fields, now), "{name}");
            }
            for bad in ["@midnight", "@reboot", "@every 5m", "0 0 3 * * *"] {
                assert!(Schedule::new(Slot::cron(bad, "UTC")).is_err(), "{bad}");
            }
        }

        /// In Paris, 2026-03-29 02:00 to 03:00 does not exist.
        #[test]
        fn a_time_that_does_not_exist_fires_when_the_clocks_have_gone_forward() {
            let night = "2026-03-29T01:00:00Z";
            is("30 2 * * *", "2026-03-29T00:59:59Z", "2026-03-28T01:30:00Z", night);
            is("30 2 * * *", night, night, "2026-03-30T00:30:00Z");
            is("30 2 * * *", "2026-03-29T12:00:00Z", night, "2026-03-30T00:30:00Z");
        }

        /// In Paris, 2026-10-25 02:00 to 03:00 exists twice.
        #[test]
        fn a_time_that_exists_twice_fires_once() {
            let first = "2026-10-25T00:30:00Z";
            let next = "2026-10-26T01:30:00Z";
            is("30 2 * * *", "2026-10-25T00:29:00Z", "2026-10-24T00:30:00Z", first);
            for now in [first, "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"] {
                is("30 2 * * *", now, first, next);
            }
        }

        #[test]
        fn a_wildcard_fires_in_both_of_two_equal_hours() {
            is(
                "*/30 * * * *",
                "2026-10-25T01:10:00Z",
                "2026-10-25T01:00:00Z",
                "2026-10-25T01:30:00Z",
            );
        }

        #[test]
        fn what_never_fires_is_refused() {
            let now = at("2026-11-24T00:00:00Z");
            for bad in ["0 0 30 2 *", "0 0 29 2 *"] {
                let schedule = Schedule::new(Slot::cron(bad, "UTC")).expect("it reads well");
                let error = schedule.at(now).expect_err("refused");
                assert!(error.contains("less than once in 366 days"), "{error}");
            }
            let yearly = Schedule::new(Slot::cron("@yearly", "UTC")).expect("good");
            assert!(yearly.at(now).is_ok());
        }

        #[test]
        fn other_texts_and_zones_are_refused_with_what_would_be_right() {
            for (expression, zone, says) in [
                ("", "UTC", "five fields"),
                ("61 * * * *", "UTC", "five fields"),
                ("* * * *", "UTC", "five fields"),
                ("0 * * * * *", "UTC", "five fields"),
                ("0 3 * * *\u{1b}[31m", "UTC", "five fields"),
                ("0 3 * * *", "Europe/Pariss", "Europe/Paris"),
                ("0 3 * * *", "", "Europe/Paris"),
            ] {
                let error = Schedule::new(Slot::cron(expression, zone)).expect_err("refused");
                assert!(error.contains(says) && !error.contains('\u{1b}'), "{error}");
            }
        }
    }
}
