//! `holdline renew NAME`.

use std::time::Duration;

use clap::Args;
use holdline_core::{LeaseId, LockName};
use serde_json::json;

use super::common::{self, LeaseIdArgs};
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::OpenStore;
use crate::verb::{StoreUse, Verb};
use crate::view::unix_millis;

/// Renew a lease of `acquire`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline renew deploy --lease-id \"$lease_id\" --lease 10m")]
pub(crate) struct RenewArgs {
    /// The lock name
    name: LockName,
    #[command(flatten)]
    lease_id: LeaseIdArgs,
    /// How long the lease lasts from now; a renewal never shortens it [default: the duration that
    /// `acquire` requested]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::lease)]
    lease: Option<Duration>,
}

/// Describes `renew`.
pub(crate) fn verb() -> Verb {
    Verb::on_store("renew", StoreUse::Changes(without_store), run)
}

/// Renews the lease.
pub(crate) async fn run(arguments: &RenewArgs, store: &OpenStore, console: &Console) -> Outcome {
    let RenewArgs { name, lease, .. } = arguments;
    let lease_id = arguments.lease_id.of_acquire("renews")?;
    let lease = match *lease {
        Some(lease) => lease,
        None => own_length(name, lease_id, store, console).await?,
    };
    let left = store.client().leases().renew_by_id(name, lease_id, lease).await?;
    let valid_until_ms = unix_millis(left);
    let object = json!({ "name": name, "valid_until_ms": valid_until_ms });
    console.print(&object, &format!("valid_until_ms={valid_until_ms}\n"))?;
    Ok(Exit::Success)
}

/// Returns the duration that was requested for the lease, from its holder's fields.
async fn own_length(
    name: &LockName,
    lease_id: LeaseId,
    store: &OpenStore,
    console: &Console,
) -> Result<Duration, Failure> {
    let holders = store.inspect(name).await?.holders;
    let ours = holders.into_iter().find(|holder| holder.summary.lease_id == lease_id.short());
    let Some(ours) = ours else { return Ok(store.default_lease()) };
    if let Some(millis) = ours.summary.metadata.fields().lease_duration_ms {
        let range = store.capabilities().lease;
        return Ok(Duration::from_millis(millis).clamp(range.min, range.max));
    }
    let lease = store.default_lease();
    console.warn(&format!(
        "{name}: how long the lease was asked to be is not known here: renewed for {}; say it with \
         --lease",
        duration::written(lease)
    ));
    Ok(lease)
}

/// Reports that no lease is held, because there is no store.
fn without_store(arguments: &RenewArgs, _: &Console) -> Outcome {
    arguments.lease_id.of_acquire("renews")?;
    Err(common::not_held(&arguments.name))
}
