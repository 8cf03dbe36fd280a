//! `holdline watch [PATTERN]`: prints what changes in a store, as seen from outside.
//!
//! The rounds and their comparison are the library's ([`holdline::watch`]); here they become lines.

use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use holdline::watch::{Change, Coverage, EndedWhen, LockEvent, Round, StoreWatch};
use holdline_core::snapshot::coarse;
use holdline_core::{Escaped, GrantState, HolderView, WaiterView};
use serde_json::{Value, json};

use super::common::RoundArgs;
use crate::config::Address;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{NoStore, OpenStore};
use crate::verb::{AtStake, EngineChoice, Verb};
use crate::view;

/// How often to check whether the reader has gone.
const PAUSE: Duration = Duration::from_millis(500);

/// Print what changes: grants, ends, waits, freezes
#[derive(Debug, Args)]
#[command(
    after_help = "It lists the store in rounds and prints what differs, until it is ended. A \
    grant that begins and ends between two rounds is not seen, and a release cannot be \
    distinguished from an expiry unless the lease was certain to last longer.\n\nExample:\n  \
    holdline watch 'deploy/*' --json"
)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    rounds: RoundArgs,
    /// Print renewals of leases too
    #[arg(long)]
    renewals: bool,
}

/// Describes `watch`.
pub(crate) fn verb() -> Verb {
    Verb::on_engine("watch", EngineChoice::Used, AtStake::Names, run)
}

/// Prints changes until the reader of stdout has gone.
pub(crate) async fn run(arguments: &WatchArgs, address: Address, console: &Console) -> Outcome {
    let (pattern, options) = arguments.rounds.checked()?;
    let made = NoStore::until_made(&address, console);
    let Some(made) = unless_gone(made, console).await else { return Ok(Exit::Success) };
    made?;
    let mut printer =
        Printer { renewals: arguments.renewals, console, down_since: None, coverage: None };
    let mut unprinted = Ok(());
    let opening = OpenStore::open_when_up(&address, |failure| {
        if printer.down_since.is_none() {
            console.info("waiting for the store");
            unprinted = printer.down(SystemTime::now(), &failure.message);
        }
    });
    let Some(store) = unless_gone(opening, console).await else { return Ok(Exit::Success) };
    unprinted?;
    let mut watch = StoreWatch::new(store?.client().clone(), pattern, options)?;
    while let Some(round) = unless_gone(watch.next_round(), console).await {
        printer.round(&round)?;
    }
    Ok(Exit::Success)
}

/// Waits for what `work` comes to; `None` if the reader of stdout has gone before.
async fn unless_gone<T>(work: impl Future<Output = T>, console: &Console) -> Option<T> {
    let mut work = pin!(work);
    while !console.reader_is_gone() {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    None
}

/// Prints rounds.
struct Printer<'a> {
    renewals: bool,
    console: &'a Console,
    /// Since when the store does not answer.
    down_since: Option<SystemTime>,
    coverage: Option<Coverage>,
}

impl Printer<'_> {
    fn round(&mut self, round: &Round) -> Result<(), Failure> {
        match (&round.failing, self.down_since) {
            (Some(failing), None) => self.down(round.at, &failing.error.to_string())?,
            (None, Some(since)) => {
                self.down_since = None;
                let away = round.at.duration_since(since).unwrap_or_default();
                self.about_store(round.at, "store_up", &format!("after {}", coarse(away)))?;
            }
            _ => {}
        }
        if let Some(coverage) = &round.coverage
            && self.coverage.as_ref() != Some(coverage)
        {
            if let Coverage::UpTo(last) = coverage {
                let message = format!("more names than a round covers: none after {last}");
                self.about_store(round.at, "left_out", &message)?;
            }
            self.coverage = Some(coverage.clone());
        }
        let is_shown =
            |change: &&Change| self.renewals || !matches!(change.event, LockEvent::Renewed { .. });
        if self.console.is_json() {
            for change in round.changes.iter().filter(is_shown) {
                self.console.object(&object(change, round.at))?;
            }
            return Ok(());
        }
        let time = view::moment(round.at);
        let line = |change: &Change| format!("{time} {}\n", text(change));
        let lines = round.changes.iter().filter(is_shown).map(line);
        self.console.data(&lines.collect::<String>())
    }

    fn down(&mut self, at: SystemTime, message: &str) -> Result<(), Failure> {
        self.down_since = Some(at);
        self.about_store(at, "store_down", message)
    }

    fn about_store(&self, at: SystemTime, event: &str, message: &str) -> Result<(), Failure> {
        if self.console.is_json() {
            let mut object = empty_object(event, at);
            object["message"] = message.into();
            return self.console.object(&object);
        }
        let event = event.replace('_', " ");
        self.console.data(&format!("{} {event}: {}\n", view::moment(at), Escaped(message)))
    }
}

/// The object of an event, in which nothing is known yet.
fn empty_object(event: &str, at: SystemTime) -> Value {
    json!({
        "event": event,
        "at_ms": at.duration_since(UNIX_EPOCH).map(view::millis).unwrap_or_default(),
        "name": null,
        "found": null,
        "within_ms": null,
        "ended_when": null,
        "slack_ms": null,
        "waited_ms": null,
        "position": null,
        "holder": null,
        "waiter": null,
        "freeze": null,
        "message": null,
    })
}

fn object(change: &Change, at: SystemTime) -> Value {
    let mut object = empty_object(change.event.word(), at);
    object["name"] = change.name.as_str().into();
    object["found"] = change.found.into();
    object["within_ms"] = json!((!change.found).then(|| view::millis(change.within)));
    match &change.event {
        LockEvent::Granted { holder, waited } => {
            object["holder"] = view::holder_object(holder);
            object["waited_ms"] = json!(waited.map(view::millis));
        }
        LockEvent::Ended { holder, when, slack } => {
            object["holder"] = view::holder_object(holder);
            object["ended_when"] = when.word().into();
            object["slack_ms"] = json!(slack.map(view::millis));
        }
        LockEvent::Renewed { holder, slack } => {
            object["holder"] = view::holder_object(holder);
            object["slack_ms"] = view::millis(*slack).into();
        }
        LockEvent::Revoked { holder } => object["holder"] = view::holder_object(holder),
        LockEvent::Queued { waiter, position } => {
            object["waiter"] = view::waiter_object(waiter);
            object["position"] = (*position).into();
        }
        LockEvent::LeftQueue { waiter } => object["waiter"] = view::waiter_object(waiter),
        LockEvent::Frozen { freeze } | LockEvent::Unfrozen { freeze } => {
            object["freeze"] = view::freeze_object(freeze);
        }
    }
    object
}

/// Returns a change in words, escaped.
pub(crate) fn text(change: &Change) -> String {
    let Change { name, event, found, .. } = change;
    let text = match event {
        LockEvent::Granted { holder, .. } if *found => format!("held by {}", who(holder)),
        LockEvent::Granted { holder, waited: Some(waited) } => {
            format!("granted to {} after a wait of {}", who(holder), coarse(*waited))
        }
        LockEvent::Granted { holder, waited: None } => format!("granted to {}", who(holder)),
        LockEvent::Ended { holder, when, .. } => {
            let how = match (&holder.state, when) {
                (GrantState::Revoked(_), _) => "ended after it was revoked",
                (_, EndedWhen::BeforeLeaseEnd) => "released or revoked",
                (_, EndedWhen::PerhapsExpired) => "released, revoked or expired",
                (_, EndedWhen::NoLease) => "released, or its processes have ended",
            };
            format!("{how}: {}", who(holder))
        }
        LockEvent::Renewed { holder, slack } => {
            format!("renewed with {} or less left: {}", coarse(*slack), who(holder))
        }
        LockEvent::Revoked { holder } => {
            let reason = match &holder.state {
                GrantState::Revoked(reason) => format!(", reason: {:.200}", Escaped(reason)),
                GrantState::Held => String::new(),
            };
            format!("revoked from {}{reason}", who(holder))
        }
        LockEvent::Queued { waiter, position } => {
            format!("waits at position {}: {}", position + 1, contender(waiter))
        }
        LockEvent::LeftQueue { waiter } => format!("no longer waits: {}", contender(waiter)),
        LockEvent::Frozen { freeze } => {
            let when = if freeze.active { "frozen" } else { "to be frozen" };
            format!("{when} for {}: {:.200}", coarse(freeze.left), Escaped(&freeze.reason))
        }
        LockEvent::Unfrozen { freeze } => {
            format!("no longer frozen: {:.200}", Escaped(&freeze.reason))
        }
    };
    format!("{name} {text}")
}

fn who(holder: &HolderView) -> String {
    let token = holder.summary.token.map(|token| format!("token {token}, ")).unwrap_or_default();
    format!("{token}lease {}, {}", holder.summary.lease_id, holder.summary)
}

fn contender(waiter: &WaiterView) -> String {
    let fields = waiter.metadata.fields();
    let program = if fields.program.is_empty() { "another" } else { &fields.program };
    let pid = fields.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    format!("lease {}, {:.80}{pid}", waiter.lease_id, Escaped(program))
}
