//! Options of calls, by their names. A binding says how its language writes a value ([`Given`]);
//! which options there are stands here.

use std::time::Duration;

use holdline::once::{OnceOptions, Slot};
use holdline::{Keep, LockError, LockName, LockOptions};

/// A value that a program gave.
pub trait Given {
    /// Reads a time.
    ///
    /// # Errors
    /// [`Unfit`] if it is none.
    fn time(&self) -> Result<Duration, Unfit>;
    /// Reads a text.
    ///
    /// # Errors
    /// [`Unfit`] if it is none.
    fn text(&self) -> Result<String, Unfit>;
    /// Reads a truth value.
    ///
    /// # Errors
    /// [`Unfit`] if it is none.
    fn flag(&self) -> Result<bool, Unfit>;
    /// Reads texts by their names.
    ///
    /// # Errors
    /// [`Unfit`] if they are none.
    fn texts(&self) -> Result<Vec<(String, String)>, Unfit>;
}

/// Why a value is not what was wanted.
pub enum Unfit {
    /// It has another type.
    Type {
        /// What was wanted, in the language's words: `a string`.
        wanted: &'static str,
        /// The type that was given, in the language's words.
        given: String,
    },
    /// No value of the library can be so.
    Value(String),
}

/// Why the options of a call are refused.
pub enum Mistake {
    /// An option has another type.
    Type {
        /// The option.
        field: String,
        /// What was wanted.
        wanted: &'static str,
        /// What was given.
        given: String,
    },
    /// There is no such option.
    Unknown(String),
    /// A value that the library cannot take.
    Value(LockError),
}

impl Unfit {
    /// Names the option.
    pub fn of(self, field: &'static str) -> Mistake {
        match self {
            Unfit::Type { wanted, given } => {
                Mistake::Type { field: field.to_owned(), wanted, given }
            }
            Unfit::Value(says) => invalid(field, says),
        }
    }
}

fn invalid(field: &'static str, says: impl std::fmt::Display) -> Mistake {
    Mistake::Value(LockError::invalid("holdline", field, says))
}

/// Reads the options of a lock.
///
/// # Errors
/// [`Mistake`], with the option that is wrong.
pub fn lock<G: Given>(given: Vec<(String, G)>) -> Result<LockOptions, Mistake> {
    let mut options = LockOptions::default();
    for (key, value) in given {
        options = lock_option(options, key, &value)?;
    }
    Ok(options)
}

/// Takes one option of a lock.
fn lock_option(
    options: LockOptions,
    key: String,
    value: &impl Given,
) -> Result<LockOptions, Mistake> {
    let time = |field| value.time().map_err(|unfit| unfit.of(field));
    let text = |field| value.text().map_err(|unfit| unfit.of(field));
    let flag = |field| value.flag().map_err(|unfit| unfit.of(field));
    Ok(match key.as_str() {
        "wait" => options.with_wait(time("wait")?),
        "lease_duration" => options.with_lease_duration(time("lease_duration")?),
        "renew_interval" => options.with_renew_interval(time("renew_interval")?),
        "max_hold" => options.with_max_hold(time("max_hold")?),
        "fair" => options.with_fair(flag("fair")?),
        "fail_in_outage" => options.with_fail_in_outage(flag("fail_in_outage")?),
        "keep" => options.with_keep(keep(&text("keep")?)?),
        "reason" => options.with_reason(text("reason")?),
        "traceparent" => options.with_traceparent(text("traceparent")?),
        "lock_class" => options.with_class(text("lock_class")?),
        "labels" => {
            let labels = value.texts().map_err(|unfit| unfit.of("labels"))?;
            labels
                .into_iter()
                .fold(options, |options, (name, value)| options.with_label(name, value))
        }
        _ => return Err(Mistake::Unknown(key)),
    })
}

fn keep(word: &str) -> Result<Keep, Mistake> {
    match word {
        "renewed" => Ok(Keep::Renewed),
        "fixed" => Ok(Keep::Fixed),
        "detached" => Ok(Keep::Detached),
        "live" => Ok(Keep::Live),
        other => {
            let says = format!("must be renewed, fixed, detached or live, not {other:?}");
            Err(invalid("keep", says))
        }
    }
}

/// Reads the slot and the options of a job that runs once per slot.
///
/// # Errors
/// [`Mistake`], with the option that is wrong.
pub fn once<G: Given>(given: Vec<(String, G)>) -> Result<(Slot, OnceOptions), Mistake> {
    let mut every = None;
    let mut cron = None;
    let mut zone = "UTC".to_owned();
    let mut once = OnceOptions::default();
    let mut lock = LockOptions::default();
    for (key, value) in given {
        let time = |field| value.time().map_err(|unfit| unfit.of(field));
        let text = |field| value.text().map_err(|unfit| unfit.of(field));
        let flag = |field| value.flag().map_err(|unfit| unfit.of(field));
        match key.as_str() {
            "every" => every = Some(time("every")?),
            "cron" => cron = Some(text("cron")?),
            "zone" => zone = text("zone")?,
            "at_most_once" => once = once.with_at_most_once(flag("at_most_once")?),
            "keep_on_failure" => once = once.with_keep_on_failure(flag("keep_on_failure")?),
            "max_skew" => once = once.with_max_skew(time("max_skew")?),
            _ => lock = lock_option(lock, key, &value)?,
        }
    }
    let slot = match (every, cron) {
        (Some(every), None) => Slot::every(every),
        (None, Some(cron)) => Slot::cron(cron, zone),
        _ => return Err(invalid("slot", "needs either `every` or `cron`")),
    };
    Ok((slot, once.with_lock(lock)))
}

/// Returns the class of the longest prefix of a name that has one.
pub fn class_of(classes: &[(String, String)], name: &LockName) -> Option<String> {
    let fitting = classes.iter().filter(|(prefix, _)| name.as_str().starts_with(prefix));
    fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, class)| class.clone())
}
