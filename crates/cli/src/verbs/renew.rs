//! `holdline renew NAME`.

use std::time::Duration;

use clap::Args;
use holdline_core::LockName;
use serde_json::json;

use super::common::{self, LeaseIdArgs};
use super::run::environment::unix_millis;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::session::Session;

/// What `renew` takes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline renew deploy --lease-id \"$lease_id\" --lease 10m")]
pub(crate) struct RenewArgs {
    /// The lock name
    #[arg(value_parser = common::name)]
    name: LockName,
    #[command(flatten)]
    lease_id: LeaseIdArgs,
    /// How long the lease lasts from now; never shorter than it is
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(default_value = "30s", value_parser = duration::lease)]
    lease: Duration,
}

/// Keeps the lease for longer.
pub(crate) async fn run(arguments: &RenewArgs, session: &Session, console: &Console) -> Outcome {
    let RenewArgs { name, lease, .. } = arguments;
    let lease_id = arguments.lease_id.of_acquire("renews")?;
    let left = session.client().renew_by_id(name, lease_id, *lease).await?;
    let valid_until_ms = unix_millis(left);
    if console.is_json() {
        console.object(&json!({ "name": name, "valid_until_ms": valid_until_ms }))?;
    } else {
        console.data(&format!("valid_until_ms={valid_until_ms}\n"))?;
    }
    Ok(Exit::Success)
}

/// Finds that no lease is held where there is no store.
pub(crate) fn without_store(arguments: &RenewArgs) -> Outcome {
    arguments.lease_id.of_acquire("renews")?;
    Err(Failure::lost(format_args!("{}: not held by this lease", arguments.name)))
}
