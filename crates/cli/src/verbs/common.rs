//! Flags that several verbs take.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use holdline::LockOptions;
use holdline::watch::{NamePattern, WatchOptions};
use holdline_core::lease::DEFAULT_LEASE;
use holdline_core::{Escaped, LeaseId, LockName, Mode};

use crate::console::Console;
use crate::duration;
use crate::failure::Failure;
use crate::open_store::{OpenStore, TRY_LIMIT};
use crate::outer_locks::OuterLocks;
use crate::verb::EngineChoice;

/// The variable that holds a lease id, so that it need not appear in the list of processes.
pub(crate) const LEASE_ID: &str = "HOLDLINE_LEASE_ID";

/// The mode in which the name is held.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModeArgs {
    /// Share the name with others that also say --shared
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take K of the N permits of NAME; K may be omitted (1)
    #[arg(long, value_name = "K/N", value_parser = permits)]
    pub(crate) permits: Option<Mode>,
    /// Be granted in the order of queueing also where a store does that only on request, as Redis
    /// with `dialect=redisson`; refused where it is impossible
    #[arg(long, conflicts_with_all = ["shared", "permits"])]
    pub(crate) fair: bool,
}

impl ModeArgs {
    /// Returns the mode.
    pub(crate) fn mode(&self) -> Mode {
        match (self.permits, self.shared) {
            (Some(mode), _) => mode,
            (None, true) => Mode::Shared,
            (None, false) => Mode::Exclusive,
        }
    }
}

fn permits(text: &str) -> Result<Mode, String> {
    let (count, of) = text.split_once('/').unwrap_or(("1", text));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse::<u32>().ok()).flatten();
        number.ok_or_else(|| "write K/N, such as 1/3 for one of three".to_owned())
    };
    Mode::permits(number(count)?, number(of)?).map_err(|error| error.to_string())
}

/// How long to wait for the name.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WaitArgs {
    /// Wait at most this long, such as 500ms, 30s, 5m or 2h [default: for ever]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = wait)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: if the name is not free, end with 75; if the store has not answered after
    /// 2s, with 69
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) only_try: bool,
}

impl WaitArgs {
    /// How long the verb may take, including the connection.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.wait.or(self.only_try.then_some(TRY_LIMIT))
    }
}

/// Reads how long to wait.
fn wait(text: &str) -> Result<Duration, String> {
    match duration::any(text)? {
        Duration::ZERO => Err("must be above zero: --try does not wait".into()),
        wait => Ok(wait),
    }
}

/// What others see about the holder.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AboutArgs {
    /// Why the name is held, for other people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// A label, for tools; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
}

impl AboutArgs {
    /// Adds the reason, the labels and this process's trace to a lock's options.
    pub(crate) fn options(&self, options: LockOptions) -> Result<LockOptions, Failure> {
        let trace = std::env::var("TRACEPARENT").ok().filter(|trace| is_traceparent(trace));
        let options =
            options.with_reason(&*self.reason).with_traceparent(trace.unwrap_or_default());
        // A verb repeats the attempt itself while the store is away, and says so (`until_reached`).
        let options = options.with_fail_in_outage(true);
        let mut keys = BTreeSet::new();
        for (key, _) in &self.labels {
            if !keys.insert(key) {
                let message = format!("--label {}: is given twice", Escaped(key));
                return Err(Failure::usage(message).fix("give each key one value"));
            }
        }
        let labels = self.labels.iter();
        Ok(labels.fold(options, |options, (key, value)| options.with_label(key, value)))
    }
}

/// Returns whether a text is a W3C trace context; any other text is ignored.
fn is_traceparent(text: &str) -> bool {
    text.len() == 55 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".into()),
    }
}

/// The engine that a verb is asked about.
#[derive(Clone, Debug, Args)]
pub(crate) struct AskedEngineArgs {
    /// The engine [default: the engine that the other verbs would use]
    // Its id must not be that of `--url`, which clap would hide.
    #[arg(id = "ENGINE", value_name = "URL")]
    url: Option<String>,
}

impl AskedEngineArgs {
    /// Returns the choice of the engine.
    pub(crate) fn choice(&self) -> EngineChoice<'_> {
        self.url.as_deref().map_or(EngineChoice::Used, EngineChoice::AskedAbout)
    }
}

/// Which lease is meant.
#[derive(Clone, Debug, Args)]
pub(crate) struct LeaseIdArgs {
    /// The lease id that `acquire` printed [default: HOLDLINE_LEASE_ID]
    #[arg(long, value_name = "ID")]
    lease_id: Option<String>,
}

impl LeaseIdArgs {
    /// Returns the lease id of the flag or the environment, if there is one. A wrong id is never
    /// shown: it may be a valid one with a single digit wrong.
    pub(crate) fn optional(&self) -> Result<Option<LeaseId>, Failure> {
        let (text, from) = match &self.lease_id {
            Some(text) => (text.clone(), "--lease-id"),
            None => match std::env::var_os(LEASE_ID).filter(|text| !text.is_empty()) {
                Some(text) => (text.to_string_lossy().into_owned(), LEASE_ID),
                None => return Ok(None),
            },
        };
        let id = text.parse::<LeaseId>();
        id.map(Some).map_err(|error| Failure::usage(format_args!("{from}: {error}")))
    }

    /// Returns the lease id, unless it belongs to a `run` above, which renews and releases it by
    /// itself.
    pub(crate) fn of_acquire(&self, does: &str) -> Result<LeaseId, Failure> {
        let lease_id = self.required()?;
        if OuterLocks::from_environment()?.has(lease_id) {
            let message = format!("the lease is of a `holdline run` above, which {does} it itself");
            return Err(Failure::usage(message).fix("name a lease of `acquire` with --lease-id"));
        }
        Ok(lease_id)
    }

    /// Returns the lease id of the flag or the environment.
    pub(crate) fn required(&self) -> Result<LeaseId, Failure> {
        self.optional()?.ok_or_else(|| {
            Failure::usage("--lease-id: is missing")
                .fix(format_args!("give the id that `acquire` printed, or set {LEASE_ID}"))
        })
    }
}

/// Reports that a lease does not hold the name.
pub(crate) fn not_held(name: &LockName) -> Failure {
    Failure::lost(format_args!("{name}: not held by this lease"))
}

/// Which names `watch` and `top` list, and how often.
#[derive(Debug, Args)]
pub(crate) struct RoundArgs {
    /// Only names that match: `*` stands for any text, `?` for one character, after `\` a
    /// character for itself; without a wildcard exactly this name
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,
    /// How long to pause between two rounds, from 100ms to 1h; longer if the store is slow
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(default_value = "1s", value_parser = duration::any)]
    interval: Duration,
    /// How many names a round covers at most, in byte order
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_names: usize,
}

impl RoundArgs {
    /// Returns the pause between two rounds.
    #[cfg(feature = "top")]
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the pattern and the options of the rounds.
    pub(crate) fn checked(&self) -> Result<(NamePattern, WatchOptions), Failure> {
        let pattern = NamePattern::new(&self.pattern)?;
        let options =
            WatchOptions::default().with_interval(self.interval).with_max_names(self.max_names);
        let fix = "give another --interval or --max-names";
        options.validate().map_err(|error| Failure::usage(error).fix(fix))?;
        Ok((pattern, options))
    }
}

/// Returns the lease of a verb without `--lease`, and says so if it is shorter than the default.
pub(crate) fn default_lease(store: &OpenStore, console: &Console) -> Duration {
    let lease = store.default_lease();
    if lease < DEFAULT_LEASE {
        let lease = duration::written(lease);
        console.info(&format!("the lease is {lease}: the longest that this engine keeps"));
    }
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_read() {
        assert_eq!(permits("2/3"), Ok(Mode::Permits { count: 2, of: 3 }));
        assert_eq!(permits("3"), Ok(Mode::Permits { count: 1, of: 3 }));
        for bad in ["", "/", "0/3", "4/3", "1/0", "1/-3", "+1/3", "a/b", "1/3/5", "1/99999999999"] {
            assert!(permits(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_read() {
        assert_eq!(label("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(label("a").is_err() && label("=b").is_err());
    }
}
