//! `holdline elect NAME -- COMMAND`: run COMMAND while this candidate leads, and campaign again.
//!
//! A term is a `run`: the same grant, the same way to stop the job before another may lead.
//! Invariant E1: a signal to end ends this program, also if the signal went to the job.
//! Invariant E2: what keeps it from leading for good (a wrong URL, no such program) ends it; what
//! passes (no answer, also at the start, no quorum, a lost term) does not.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueHint};
use holdline::election::{Leader, MAX_VALUE_BYTES};
use holdline_core::LockName;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::super::common::AboutArgs;
use super::Run;
use super::args::{RunOnly, RunPlan, check_dashes};
use super::report::{Report, RunOutcome};
use crate::child::{self, Signals};
use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::open_store::{NoStore, OpenStore, StoreOptions};
use crate::verb::{AtStake, EngineChoice, Verb};
use crate::verbs::waiting::WaitStatus;
use crate::view::millis;

/// How long a candidate waits before it campaigns again, when its command ended by itself, the
/// store did not answer, or it resigned where there is no queue: another candidate has the time to
/// lead.
const PAUSE: Duration = Duration::from_secs(1);

/// Run COMMAND while this candidate leads the election NAME, or watch who leads
#[derive(Debug, Args)]
#[command(override_usage = "holdline elect [OPTIONS] NAME [--] COMMAND...\n       \
    holdline elect NAME --observe")]
#[command(
    after_help = "COMMAND is stopped before another candidate may lead. Whenever it has ended, \
    this candidate resigns and campaigns again, at the end of the queue; TERM, INT, HUP and QUIT \
    go to COMMAND and end the campaigns. HOLDLINE_FENCING_TOKEN is the term.\n\nExamples:\n  \
    holdline elect scheduler --value $(hostname):8080 -- ./scheduler\n  \
    holdline elect scheduler --observe"
)]
pub(crate) struct ElectArgs {
    /// What observers see while this candidate leads, such as an address; at most 1024 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    #[arg(value_parser = value)]
    value: String,
    /// Lead once: end as `run` does, with COMMAND's exit code, or with 79 if the term was lost
    #[arg(long)]
    once: bool,
    /// Resign at this signal (HUP, USR1 or USR2): COMMAND is stopped, and does not get the signal
    #[arg(long, value_name = "SIGNAL", value_parser = resign_signal)]
    resign_on: Option<Signal>,
    /// Run nothing: print one JSON object for the present leader, and one for each new leader
    #[arg(long, conflicts_with_all = ["value", "once", "resign_on", "lease", "grace", "command"])]
    #[arg(conflicts_with_all = ["reason", "labels"])]
    observe: bool,
    /// Lead by a lease of this length instead of a live grant [default where the engine has no live
    /// grants: @default_lease@, or the longest that it keeps]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::lease)]
    lease: Option<Duration>,
    /// How long the command may take to end after TERM, before KILL [default: 5s; less where the
    /// engine keeps no lease of @default_lease@]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::any)]
    grace: Option<Duration>,
    #[command(flatten)]
    about: AboutArgs,
    /// The lock name of the election
    name: LockName,
    /// The program to run and its arguments
    #[arg(required_unless_present = "observe", trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Describes `elect`.
pub(crate) fn verb() -> Verb {
    Verb::new("elect", |mut arguments: ElectArgs, invocation| {
        let at_stake = AtStake::HoldAmongMachines("elect");
        if arguments.observe {
            return invocation.on_engine(&arguments.name, EngineChoice::Used, at_stake, observe);
        }
        check_dashes("elect", &arguments.name, &mut arguments.command, &invocation.words)?;
        invocation.on_engine(&arguments.campaigns(), EngineChoice::Used, at_stake, Campaigns::run)
    })
}

impl ElectArgs {
    fn campaigns(self) -> Campaigns {
        let term = RunPlan {
            name: self.name,
            command: self.command,
            about: self.about,
            value: self.value,
            lease: self.lease,
            grace: self.grace,
            run_only: RunOnly::default(),
        };
        Campaigns { term, once: self.once, resign_on: self.resign_on }
    }
}

/// What the flags come to, unless they only ask for the leader.
struct Campaigns {
    /// How each term is held.
    term: RunPlan,
    /// Lead for one term only.
    once: bool,
    resign_on: Option<Signal>,
}

fn value(text: &str) -> Result<String, String> {
    match text.len() {
        0..=MAX_VALUE_BYTES => Ok(text.to_owned()),
        bytes => Err(format!("may have {MAX_VALUE_BYTES} bytes, this one has {bytes}: shorten it")),
    }
}

fn resign_signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    match upper.strip_prefix("SIG").unwrap_or(&upper) {
        "HUP" => Ok(Signal::HUP),
        "USR1" => Ok(Signal::USR1),
        "USR2" => Ok(Signal::USR2),
        _ => Err("write HUP, USR1 or USR2".to_owned()),
    }
}

impl Campaigns {
    /// Opens the store, and leads again and again.
    async fn run(&self, address: Address, console: &Console) -> Outcome {
        super::check_proc()?;
        let waiting = Arc::new(WaitStatus::default());
        let options = StoreOptions {
            observer: Some(waiting.clone()),
            program: Some(self.term.program()),
            progress: Some(console),
            keeps_trying: !self.once,
            ..StoreOptions::default()
        };
        // Before the open store has threads.
        let mut signals = Signals::listen()?;
        if let Some(signal) = self.resign_on {
            signals.reserve(signal);
        }
        let store = match OpenStore::open_unless_ended(address, options, &mut signals).await {
            Ok(store) => store?,
            Err(signal) => return Ok(Exit::Job(child::JobExit::before_start(signal))),
        };
        let run = Run { plan: &self.term, store: &store, waiting: &waiting, console };
        let outcome = self.terms(&run, &mut signals).await;
        store.close().await;
        outcome
    }

    /// Leads for one term after the other, until there is a reason to end.
    async fn terms(&self, run: &Run<'_>, signals: &mut Signals) -> Outcome {
        let Run { plan, store, .. } = *run;
        // The name and the value are checked before anything is asked of the store.
        store.client().election(plan.name.as_str())?;
        loop {
            let mut report = Report::new(&plan.name, plan.run_only.mode.mode());
            let outcome = run.run(signals, &mut report).await;
            let Some(pause) = self.again(store, &outcome, &report, run.console) else {
                return outcome;
            };
            let rested = store.unless_ended(tokio::time::sleep(pause), signals).await;
            if let Err(signal) = rested {
                return Ok(report.interrupted(signal));
            }
            store.hold_anew();
            run.waiting.forget();
        }
    }

    /// Decides whether to campaign again, and after which pause.
    fn again(
        &self,
        store: &OpenStore,
        outcome: &Outcome,
        report: &Report,
        console: &Console,
    ) -> Option<Duration> {
        if self.once || report.asked_to_end || report.outcome == RunOutcome::Interrupted {
            return None;
        }
        let name = &self.term.name;
        match outcome {
            Ok(exit) if report.outcome == RunOutcome::Finished => {
                let code = exit.code();
                console.info(&format!("{name}: COMMAND ended with {code}; campaigning again"));
                Some(PAUSE)
            }
            Ok(_) => {
                console.info(&format!("{name}: campaigning again"));
                Some(if store.capabilities().queue { Duration::ZERO } else { PAUSE })
            }
            Err(failure) if matches!(failure.exit, Exit::Unavailable | Exit::Lost) => {
                console.warn(&format!("{}; campaigning again", failure.message));
                Some(PAUSE)
            }
            Err(_) => None,
        }
    }
}

/// Prints each leader.
async fn observe(name: &LockName, address: Address, console: &Console) -> Outcome {
    NoStore::until_made(&address, console).await?;
    let options =
        StoreOptions { progress: Some(console), read_only: true, ..StoreOptions::default() };
    let store = OpenStore::open(address, options).await?;
    let mut leaders = store.client().election(name.as_str())?.observe();
    loop {
        tokio::select! {
            leader = leaders.next() => match leader {
                Some(leader) => console.object(&object(name, &leader?))?,
                None => return Ok(Exit::Success),
            },
            // A leader may stay for months: nothing is written meanwhile that could fail.
            () = tokio::time::sleep(PAUSE) => {}
        }
        if console.reader_is_gone() {
            return Ok(Exit::Success);
        }
    }
}

fn object(name: &LockName, leader: &Leader) -> Value {
    let since = leader.since().and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    json!({
        "name": name.as_str(),
        "term": leader.term(),
        "value": text(leader.value()),
        "since_ms": since.map(millis),
        "host": text(leader.host()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_to_resign_at_are_read() {
        for (text, signal) in [("HUP", Signal::HUP), ("sigusr1", Signal::USR1)] {
            assert_eq!(resign_signal(text), Ok(signal), "{text}");
        }
        for bad in ["", "TERM", "KILL", "INT", "1", "USR3"] {
            assert!(resign_signal(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_that_is_too_long_is_refused() {
        assert!(value(&"x".repeat(MAX_VALUE_BYTES)).is_ok());
        let refused = value(&"x".repeat(MAX_VALUE_BYTES + 1)).expect_err("too long");
        assert!(refused.contains("1024 bytes, this one has 1025"), "{refused}");
    }
}
