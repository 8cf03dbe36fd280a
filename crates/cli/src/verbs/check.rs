//! `holdline check NAME`.

use clap::Args;
use holdline_core::{LockName, Purpose, RenewReply};
use serde_json::json;

use super::common::{self, LeaseIdArgs};
use crate::console::Console;
use crate::failure::Outcome;
use crate::open_store::OpenStore;
use crate::verb::{StoreUse, Verb};
use crate::view::millis;

/// Check whether a lease of `acquire` is still held: exit 0 if so, 79 if not
#[derive(Debug, Args)]
#[command(
    after_help = "The answer may be outdated when it arrives. In a job of `run` it is about \
    the job's own lease.\n\nExample:\n  holdline check deploy --lease-id \"$lease_id\" || exit"
)]
pub(crate) struct CheckArgs {
    /// The lock name
    name: LockName,
    #[command(flatten)]
    lease_id: LeaseIdArgs,
}

/// Describes `check`.
pub(crate) fn verb() -> Verb {
    Verb::on_store("check", StoreUse::Reads(without_store), run)
}

/// Asks the store about the lease, and changes nothing.
pub(crate) async fn run(arguments: &CheckArgs, store: &OpenStore, console: &Console) -> Outcome {
    let name = &arguments.name;
    // The queue heartbeat extends nothing; for a grant it returns the remaining time.
    let lease_id = arguments.lease_id.required()?;
    let reply = store.renew_once(name, lease_id, Purpose::Wait).await?;
    let (held, left) = match reply {
        RenewReply::Held { left } => (true, left),
        RenewReply::Revoked { left, .. } => (left.is_none_or(|left| !left.is_zero()), left),
        _ => (false, None),
    };
    if !held {
        return Err(common::not_held(name));
    }
    console.only_object(&json!({ "name": name, "held": true, "left_ms": left.map(millis) }))
}

/// Reports that no lease is held, because there is no store.
fn without_store(arguments: &CheckArgs, _: &Console) -> Outcome {
    arguments.lease_id.required()?;
    Err(common::not_held(&arguments.name))
}
