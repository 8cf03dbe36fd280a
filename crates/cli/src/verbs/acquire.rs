//! `holdline acquire NAME`: a lease that belongs to no process.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use holdline::{Guard, Keep, LockOptions};
use holdline_core::{ErrorKind, LockError, LockName};
use serde_json::json;

use super::common::{self, AboutArgs, LeaseIdArgs, ModeArgs, WaitArgs};
use super::waiting::{self, WaitStatus};
use crate::child::{self, Signals};
use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{OpenStore, StoreOptions};
use crate::outer_locks::OuterLocks;
use crate::verb::{AtStake, EngineChoice, Verb};
use crate::view::unix_millis;

/// Acquire NAME for a while without a process that holds it, and print the lease
#[derive(Debug, Args)]
#[command(after_help = "The lease ends by its duration unless `renew` keeps it or `release` ends \
    it. With a lease id of your own (32 random hex digits) a call whose answer was lost can be \
    repeated; after any other failure draw a new one.\n\nExample:\n  grant=$(holdline acquire \
    deploy --lease 10m) || exit\n  eval \"$grant\"\n  \
    ./step && holdline release deploy --lease-id \"$lease_id\"")]
pub(crate) struct AcquireArgs {
    /// How long the lease lasts [default: @default_lease@, or the longest that the engine keeps]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::lease)]
    lease: Option<Duration>,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    about: AboutArgs,
    #[command(flatten)]
    lease_id: LeaseIdArgs,
    /// The lock name
    name: LockName,
}

/// Describes `acquire`.
pub(crate) fn verb() -> Verb {
    Verb::on_engine("acquire", EngineChoice::Used, AtStake::Hold, run)
}

async fn run(arguments: &AcquireArgs, address: Address, console: &Console) -> Outcome {
    let waiting = Arc::new(WaitStatus::default());
    let options = StoreOptions {
        observer: Some(waiting.clone()),
        program: Some("holdline acquire".to_owned()),
        detached: true,
        wait: arguments.wait.limit(),
        keeps_trying: false,
        progress: (!arguments.wait.only_try).then_some(console),
        read_only: false,
    };
    // An open store has threads, so the signals come first.
    let mut signals = Signals::listen()?;
    let store = match OpenStore::open_unless_ended(address, options, &mut signals).await {
        Ok(store) => store?,
        Err(signal) => return Ok(Exit::Job(child::JobExit::before_start(signal))),
    };
    let outcome = acquire(arguments, &mut signals, &store, &waiting, console).await;
    store.close().await;
    outcome
}

/// Acquires the name and prints the lease.
async fn acquire(
    arguments: &AcquireArgs,
    signals: &mut Signals,
    store: &OpenStore,
    waiting: &WaitStatus,
    console: &Console,
) -> Outcome {
    let AcquireArgs { lease, wait, about, name, .. } = arguments;
    let mode = arguments.mode.mode();
    let outer = OuterLocks::from_environment()?;
    match store.unless_ended(store.check_nesting(&outer, name, mode), signals).await {
        Ok(checked) => checked?,
        Err(signal) => return Ok(Exit::Job(child::JobExit::before_start(signal))),
    }
    // The id in a job's environment is that of the job's own lease, and not for new leases.
    let lease_id = arguments.lease_id.optional()?.filter(|lease_id| !outer.has(*lease_id));
    if lease_id.is_none() && console.stdout_is_closed() {
        let message = "stdout is closed: nobody would learn the id of the lease";
        return Err(Failure::internal(message).fix("read stdout, or give an id with --lease-id"));
    }
    let lease = lease.unwrap_or_else(|| common::default_lease(store, console));
    let mut options =
        about.options(LockOptions::default())?.with_keep(Keep::Detached).with_lease_duration(lease);
    options = options.with_fair(arguments.mode.fair);
    if let Some(lease_id) = lease_id {
        options = options.with_lease_id(lease_id);
    }
    let options = &options;
    let attempt = async |_| {
        let options = match wait.wait {
            Some(wait) => options.clone().with_wait(store.remaining_wait(wait)),
            None => options.clone(),
        };
        // What was seen before the store went away is not known any more.
        waiting.forget();
        let attempt = store.acquire(name, mode, &options, wait.only_try);
        match waiting::report(attempt, waiting, name, store, console).await {
            Ok(guard) => Ok(guard),
            Err(error) => Err(explained(error, store).await),
        }
    };
    // An attempt that failed may have given its id up, so only an id of ours is good for another.
    let repeated = wait.wait.filter(|_| lease_id.is_none());
    let attempt = store.until_reached(repeated, console, attempt);
    let guard = match store.unless_ended(attempt, signals).await {
        Ok(guard) => guard?,
        Err(signal) => return Ok(Exit::Job(child::JobExit::before_start(signal))),
    };
    deliver(guard, store, console).await
}

/// A lease id that was given up after an unknown outcome cannot be granted any more.
async fn explained(error: LockError, store: &OpenStore) -> Failure {
    match error.kind() {
        ErrorKind::Cancelled => Failure::usage("--lease-id: the lease id was given up before")
            .fix("draw a new one: an id is good for one attempt and its repetitions"),
        _ => store.failure(error).await,
    }
}

/// Prints the lease. If that fails, nobody knows the lease, so it is released.
async fn deliver(guard: Guard, store: &OpenStore, console: &Console) -> Outcome {
    let valid_for = if guard.is_partial() { guard.renew().await? } else { guard.remaining() };
    let valid_until_ms = unix_millis(valid_for);
    let lease = guard.detach().await.map_err(|error| Failure::from(error.error().clone()))?;
    let lease_id = lease.lease_id().to_hex();
    let token = lease.fencing_token();
    let text = if console.is_json() {
        let object = json!({
            "name": lease.name(),
            "lease_id": lease_id,
            "fencing_token": token,
            "valid_until_ms": valid_until_ms,
        });
        format!("{object}\n")
    } else {
        format!("lease_id={lease_id} fencing_token={token} valid_until_ms={valid_until_ms}\n")
    };
    if let Err(failure) = console.deliver(&text) {
        let _ = store.client().leases().release(&lease).await?;
        return Err(failure);
    }
    Ok(Exit::Success)
}
