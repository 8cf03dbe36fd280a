//! `holdline wait NAME`.

use std::time::Duration;

use clap::Args;
use holdline_core::{Backoff, Certainty, ErrorKind, LockError, LockName, Mode, Snapshot};
use tokio::time::Instant;

use crate::console::Console;
use crate::duration;
use crate::failure::{Failure, Outcome};
use crate::holder::Holder;
use crate::open_store::{OpenStore, StoreOptions};
use crate::outer_locks::OuterLocks;
use crate::verb::{StoreUse, Verb};
use crate::view;

/// The shortest and the longest pause between two requests.
const POLL_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long the last request may take when the wait is over.
const LAST_ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// Wait until NAME is free, without taking it
#[derive(Debug, Args)]
#[command(
    after_help = "The name may be taken again before the next command runs: to do something \
    while it is free, use `run`.\n\nExample:\n  holdline wait deploy --wait 5m"
)]
pub(crate) struct WaitVerbArgs {
    /// The lock name
    name: LockName,
    /// Wait at most this long, such as 500ms, 30s, 5m or 2h [default: for ever]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::positive)]
    wait: Option<Duration>,
}

/// Describes `wait`.
pub(crate) fn verb() -> Verb {
    Verb::new("wait", |arguments: WaitVerbArgs, invocation| {
        let progress = Some(&invocation.console);
        let options = StoreOptions { wait: arguments.wait, progress, ..StoreOptions::default() };
        invocation.on_store(&arguments, options, &StoreUse::Reads(without_store), run)
    })
}

/// Inspects the name until nobody holds it.
pub(crate) async fn run(arguments: &WaitVerbArgs, store: &OpenStore, console: &Console) -> Outcome {
    let name = &arguments.name;
    let outer = OuterLocks::from_environment()?;
    store.check_nesting(&outer, name, Mode::Exclusive).await?;
    let limit = arguments.wait.map(|wait| Instant::now() + store.remaining_wait(wait));
    let mut pause = Backoff::new(POLL_PAUSE.0, POLL_PAUSE.1);
    // Whether the store answered when the last message was printed.
    let mut reported = None;
    loop {
        let seen = match inspect(store, name, limit).await {
            // A failover may follow, or a majority may come back.
            Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }) => Err(error),
            seen => Ok(seen?),
        };
        if let Ok(snapshot) = &seen
            && !snapshot.is_held()
        {
            return free(snapshot, console);
        }
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let snapshot = seen?;
            return Err(timed_out(store, name, &snapshot));
        }
        if reported.replace(seen.is_ok()) != Some(seen.is_ok()) {
            let why = seen.map_or_else(|error| error.kind().to_string(), |seen| reason(&seen));
            console.info(&format!("waiting for {name}: {why}"));
        }
        let pause = pause.next_pause(store.random()).max(POLL_PAUSE.0);
        tokio::time::sleep(left.map_or(pause, |left| left.min(pause))).await;
    }
}

/// Inspects the name once. The wait for an answer ends soon after the limit.
async fn inspect(
    store: &OpenStore,
    name: &LockName,
    limit: Option<Instant>,
) -> Result<Snapshot, LockError> {
    let inspection = store.inspect(name);
    let Some(limit) = limit else { return inspection.await };
    let at_least = Instant::now() + LAST_ANSWER_LIMIT;
    tokio::time::timeout_at(limit.max(at_least), inspection).await.unwrap_or_else(|_| {
        let message = "no answer within the time of --wait".to_owned();
        Err(store.error(ErrorKind::Unavailable { message }).with_name(name))
    })
}

/// Reports that nobody holds the name.
pub(crate) fn without_store(arguments: &WaitVerbArgs, console: &Console) -> Outcome {
    free(&Snapshot::free(arguments.name.clone()), console)
}

fn free(snapshot: &Snapshot, console: &Console) -> Outcome {
    console.only_object(&view::object(snapshot))
}

fn reason(snapshot: &Snapshot) -> String {
    match (snapshot.holders.first(), &snapshot.freeze) {
        (Some(holder), _) => format!("held by {}", Holder::inspected(holder)),
        (None, Some(freeze)) => format!("frozen: {}", holdline_core::Escaped(&freeze.reason)),
        (None, None) => "held".into(),
    }
}

fn timed_out(store: &OpenStore, name: &LockName, last: &Snapshot) -> Failure {
    let waited = store.waited();
    let seen = last.holders.first().map(Holder::inspected);
    if let (None, Some(freeze)) = (&seen, &last.freeze) {
        let reason = holdline_core::Escaped(&freeze.reason);
        let message = format_args!("{name}: not free after {waited:.1?}, frozen: {reason}");
        return Failure::busy(message).kind("timed_out").certainty(Certainty::NotApplied);
    }
    let holder = seen.as_ref().map(|seen| Box::new(seen.summary.clone()));
    let kind = ErrorKind::TimedOut { waited, holder };
    Failure::of(&store.error(kind).with_name(name), seen)
}
